"""Commands that use a model: predict, evaluate, explain, info."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lnbnn.cli.arguments import Cache, Images, Jobs, ModelDir, Strict, TrustNetwork
from lnbnn.cli.console import (
    Format,
    ProgressBars,
    human_bytes,
    human_number,
    note,
    print_csv,
    print_json,
    print_table,
    report_skipped,
    say,
)

if TYPE_CHECKING:
    from lnbnn.classifiers.base import Classifier
    from lnbnn.model.answers import Answer

__all__ = ["evaluate", "explain", "info", "predict"]

UNKNOWN = "unknown"
"""The answer to an image that was rejected."""


def predict(
    model: ModelDir,
    paths: Annotated[list[Path], typer.Argument(help="Image files, or folders of them.", show_default=False)],
    top: Annotated[int, typer.Option(min=1, help="How many classes to list for each image.")] = 5,
    format: Annotated[Format, typer.Option(help="How to print the answers.")] = Format.table,
    reject: Annotated[
        float | None,
        typer.Option(
            metavar="RATE",
            help="Answer unknown where no class stands out; of images of unknown classes accept this share, e.g. 0.05.",
            show_default=False,
        ),
    ] = None,
    jobs: Jobs = None,
    strict: Strict = False,
    trust_network: TrustNetwork = False,
) -> None:
    """Say which class each image belongs to.

    With --format json, one object a line as soon as it is known:
    {"path": ..., "label": ..., "ranking": [[label, score], ...]}, best first. The score is the evidence summed over
    the image's descriptors: higher is better, comparable within one image. Of a model after lnbnn calibrate,
    "probability" is that of the answer, and "false_accept_rate" the smallest --reject that accepts it. With --reject
    the answer may be "unknown", and "is_unknown" says so.
    """
    from lnbnn.classifiers import load
    from lnbnn.data.folder import find_images
    from lnbnn.errors import ImageReadError

    classifier = load(model, trust_network=trust_network).set_params(n_jobs=jobs)
    images, notes = find_images(paths)
    for text in notes:
        note(text)
    if reject is not None:
        if not 0.0 < reject < 1.0:
            raise typer.BadParameter(f"expected a rate between 0 and 1; got {reject}", param_hint="--reject")
        classifier = _ready_to_reject(model, classifier, trust_network)
    is_calibrated = classifier.fitted().is_calibrated
    skipped = []
    columns = ["score", *(["probability"] if is_calibrated else [])]
    rows = []
    if format is Format.csv:
        print_csv([["path", "rank", "label", *columns, *([] if reject is None else ["is_unknown"])]])
    with ProgressBars() as progress:
        for done, answer in enumerate(classifier.iter_answers(images, reject=reject), start=1):
            if answer.reason is not None:
                if strict:
                    raise ImageReadError(answer.reason)
                skipped.append((answer.name, answer.reason))
            ranking = answer.ranking[:top]
            if format is Format.json:
                print_json(_answer_json(answer, ranking, reject))
            elif format is Format.csv:
                rejected = [] if reject is None else [answer.is_unknown]
                for rank, entry in enumerate(ranking, start=1):
                    print_csv([[answer.name, rank, *entry, *answer.probabilities[rank - 1 : rank], *rejected]])
                if not ranking:
                    print_csv([[answer.name, "", *("" for _ in columns), "", *rejected]])
            elif ranking:
                shown = ranking if answer.is_unknown else ranking[1:]
                others = ", ".join(f"{label} {human_number(score)}" for label, score in shown)
                best = [human_number(ranking[0][1]), *(f"{100 * p:.0f} %" for p in answer.probabilities[:1])]
                name = UNKNOWN if answer.is_unknown else str(answer.label)
                rows.append([answer.name, name, *best, *([others] if top > 1 else [])])
            progress("classifying", done, len(images))
    if format is Format.table and rows:
        print_table(["image", "answer", *columns, *([f"next best (of the top {top})"] if top > 1 else [])], rows)
    report_skipped(skipped, len(images))
    if len(skipped) == len(images):
        raise typer.Exit(1)


def _answer_json(answer: Answer, ranking: Any, reject: float | None) -> dict[str, Any]:
    content: dict[str, Any] = {"path": answer.name, "label": answer.label, "ranking": [list(r) for r in ranking]}
    if reject is not None and answer.reason is None:
        content |= {"label": UNKNOWN if answer.is_unknown else answer.label, "is_unknown": answer.is_unknown}
    if answer.probabilities:
        content["probability"] = answer.probabilities[0]
    if answer.false_accept_rate is not None:
        content["false_accept_rate"] = answer.false_accept_rate
    return content if answer.reason is None else content | {"error": answer.reason}


def _ready_to_reject(model: Path, classifier: Classifier, trust_network: bool) -> Classifier:
    """The classifier, calibrated; what that takes is stored in the model, if it can be written to."""
    from lnbnn.classifiers import load
    from lnbnn.errors import InvalidInputError, LnbnnError
    from lnbnn.model.changes import calibrate as calibrate_model

    if classifier.fitted().can_reject:
        if 10 * classifier.fitted().n_changes > len(classifier.images_):
            note(
                f"{classifier.fitted().n_changes} images changed since the model was calibrated; "
                f"lnbnn calibrate {model} brings it up to date"
            )
        return classifier
    note(f"{model}: calibrating, once: each image is looked up as if it, and its class, was not known")
    with ProgressBars() as progress:
        try:
            calibrate_model(model, trust_network=trust_network, progress=progress)
        except InvalidInputError:
            raise
        except LnbnnError as error:
            note(f"not stored: {error}")
            return classifier.calibrate(unknown=True, progress=progress)
    return load(model, trust_network=trust_network).set_params(n_jobs=classifier.n_jobs)


def evaluate(
    model: ModelDir,
    images: Images,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Folder for confusion.csv and confusion.png.", show_default=False),
    ] = None,
    format: Annotated[Format, typer.Option(help="How to print the result (csv: the per-class table).")] = Format.table,
    jobs: Jobs = None,
    cache: Cache = None,
    strict: Strict = False,
    trust_network: TrustNetwork = False,
) -> None:
    """Classify labelled images and say how many answers are right.

    The figure is the mean of the per-class accuracies: every class counts the same. With --format json, one object with
    "mean_per_class_accuracy" (0 to 1), "per_class", "n_images" and "seconds".
    """
    from lnbnn.classifiers import load
    from lnbnn.data.folder import read_images
    from lnbnn.files.outputs import check_folder
    from lnbnn.reading.store import FeatureStore
    from lnbnn.trust import evaluation as ev

    if output is not None:
        check_folder(output)
    classifier = load(model, trust_network=trust_network).set_params(n_jobs=jobs)
    data = read_images(images)
    for text in data.notes:
        note(text)
    labels = _as_model_labels(classifier, data.labels)
    unknown = sorted(set(labels) - set(classifier.classes_.tolist()), key=str)
    if unknown:
        note(f"not in the model, so every image of them counts as wrong: {', '.join(map(str, unknown))}")
    with ProgressBars() as progress:
        result = ev.evaluate(
            classifier,
            data.paths,
            labels,
            on_error="raise" if strict else "skip",
            store=None if cache is None else FeatureStore(cache),
            progress=progress,
        )
    if format is Format.json:
        print_json(
            {
                "mean_per_class_accuracy": result.mean_per_class_accuracy,
                "per_class": {str(label): accuracy for label, accuracy in result.per_class.items()},
                "n_images": result.n_images,
                "n_skipped": len(result.skipped),
                "seconds": round(result.seconds, 3),
            }
        )
    elif format is Format.csv:
        print_csv([["label", "n_images", "accuracy"], *_per_class_rows(result)])
    else:
        _print_evaluation(result)
    if output is not None:
        from lnbnn.trust.figures import confusion_figure, save_figure

        output.mkdir(parents=True, exist_ok=True)
        ev.write_confusion(output / "confusion.csv", result)
        save_figure(confusion_figure(result), output / "confusion.png")
        note(f"confusion matrix: {output / 'confusion.csv'}, {output / 'confusion.png'}")
    report_skipped(result.skipped, len(data))


def explain(
    model: ModelDir,
    image: Annotated[Path, typer.Argument(help="The image to explain.", show_default=False)],
    output: Annotated[Path, typer.Option("--output", "-o", help="The picture to write (.png, .pdf, .svg).")],
    label: Annotated[
        str | None, typer.Option(help="Show the evidence for this class; default: the answer.", show_default=False)
    ] = None,
    against: Annotated[
        str | None, typer.Option(help="Show what speaks for the class against this one.", show_default=False)
    ] = None,
    trust_network: TrustNetwork = False,
) -> None:
    """Draw where in an image the evidence for an answer lies.

    lnbnn explain model photo.jpg -o why.png

    lnbnn explain model photo.jpg -o why.png --label cat --against dog
    """
    from lnbnn.classifiers import load
    from lnbnn.files.images import read_bytes
    from lnbnn.files.outputs import check_file
    from lnbnn.trust.evidence import explain as explain_image
    from lnbnn.trust.figures import evidence_figure, save_figure

    if output.suffix.lower() not in {".png", ".pdf", ".svg", ".jpg"}:
        raise typer.BadParameter(f"expected a name that ends in .png, .pdf, .svg or .jpg; got {output.name!r}")
    check_file(output)
    classifier = load(model, trust_network=trust_network)
    picture = classifier.descriptor_.decode(read_bytes(image), name=str(image))
    wanted = [None if name is None else _as_model_labels(classifier, [name])[0] for name in (label, against)]
    evidence = explain_image(classifier, image, label=wanted[0], against=wanted[1])
    answer = evidence.ranking[0][0]
    save_figure(evidence_figure(picture, evidence, title=f"{image.name}    answer: {answer}"), output)
    n_for = int((evidence.support > 0).sum())
    versus = "" if evidence.against is None else f" rather than {evidence.against}"
    say(f"{output}: answer {answer}; {n_for:,} of {len(evidence.support):,} patches speak for {evidence.label}{versus}")


def info(
    model: ModelDir,
    format: Annotated[Format, typer.Option(help="How to print it.")] = Format.table,
    trust_network: TrustNetwork = False,
) -> None:
    """Show what a model holds: classes, images, descriptors, settings, size on disk and in memory."""
    from lnbnn.classifiers import load

    classifier = load(model, trust_network=trust_network)
    per_class: dict[str, list[int]] = {str(label): [0, 0] for label in classifier.classes_}
    for image in classifier.images_:
        entry = per_class[str(classifier.classes_[image.label])]
        entry[0] += 1
        entry[1] += image.n_descriptors
    disk = sum(file.stat().st_size for file in model.rglob("*") if file.is_file())
    facts: dict[str, Any] = {
        "method": classifier.method,
        "n_classes": len(classifier.classes_),
        "n_images": len(classifier.images_),
        "n_descriptors": sum(image.n_descriptors for image in classifier.images_),
        "index": classifier.describe(),
        "bytes_on_disk": disk,
        "bytes_in_memory": classifier.nbytes_,
        "settings": classifier.plain_params(),
    }
    if format is Format.json:
        print_json(
            facts | {"classes": {name: {"n_images": n, "n_descriptors": d} for name, (n, d) in per_class.items()}}
        )
    elif format is Format.csv:
        print_csv([["label", "n_images", "n_descriptors"], *([name, *counts] for name, counts in per_class.items())])
    else:
        facts |= {"bytes_on_disk": human_bytes(disk), "bytes_in_memory": human_bytes(classifier.nbytes_)}
        settings = facts.pop("settings")
        rows = [
            (name.removeprefix("n_").replace("_", " "), f"{value:,}" if isinstance(value, int) else value)
            for name, value in facts.items()
        ]
        rows += [(f"setting {name}", value) for name, value in settings.items()]
        print_table(["fact", "value"], rows, show_header=False)
        print_table(["class", "images", "descriptors"], [(name, n, f"{d:,}") for name, (n, d) in per_class.items()])


def _as_model_labels(classifier: Classifier, labels: Any) -> list[Any]:
    """Folder names as the model's labels: whole numbers where the model was fitted on such."""
    if classifier.classes_.dtype.kind not in "iu":
        return list(labels)
    by_name = {str(label): label for label in classifier.classes_.tolist()}
    return [by_name.get(label, label) for label in labels]


def _per_class_rows(result: Any) -> list[tuple[str, int, float]]:
    counts = dict(zip(result.labels, result.confusion.sum(axis=1).tolist(), strict=True))
    return [(str(label), counts[label], accuracy) for label, accuracy in result.per_class.items()]


def _print_evaluation(result: Any) -> None:
    rows = [(label, n_images, f"{100 * accuracy:.1f} %") for label, n_images, accuracy in _per_class_rows(result)]
    print_table(["class", "images", "right"], rows)
    mistakes = result.confusions(5)
    if mistakes:
        say("most frequent mistakes: " + "; ".join(f"{a} taken for {b} ({n})" for a, b, n in mistakes))
    say(
        f"mean per-class accuracy {100 * result.mean_per_class_accuracy:.2f} %  "
        f"({result.n_images} images, {len(result.labels)} classes, {result.seconds:.1f} s)"
    )
