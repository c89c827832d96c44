"""Commands that use a model: predict, evaluate, explain, info, audit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lnbnn.cli.console import (
    MAX_LISTED,
    Cache,
    Format,
    Images,
    Jobs,
    ModelDir,
    PhotoFolders,
    Ray,
    Strict,
    TrustNetwork,
    human_bytes,
    human_number,
    jobs_on,
    note,
    open_cache,
    print_choice,
    print_csv,
    print_json,
    print_table,
    progress_bars,
    read_set,
    report_skipped,
    say,
)
from lnbnn.escaping import json_text

if TYPE_CHECKING:
    from lnbnn.trust.audit import Audit
    from lnbnn.trust.evaluation import Evaluation
    from lnbnn.trust.evidence import Evidence
    from lnbnn.trust.matches import PhotoMatches

__all__ = ["audit", "evaluate", "explain", "info", "predict"]


def predict(
    model: ModelDir,
    paths: Annotated[list[Path], typer.Argument(help="Image files, or folders of them.", show_default=False)],
    top: Annotated[int, typer.Option(min=1, help="How many classes to list for each image.")] = 5,
    format: Annotated[Format, typer.Option(help="How to print the answers.")] = Format.table,
    reject: Annotated[
        float | None,
        typer.Option(
            metavar="RATE",
            help='Answer "unknown" when no class stands out; RATE is the share of unknown images accepted, e.g. 0.05.',
            show_default=False,
        ),
    ] = None,
    jobs: Jobs = None,
    ray: Ray = None,
    strict: Strict = False,
    trust_network: TrustNetwork = False,
) -> None:
    """Say which class each image belongs to.

    With --format json, one object per line, as soon as it is ready:
    {"path": ..., "label": ..., "ranking": [[label, score], ...]}, best first. The score is the evidence summed over the
    image's descriptors: higher is better, comparable within one image. After lnbnn calibrate, "probability" is that of
    the answer, and "false_accept_rate" the smallest --reject that accepts it. With --reject the answer may be
    "unknown", and "is_unknown" says so.
    """
    from lnbnn.data.folder import find_images
    from lnbnn.errors import ImageReadError
    from lnbnn.model.answers import UNKNOWN
    from lnbnn.model.opening import load_model

    n_jobs = jobs_on(ray, jobs)
    opened = load_model(model, trust_network=trust_network)
    opened.settings.n_jobs = n_jobs
    images, notes = find_images(paths)
    for text in notes:
        note(text)
    if reject is not None:
        from lnbnn.model.changes import prepare_to_reject

        if not 0.0 < reject < 1.0:
            raise typer.BadParameter(f"expected a rate between 0 and 1; got {reject}", param_hint="--reject")
        with progress_bars() as progress:
            prepare_to_reject(opened, note=note, progress=progress)
    columns = ["score", *(["probability"] if opened.is_calibrated else [])]
    skipped, rows = [], []
    if format is Format.csv:
        print_csv([["path", "rank", "label", *columns, *([] if reject is None else ["is_unknown"])]])
    with progress_bars() as progress:
        for done, answer in enumerate(opened.iter_answers(images, reject=reject), start=1):
            if answer.reason is not None:
                if strict:
                    raise ImageReadError(answer.reason)
                skipped.append((answer.name, answer.reason))
            ranking = answer.ranking[:top]
            if format is Format.json:
                print_json(answer.as_json(top))
            elif format is Format.csv:
                rejected = [] if reject is None else [answer.is_unknown]
                for rank, entry in enumerate(ranking, start=1):
                    print_csv([[answer.name, rank, *entry, *answer.probabilities[rank - 1 : rank], *rejected]])
                if not ranking:
                    print_csv([[answer.name, "", *("" for _ in columns), "", *rejected]])
            elif ranking:
                best = [human_number(ranking[0][1]), *(f"{100 * p:.0f} %" for p in answer.probabilities[:1])]
                shown = ranking if answer.is_unknown else ranking[1:]
                others = ", ".join(f"{label} {human_number(score)}" for label, score in shown)
                label = UNKNOWN if answer.is_unknown else answer.label
                rows.append([answer.name, label, *best, *([others] if top > 1 else [])])
            progress("classifying", done, len(images))
    if rows:
        print_table(["image", "answer", *columns, *([f"next best (of the top {top})"] if top > 1 else [])], rows)
    if skipped:
        report_skipped(skipped, len(images))
    if len(skipped) == len(images):
        raise typer.Exit(1)


def evaluate(
    model: ModelDir,
    images: Images,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Folder for confusion.csv and confusion.png.", show_default=False),
    ] = None,
    format: Annotated[Format, typer.Option(help="How to print the result (csv: the per-class table).")] = Format.table,
    jobs: Jobs = None,
    ray: Ray = None,
    cache: Cache = None,
    strict: Strict = False,
    trust_network: TrustNetwork = False,
) -> None:
    """Classify labeled images and report the accuracy.

    The figure is the mean per-class accuracy: every class counts the same. Images that are in the model themselves are
    listed, and the accuracy without them is reported too: a model knows its own images. With --format json, one object
    with "mean_per_class_accuracy" (0 to 1), "per_class", "n_images", "seconds", "n_in_model", "in_model" and
    "mean_per_class_accuracy_without_them" (null if no image is new).
    """
    from lnbnn.classifiers import load
    from lnbnn.files.outputs import check_folder
    from lnbnn.trust import evaluation as ev

    if output is not None:
        check_folder(output)
    n_jobs = jobs_on(ray, jobs)
    classifier = load(model, trust_network=trust_network).set_params(n_jobs=n_jobs)
    data = read_set(images)
    unknown = sorted(set(data.labels) - set(map(str, classifier.classes_)))
    if unknown:
        note(f"not in the model, so every image of them counts as wrong: {', '.join(unknown)}")
    with progress_bars() as progress:
        result = ev.evaluate(
            classifier,
            data.paths,
            data.labels,
            on_error="raise" if strict else "skip",
            store=open_cache(cache),
            progress=progress,
        )
    rows = [(str(label), result.n_per_class[label], share) for label, share in result.per_class.items()]
    if format is Format.json:
        print_json(result.as_json())
    elif format is Format.csv:
        print_csv([["label", "n_images", "accuracy"], *rows])
    else:
        print_table(["class", "images", "right"], [(label, n, f"{100 * share:.1f} %") for label, n, share in rows])
        _print_summary(result)
    if output is not None:
        from lnbnn.trust.figures import confusion_figure, save_figure

        output.mkdir(parents=True, exist_ok=True)
        ev.write_confusion(output / "confusion.csv", result)
        save_figure(confusion_figure(result), output / "confusion.png")
        note(f"confusion matrix: {output / 'confusion.csv'}, {output / 'confusion.png'}")
    report_skipped(result.skipped, len(data))
    _warn_of_known(result)


def _warn_of_known(result: Evaluation) -> None:
    """List the test images that are in the model, and report the accuracy without them."""
    if not result.known:
        return
    shown = result.known[:MAX_LISTED]
    for image in shown:
        other = "" if image.model_label == image.label else f", labeled {image.model_label} there"
        note(f"in the model already: {image.name} (image {image.image_id}{other})")
    if len(result.known) > len(shown):
        note(f"in the model already: ... and {len(result.known) - len(shown)} more")
    new = result.without_known()
    are, them = ("is", "it") if len(result.known) == 1 else ("are", "them")
    figure = "no image is new" if new is None else f"without {them} {100 * new.mean_per_class_accuracy:.2f} %"
    note(
        f"warning: {len(result.known)} of {result.n_images} images {are} in the model itself (same content), so "
        f"{100 * result.mean_per_class_accuracy:.2f} % says little about new images; {figure}."
    )


def _print_summary(result: Evaluation) -> None:
    mistakes = result.confusions(5)
    if mistakes:
        say("most frequent mistakes: " + "; ".join(f"{a} answered as {b} ({n})" for a, b, n in mistakes))
    say(
        f"mean per-class accuracy {100 * result.mean_per_class_accuracy:.2f} %  "
        f"({result.n_images} images, {len(result.labels)} classes, {result.seconds:.1f} s)"
    )
    if result.known:
        images = "1 image that is" if len(result.known) == 1 else f"{len(result.known)} images that are"
        new, them = result.without_known(), f"the {images} in the model"
        if new is None:
            say(f"without {them}: none left, so nothing is known about new images")
        else:
            figure = f"{100 * new.mean_per_class_accuracy:.2f} %"
            say(f"without {them}: {figure}  ({new.n_images} images, {len(new.labels)} classes)")


def explain(
    model: ModelDir,
    image: Annotated[Path, typer.Argument(help="The image to explain.", show_default=False)],
    output: Annotated[Path, typer.Option("--output", "-o", help="The picture to write (.png, .pdf, .svg).")],
    label: Annotated[
        str | None, typer.Option(help="Show the evidence for this class; default: the answer.", show_default=False)
    ] = None,
    against: Annotated[
        str | None, typer.Option(help="Show the evidence for the class rather than this one.", show_default=False)
    ] = None,
    images: PhotoFolders = None,
    format: Annotated[Format, typer.Option(help="How to print it (csv: the labeled photos).")] = Format.table,
    trust_network: TrustNetwork = False,
) -> None:
    """Draw where in an image the evidence for an answer is, and which labeled photos it comes from.

    lnbnn explain model photo.jpg -o why.png

    lnbnn explain model photo.jpg -o why.png --label cat --against dog

    With --format json, one object with "label", "against", "ranking", "support", "photos" (all with evidence, with
    their "share") and "pairs" (the patches drawn).
    """
    from lnbnn.classifiers import load
    from lnbnn.files.images import decode, read_bytes
    from lnbnn.files.outputs import check_file
    from lnbnn.trust.evidence import explain as explain_image
    from lnbnn.trust.figures import explanation_figure, save_figure
    from lnbnn.trust.matches import match_photos

    if output.suffix.lower() not in {".png", ".pdf", ".svg", ".jpg"}:
        raise typer.BadParameter(f"expected a name that ends in .png, .pdf, .svg or .jpg; got {output.name!r}")
    check_file(output)
    classifier = load(model, trust_network=trust_network)
    data = read_bytes(image)
    picture = classifier.descriptor_.decode(data, name=str(image))
    evidence = explain_image(classifier, image, label=label, against=against)
    drawn = match_photos(evidence.matches, evidence.photos[:4], folders=images or [])
    answer = evidence.ranking[0][0]
    known = "" if evidence.itself is None else "    (in the model itself)"
    figure = explanation_figure(
        picture,
        evidence,
        drawn,
        color_picture=decode(data, max(picture.shape[:2]), color=True, name=str(image)),
        title=f"{image.name}    answer: {answer}{known}",
    )
    save_figure(figure, output)
    _print_evidence(evidence, drawn, output, format)
    if evidence.itself is not None:
        note(f"the image is in the model itself (image {evidence.itself.id}, same content), and matches itself")
    missing = [found.photo.image.name for found in drawn if found.picture is None]
    for name in missing:
        note(f"not found, or changed: {name}")
    if missing:
        note(f"{len(missing)} of {len(drawn)} labeled photos are not drawn; say where they are: --images FOLDER")


def _print_evidence(evidence: Evidence, drawn: Sequence[PhotoMatches], output: Path, format: Format) -> None:
    photos, answer = evidence.photos, evidence.ranking[0][0]
    if format is Format.json:
        pairs = [pair for found in drawn for pair in found.as_json()]
        print_json({"answer": answer, **evidence.as_json(), "pairs": pairs, "output": str(output)})
        return
    rows = [(p.image.id, p.image.label, p.share, p.support, p.n_patches, p.image.name) for p in photos]
    if format is Format.csv:
        print_csv([["id", "label", "share", "support", "n_patches", "path"], *rows])
        return
    n_for = int((evidence.support > 0).sum())
    versus = "" if evidence.against is None else f" rather than {evidence.against}"
    share_of = f"{n_for:,} of {len(evidence.support):,} patches"
    say(f"{output}: answer {answer}; {share_of} are evidence for {evidence.label}{versus}")
    if not rows:
        say("no labeled photo stands out: this model learned from all of them together")
        return
    listed = [(i, label, f"{100 * share:.1f} %", n, name) for i, label, share, _, n, name in rows[:MAX_LISTED]]
    print_table(["id", "label", "share of the evidence", "patches", "labeled photo"], listed)
    if len(rows) > MAX_LISTED:
        say(f"... and {len(rows) - MAX_LISTED} more labeled photos (--format json or csv: all)")


def info(
    model: ModelDir,
    format: Annotated[Format, typer.Option(help="How to print it.")] = Format.table,
    trust_network: TrustNetwork = False,
) -> None:
    """Show what is in a model: classes, images, descriptors, settings, size on disk and in memory."""
    from lnbnn.classifiers import load

    facts = load(model, trust_network=trust_network).fitted().facts()
    if format is Format.json:
        print_json(facts)
        return
    classes, settings, choice = facts.pop("classes"), facts.pop("settings"), facts.pop("choice")
    counts = [(name, *entry.values()) for name, entry in classes.items()]
    if format is Format.csv:
        print_csv([["label", "n_images", "n_descriptors"], *counts])
        return
    facts |= {name: human_bytes(facts[name]) for name in ("bytes_on_disk", "bytes_in_memory")}
    rows = [
        (name.removeprefix("n_").replace("_", " "), f"{value:,}" if isinstance(value, int) else value)
        for name, value in facts.items()
    ]
    rows += [(f"setting {name}", value) for name, value in settings.items()]
    print_table(["fact", "value"], rows, show_header=False)
    if choice is not None:
        print_choice(choice)
    print_table(["class", "images", "descriptors"], [(name, n, f"{d:,}") for name, n, d in counts])


def audit(
    model: ModelDir,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The report to write: .html with pictures, or .json.", show_default=False),
    ] = None,
    images: Annotated[
        list[Path] | None,
        typer.Option(help="A folder whose pictures may be shown in the report; may be repeated.", show_default=False),
    ] = None,
    min_probability: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="List labels that are wrong with at least this probability.")
    ] = 0.3,
    top: Annotated[int, typer.Option(min=1, help="Rows of each table.")] = 20,
    format: Annotated[Format, typer.Option(help="How to print it (csv: the labels that look wrong).")] = Format.table,
    jobs: Jobs = None,
    trust_network: TrustNetwork = False,
) -> None:
    """Look for mistakes in a model's images: wrong labels, near-duplicates, strangers, confused classes.

    Each image is classified as if the model had never seen it. Nothing is changed; lnbnn relabel and lnbnn remove do
    that.

        lnbnn audit model -o audit.html --images photos
    """
    from lnbnn.classifiers import load
    from lnbnn.files.atomic import atomic_path
    from lnbnn.files.outputs import check_file
    from lnbnn.trust.audit import audit as audit_model
    from lnbnn.trust.audit_page import write_audit_page

    ending = "" if output is None else output.suffix.lower()
    if output is not None:
        if ending not in {".html", ".htm", ".json"}:
            raise typer.BadParameter(f"expected a name that ends in .html or .json; got {output.name!r}")
        check_file(output)
    with progress_bars() as progress:
        classifier = load(model, trust_network=trust_network).set_params(n_jobs=jobs)
        found = audit_model(classifier, min_probability=min_probability, progress=progress)
    if format is Format.json:
        print_json(found.as_dict())
    elif format is Format.csv:
        names = ["id", "label", "suggested", "probability", "doubt", "closest_id", "name"]
        print_csv([names, *([getattr(suspect, name) for name in names] for suspect in found.suspects)])
    else:
        _print_audit(found, top)
    if output is None:
        return
    if ending == ".json":
        with atomic_path(output) as partial:
            partial.write_text(json_text(found.as_dict(), indent=1) + "\n", encoding="utf-8")
    else:
        n_missing = write_audit_page(output, found, model=str(model), folders=images or [])
        if n_missing:
            note(f"{n_missing} pictures are not in the report; say where they are: --images FOLDER")
    note(f"audit: {output}")


def _print_audit(found: Audit, top: int) -> None:
    wrong = [
        (s.id, s.label, s.suggested, f"{100 * s.probability:.0f} %", f"{s.closest_id} ({s.closest_label})", s.name)
        for s in found.suspects
    ]
    alike = [
        (
            d.id,
            d.label,
            d.other_id,
            d.other_label,
            "same bytes" if d.same_bytes else f"{100 * d.share:.0f} %",
            f"{d.name}, {d.other_name}",
        )
        for d in found.near_duplicates
    ]
    strange = [(s.id, s.label, s.rank, s.name) for s in found.strangers]
    confused = [(c.label, c.answer, c.n_images, f"{100 * c.share:.0f} %") for c in found.confused]
    for title, columns, rows in (
        ("labels that look wrong", ["id", "label", "looks like", "wrong with", "most like image", "image"], wrong),
        ("near-duplicates", ["id", "label", "id", "label", "alike", "images"], alike),
        ("images unlike any other", ["id", "label", "rank of its label", "image"], strange),
        ("confused classes", ["class", "answered as", "images", "share of the class"], confused),
    ):
        more = f", the first {top}" if len(rows) > top else ""
        say(f"{title}: {len(rows)}{more}")
        if rows:
            print_table(columns, rows[:top])
    say(f"{found.n_images} images of {found.n_classes} classes; {100 * found.accuracy:.1f} % get their own label")
