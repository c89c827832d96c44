"""The command that makes a model: fit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lnbnn.classifiers import CLASSIFIERS
from lnbnn.cli.arguments import Cache, Images, Jobs, Strict
from lnbnn.cli.console import ProgressBars, note, parse_params, report_skipped, usage_errors
from lnbnn.descriptors import DESCRIPTORS
from lnbnn.indexes import INDEXES
from lnbnn.presets import PRESETS, preset_params
from lnbnn.registry import resolve

if TYPE_CHECKING:
    from lnbnn.classifiers.base import ImageClassifier

__all__ = ["fit"]


def fit(
    images: Images,
    model: Annotated[Path, typer.Argument(help="The model folder to make.", show_default=False)],
    preset: Annotated[str, typer.Option(help=f"Start from: {', '.join(PRESETS)}.")] = "balanced",
    method: Annotated[str, typer.Option(help=f"One of: {', '.join(CLASSIFIERS)}.")] = "local-nbnn",
    method_param: Annotated[
        list[str] | None,
        typer.Option("--method-param", "-M", metavar="NAME=VALUE", help="Any setting of the method, e.g. -M levels=2"),
    ] = None,
    neighbors: Annotated[
        int | None, typer.Option("--neighbors", "-k", min=1, help="k of Local NBNN.", show_default=False)
    ] = None,
    location_weight: Annotated[
        float | None,
        typer.Option("--location-weight", "-a", help="alpha: weight of a patch's place, 0 to 2.", show_default=False),
    ] = None,
    query_budget: Annotated[
        str | None,
        typer.Option(help="Query descriptors used: a number, a share such as 0.5, or all.", show_default=False),
    ] = None,
    descriptor: Annotated[
        str | None, typer.Option(help=f"One of: {', '.join(DESCRIPTORS)}.", show_default=False)
    ] = None,
    descriptor_param: Annotated[
        list[str] | None,
        typer.Option("--descriptor-param", "-D", metavar="NAME=VALUE", help="e.g. -D step_px=3 -D bin_sizes=4,6,9"),
    ] = None,
    index: Annotated[str | None, typer.Option(help=f"One of: {', '.join(INDEXES)}.", show_default=False)] = None,
    index_param: Annotated[
        list[str] | None, typer.Option("--index-param", "-I", metavar="NAME=VALUE", help="e.g. -I n_probes=4")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of every random choice.")] = 0,
    jobs: Jobs = None,
    cache: Cache = None,
    strict: Strict = False,
    force: Annotated[bool, typer.Option("--force", "-f", help="Replace a model that is there already.")] = False,
) -> None:
    """Make a model from a folder of labelled photos.

    There is nothing to train: the descriptors of all photos go into one nearest-neighbour index. Settings not given
    are the preset's; lnbnn info shows those of a model.

        lnbnn fit photos model

        lnbnn fit photos model --preset fast

        lnbnn fit split/train.csv model -k 10 -D step_px=4
    """
    from lnbnn.datasets.folder import read_images
    from lnbnn.model_folder import check_target
    from lnbnn.store import FeatureStore

    check_target(model, overwrite=force)
    given = {
        "n_neighbors": neighbors,
        "location_weight": location_weight,
        "query_budget": _budget(query_budget),
        "descriptor": descriptor,
        "index": index,
        "n_jobs": jobs,
    }
    given = {name: value for name, value in given.items() if value is not None}
    given |= parse_params(method_param, "--method-param")  # here none is a value: -M stop_confidence=none
    params = preset_params(preset) | given
    if query_budget == "all":
        params["query_budget"] = None
    params["random_state"] = seed
    for name, items, option in (
        ("descriptor_params", descriptor_param, "--descriptor-param"),
        ("index_params", index_param, "--index-param"),
    ):
        changed = parse_params(items, option)
        if changed or name in params:
            params[name] = params.get(name, {}) | changed
    chosen = set(given)
    if query_budget is not None:
        chosen.add("query_budget")
    chosen |= {
        name for name, items in (("descriptor_params", descriptor_param), ("index_params", index_param)) if items
    }
    classifier = _make_classifier(method, params, chosen)
    data = read_images(images)
    for text in data.notes:
        note(text)
    with ProgressBars() as progress:
        classifier.fit(
            data.paths,
            data.labels,
            on_error="raise" if strict else "skip",
            store=None if cache is None else FeatureStore(cache),
            progress=progress,
        )
        progress("writing the model", 0, 1)
        classifier.save(model, overwrite=force)
        progress("writing the model", 1, 1)
    report_skipped(classifier.skipped_, len(data))
    n_descriptors = sum(image.n_descriptors for image in classifier.images_)
    typer.echo(
        f"{model}: {len(classifier.classes_)} classes, {len(classifier.images_)} images, "
        f"{n_descriptors:,} descriptors; {classifier.describe()}"
    )


def _make_classifier(method: str, params: dict[str, Any], chosen: set[str]) -> ImageClassifier:
    """The classifier with these settings; what a method does not have is an error if chosen, else left out."""
    kind = resolve(CLASSIFIERS, method, "method")
    names = kind._get_param_names()
    for name in sorted(chosen - set(names)):
        raise typer.BadParameter(f"method {method!r} has no {name}; its settings: {', '.join(names)}")
    classifier = kind(**{name: value for name, value in params.items() if name in names})
    with usage_errors():
        classifier.check_settings()
    return classifier


def _budget(text: str | None) -> int | float | None:
    if text is None or text == "all":
        return None
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        raise typer.BadParameter(f"expected a number, a share such as 0.5, or all; got {text!r}") from None
