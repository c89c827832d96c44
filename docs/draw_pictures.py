"""Draw the pictures of the documentation from scikit-image's photographs: `python docs/draw_pictures.py`.

Everything shown is computed: the patches, their neighbors and the evidence are those of a model fitted on the spot.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle
from numpy.typing import NDArray
from PIL import Image
from scipy.spatial import Voronoi

from lnbnn import LocalNBNN
from lnbnn.data.toy import load_photos, make_views
from lnbnn.trust.evidence import Evidence, explain
from lnbnn.trust.figures import evidence_figure, explanation_figure, save_figure
from lnbnn.trust.matches import match_photos

IMAGES = Path(__file__).resolve().parent / "images"
CLASSES = ("cat", "coffee", "rocket", "astronaut")
COLORS = dict(zip(CLASSES, ("#d55e00", "#0072b2", "#009e73", "#cc79a7"), strict=True))  # Okabe and Ito
INK, FAINT = "#222222", "#999999"
Picture = NDArray[np.uint8]


def main() -> None:
    """Fit a model of four classes, ask about one new photo, and draw."""
    photos = {name: photo for name, photo in load_photos().items() if name in CLASSES}
    known = make_views({name: photos[name] for name in CLASSES}, 6, seed=0, clutter=False)
    query = make_views({"cat": photos["cat"]}, 1, seed=7, clutter=True)[0][1]
    with tempfile.TemporaryDirectory() as folder:
        paths = write(Path(folder), known)
        classifier = LocalNBNN(n_neighbors=10, query_budget=None, stop_confidence=None)
        classifier.fit(paths, [name for name, _ in known])
        evidence = explain(classifier, query)
        keep(overview(classifier, known, query, evidence), "overview")
        keep(way(known, query, evidence), "way")
        keep(lists(classifier, query), "lists")
        shown = explain(classifier, query, label="cat", against="astronaut")
        keep(evidence_figure(query, shown), "evidence")
        drawn = match_photos(evidence.matches, evidence.photos[:4])
        keep(explanation_figure(query, evidence, drawn, title="answer: cat"), "explanation")


def keep(figure: Figure, name: str) -> None:
    """Write a picture, at most 1,400 pixels wide."""
    path = IMAGES / f"{name}.png"
    save_figure(figure, path)
    with Image.open(path) as picture:
        picture = picture.convert("RGB")
    picture.thumbnail((1400, 1400), Image.Resampling.LANCZOS)
    picture.save(path, optimize=True)


def write(folder: Path, views: list[tuple[str, Picture]]) -> list[str]:
    """The views as files; returns their paths."""
    paths = []
    for number, (name, view) in enumerate(views):
        path = folder / "photos" / name / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(view).save(path)
        paths.append(str(path))
    return paths


def overview(classifier: LocalNBNN, known: list[tuple[str, Picture]], query: Picture, evidence: Evidence) -> Figure:
    """Labeled photos, the index, a new photo, the evidence."""
    figure = Figure(figsize=(13.0, 4.3))
    for row, name in enumerate(CLASSES):
        views = [view for label, view in known if label == name][:3]
        for column, view in enumerate(views):
            axes = figure.add_axes((0.005 + 0.062 * column, 0.69 - 0.225 * row, 0.058, 0.2))
            axes.imshow(square(view), cmap="gray", vmin=0, vmax=255)
            frame(axes, COLORS[name])
        figure.text(0.196, 0.79 - 0.225 * row, name, color=COLORS[name], fontsize=11, va="center", weight="bold")
    head(figure, 0.1, "a few labeled photos")

    axes = figure.add_axes((0.295, 0.02, 0.24, 0.86))
    scatter(axes, classifier, 260)
    frame(axes, FAINT)
    head(figure, 0.415, "one index of all their patches")

    axes = figure.add_axes((0.6, 0.02, 0.19, 0.86))
    axes.imshow(query, cmap="gray", vmin=0, vmax=255)
    speakers(axes, classifier, query)
    frame(axes, FAINT)
    head(figure, 0.695, "patches of a new photo find neighbors")

    axes = figure.add_axes((0.87, 0.14, 0.12, 0.6))
    ranking(axes, evidence)
    head(figure, 0.915, "the most evidence wins")
    for left, right in ((0.262, 0.29), (0.598, 0.542), (0.8, 0.828)):
        arrow(figure, left, right)
    return figure


def way(known: list[tuple[str, Picture]], query: Picture, evidence: Evidence) -> Figure:
    """Three patches of a photo, the patches that they matched, what they say, and the sum."""
    figure = Figure(figsize=(13.0, 4.3))
    axes = figure.add_axes((0.005, 0.04, 0.2, 0.84))
    axes.imshow(query, cmap="gray", vmin=0, vmax=255)
    draw_grid(axes, evidence, query)
    frame(axes, FAINT)
    head(figure, 0.105, "1, 2  the photo and its patches")
    chosen = apart(evidence, known, query, 3)
    colors = ("#e69f00", "#56b4e9", "#f0e442")
    for row, place in enumerate(chosen):
        patch(axes, evidence.features.xy[place], evidence.features.scale[place], query.shape, colors[row], 2.6)
        bottom = 0.64 - 0.3 * row
        own = figure.add_axes((0.27, bottom, 0.09, 0.235))
        own.imshow(
            cut(query, evidence.features.xy[place], evidence.features.scale[place]), cmap="gray", vmin=0, vmax=255
        )
        frame(own, colors[row], 2.6)
        image, center, side = match_of(evidence, known, place)
        other = figure.add_axes((0.41, bottom, 0.09, 0.235))
        other.imshow(cut(known[image][1], center, side), cmap="gray", vmin=0, vmax=255)
        frame(other, COLORS[known[image][0]], 2.6)
        whole = figure.add_axes((0.51, bottom, 0.08, 0.235))
        whole.imshow(known[image][1], cmap="gray", vmin=0, vmax=255)
        patch(whole, center, side, known[image][1].shape, COLORS[known[image][0]], 1.6)
        frame(whole, FAINT)
        figure.text(0.605, bottom + 0.1175, f"for {known[image][0]}", color=COLORS[known[image][0]], va="center")
        arrow(figure, 0.365, 0.405, bottom + 0.1175)
    head(figure, 0.315, "a patch")
    head(figure, 0.5, "3  its nearest neighbor, in its photo")
    axes = figure.add_axes((0.68, 0.04, 0.15, 0.84))
    axes.imshow(query, cmap="gray", vmin=0, vmax=255)
    strongest = np.percentile(np.abs(evidence.map), 99.5)
    extent = (0, query.shape[1], query.shape[0], 0)
    axes.imshow(evidence.map, cmap="inferno", alpha=0.55, vmin=0, vmax=strongest, extent=extent)
    frame(axes, FAINT)
    head(figure, 0.755, "4  evidence of all patches")
    axes = figure.add_axes((0.895, 0.14, 0.1, 0.6))
    ranking(axes, evidence)
    head(figure, 0.93, "5  the sum decides")
    for left, right in ((0.212, 0.262), (0.645, 0.675), (0.833, 0.852)):
        arrow(figure, left, right)
    return figure


def lists(classifier: LocalNBNN, query: Picture) -> Figure:
    """Descriptors on their two main directions, in lists around centers; which ones a query looks at."""
    figure = Figure(figsize=(9.0, 4.6))
    points, names, project = plane(classifier)
    rng = np.random.default_rng(3)
    some = rng.permutation(len(points))[:900]
    points, names = points[some], [names[place] for place in some]
    centers = k_means(points, 24, rng)
    asked = project(classifier.query_features(query))
    one = asked[np.argsort(np.linalg.norm(asked - np.array([0.35, 0.25]) * points.std(axis=0), axis=1))[0]]
    nearest = np.argsort(((centers - one) ** 2).sum(axis=1))[:3]
    of_list = ((points[:, None] - centers) ** 2).sum(axis=2).argmin(axis=1)
    inside = np.isin(of_list, nearest)
    neighbors = np.flatnonzero(inside)[np.argsort(((points[inside] - one) ** 2).sum(axis=1))[:10]]

    axes = figure.add_axes((0.01, 0.02, 0.68, 0.96))
    low, high = np.percentile(points, [0.5, 99.5], axis=0)
    cells(axes, centers, nearest, low, high)
    axes.scatter(*points.T, s=14, c=[COLORS[name] for name in names], alpha=0.7, lw=0)
    axes.scatter(*centers.T, marker="+", s=45, c=INK, lw=1.1)
    for neighbor in neighbors:
        axes.plot(*zip(one, points[neighbor], strict=True), color=INK, lw=1.0)
    axes.scatter(*one, marker="*", s=150, c="#f0e442", ec=INK, zorder=5)
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
    frame(axes, FAINT)
    key = [
        ("*", "#f0e442", "a patch of the new photo"),
        ("+", INK, "center of a list"),
        ("s", "#dcebe8", "lists that are looked into"),
        *(("o", COLORS[name], f"patches of {name}") for name in CLASSES),
    ]
    for marker, color, text in key:
        edge = {"ec": INK} if marker == "*" else {}
        axes.scatter([], [], marker=marker, s=90, c=color, label=text, **edge)
    figure.legend(*axes.get_legend_handles_labels(), loc="center left", bbox_to_anchor=(0.7, 0.5), frameon=False)
    return figure


def plane(classifier: LocalNBNN) -> tuple[Any, list[str], Any]:
    """The model's descriptors on their two main directions, the class of each, and the way there."""
    vectors, names = [], []
    for place, image in enumerate(classifier.images_):
        vectors.append(classifier.reference_vectors(place)[::3])
        names += [image.label] * len(vectors[-1])
    table = np.concatenate(vectors).astype(np.float64)
    center = table.mean(axis=0)
    directions = np.linalg.svd(table - center, full_matrices=False)[2][:2]

    def project(features: Any) -> Any:
        return (classifier.method_.vectors(features).astype(np.float64) - center) @ directions.T

    return (table - center) @ directions.T, names, project


def scatter(axes: Any, classifier: LocalNBNN, per_class: int) -> None:
    points, names, _ = plane(classifier)
    rng = np.random.default_rng(0)
    labels = np.array(names)
    for name in CLASSES:
        own = points[rng.permutation(np.flatnonzero(labels == name))[:per_class]]
        axes.scatter(*own.T, s=9, c=COLORS[name], alpha=0.6, lw=0)


def k_means(points: Any, n_centers: int, rng: np.random.Generator) -> Any:
    centers = points[rng.permutation(len(points))[:n_centers]]
    for _ in range(25):
        nearest = ((points[:, None] - centers) ** 2).sum(axis=2).argmin(axis=1)
        centers = np.stack([points[nearest == place].mean(axis=0) for place in range(n_centers)])
    return centers


def cells(axes: Any, centers: Any, filled: Any, low: Any, high: Any) -> None:
    """The borders between centers, some cells filled; far-away centers close the outer ones."""
    far = 6 * np.array([[1, 0], [-1, 0], [0, 1], [0, -1]]) * (high - low)
    voronoi = Voronoi(np.concatenate([centers, far]))
    for place in range(len(centers)):
        corners = voronoi.vertices[voronoi.regions[voronoi.point_region[place]]]
        axes.fill(*corners.T, fc="#dcebe8" if place in filled else "none", ec="#bbbbbb", lw=0.8)


def speakers(axes: Any, classifier: LocalNBNN, query: Picture) -> None:
    """Patches in the color of the class that they say most for."""
    features = classifier.query_features(query)
    updates = classifier.updates(query)
    best = updates.values.argmin(axis=1)
    says = -updates.values[np.arange(len(best)), best]
    labels = updates.labels[np.arange(len(best)), best]
    taken: list[Any] = []
    for place in np.argsort(-says * (features.scale > 20)):
        center = features.xy[place]
        if all(np.abs(center - other).max() > 0.13 for other in taken) and len(taken) < 22:
            taken.append(center)
            color = COLORS[str(classifier.classes_[labels[place]])]
            patch(axes, center, min(features.scale[place], 46), query.shape, color, 1.8)


def draw_grid(axes: Any, evidence: Evidence, query: Picture) -> None:
    """Where the patches are: a dot each."""
    height, width = query.shape
    axes.scatter(evidence.features.xy[:, 0] * width, evidence.features.xy[:, 1] * height, s=1.2, c="#7fd6c8", lw=0)
    axes.set(xlim=(0, width), ylim=(height, 0))


def match_of(evidence: Evidence, known: list[tuple[str, Picture]], place: int) -> tuple[int, Any, float]:
    """What a patch matched: the number of the photo, and center and side of the patch in it."""
    matches = evidence.matches[0]
    number = int(matches.ids[np.flatnonzero(matches.rows == place)[0]])
    image, row = number >> 20, number & ((1 << 20) - 1)  # as the index numbers descriptors
    features = matches.descriptor.extract(known[image][1])
    return image, features.xy[row], float(features.scale[row])


def apart(evidence: Evidence, known: list[tuple[str, Picture]], query: Picture, count: int) -> list[int]:
    """The strongest patches with something to see in both pictures, not near each other."""
    chosen: list[int] = []
    for place in np.argsort(-evidence.support)[:250].tolist():
        center, side = evidence.features.xy[place], evidence.features.scale[place]
        image, at, its_side = match_of(evidence, known, place)
        seen = min(cut(query, center, side).std(), cut(known[image][1], at, its_side).std())
        clear = all(np.abs(center - evidence.features.xy[other]).max() > 0.18 for other in chosen)
        if clear and side > 20 and seen > 22 and np.abs(center - 0.5).max() < 0.42:
            chosen.append(place)
    return chosen[:count]


def ranking(axes: Any, evidence: Evidence) -> None:
    names = [label for label, _ in evidence.ranking]
    axes.barh(names, [score for _, score in evidence.ranking], color=[COLORS[name] for name in names])
    axes.invert_yaxis()
    axes.set_xticks([])
    axes.tick_params(left=False, labelsize=10)
    for side in ("top", "right", "bottom"):
        axes.spines[side].set_visible(False)


def patch(axes: Any, center: Any, side: float, shape: tuple[int, ...], color: str, width: float) -> None:
    """A frame around a patch; its side is in pixels of a picture whose longest side is 300."""
    height, wide = shape
    side = side * max(shape) / 300
    corner = center[0] * wide - side / 2, center[1] * height - side / 2
    axes.add_patch(Rectangle(corner, side, side, fill=False, ec=color, lw=width))


def cut(picture: Picture, center: Any, side: float) -> Picture:
    """The pixels of a patch; its side is in pixels of a picture whose longest side is 300."""
    height, width = picture.shape
    half = side / 2 * max(picture.shape) / 300
    x, y = center[0] * width, center[1] * height
    top, left = max(0, round(y - half)), max(0, round(x - half))
    return picture[top : round(y + half), left : round(x + half)]


def square(picture: Picture) -> Picture:
    side = min(picture.shape)
    top, left = ((length - side) // 2 for length in picture.shape)
    return picture[top : top + side, left : left + side]


def frame(axes: Any, color: str, width: float = 1.2) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set(color=color, linewidth=width)


def head(figure: Figure, center: float, text: str) -> None:
    figure.text(center, 0.95, text, ha="center", va="center", fontsize=11, color=INK)


def arrow(figure: Figure, left: float, right: float, height: float = 0.46) -> None:
    shape = FancyArrowPatch((left, height), (right, height), arrowstyle="-|>", mutation_scale=16, color=FAINT, lw=1.6)
    figure.add_artist(shape)


if __name__ == "__main__":
    main()
