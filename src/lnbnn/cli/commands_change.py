"""Commands that change and maintain a model: add, remove, relabel, list, calibrate, check, merge, compact."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lnbnn.cli.console import (
    Cache,
    Force,
    Format,
    Jobs,
    ModelDir,
    Strict,
    TrustNetwork,
    human_bytes,
    note,
    open_cache,
    print_csv,
    print_json,
    print_table,
    progress_bars,
    report_skipped,
    say,
)

if TYPE_CHECKING:
    from lnbnn.references import Reference

__all__ = ["add", "calibrate", "check", "compact", "list_", "merge", "relabel", "remove"]

Ids = Annotated[
    list[str] | None,
    typer.Option(
        "--image", "-i", metavar="ID", help="An image's id, from lnbnn list; for several, 3,5 or repeat the option."
    ),
]
MoreIds = Annotated[list[str] | None, typer.Argument(help="More ids, after --image.", show_default=False)]
Label = Annotated[str, typer.Option("--label", "-l", help="The class, known or new.", show_default=False)]


def add(
    model: ModelDir,
    paths: Annotated[list[Path], typer.Argument(help="Image files, or folders of them.", show_default=False)],
    label: Label,
    format: Annotated[Format, typer.Option(help="How to print what was added.")] = Format.table,
    jobs: Jobs = None,
    cache: Cache = None,
    strict: Strict = False,
    trust_network: TrustNetwork = False,
) -> None:
    """Add images of one class, known or new, to a model.

    Duplicates (the same bytes) are skipped and listed. The change is atomic; others can use the model in the meantime.
    With --format json: {"added": [{"id": ..., "path": ..., "label": ..., "n_descriptors": ...}], "duplicates": [[path,
    id]], "skipped": [[path, reason]]}.

        lnbnn add model --label otter new-photos/*.jpg
    """
    from lnbnn.data.folder import find_images
    from lnbnn.model.changes import edit

    images, notes = find_images(paths)
    for text in notes:
        note(text)
    with progress_bars() as progress, edit(model, trust_network=trust_network) as editor:
        added = editor.add(
            images,
            [editor.label_of(label)] * len(images),
            on_error="raise" if strict else "skip",
            n_jobs=jobs,
            store=open_cache(cache),
            progress=progress,
        )
        n_images = len(editor.images)
    if format is Format.json:
        print_json(editor.as_json())
    elif format is Format.csv:
        _write_csv(added)
    elif added:
        ids = f"id {added[0].id}" if len(added) == 1 else f"ids {added[0].id} to {added[-1].id}"
        n_descriptors = sum(image.n_descriptors for image in added)
        say(
            f"{model}: added {_images(len(added))} to {label} ({ids}, {n_descriptors:,} descriptors); "
            f"{_images(n_images)} in all"
        )
    report_skipped(editor.skipped, len(images))
    if not added:
        note(f"{model}: nothing was added")
        if len(editor.duplicates) < len(editor.skipped):
            raise typer.Exit(1)


def remove(
    model: ModelDir,
    more: MoreIds = None,
    label: Annotated[
        str | None, typer.Option("--label", "-l", help="Remove a whole class.", show_default=False)
    ] = None,
    image: Ids = None,
    trust_network: TrustNetwork = False,
) -> None:
    """Remove images from a model, or a whole class; ids are never reused.

    lnbnn remove model --image 17

    lnbnn remove model --label otter
    """
    from lnbnn.model.changes import edit

    ids = _parse_ids(image, more)
    if (label is None) == (not ids):
        raise typer.BadParameter("give either --label NAME or --image ID")
    with edit(model, trust_network=trust_network) as editor:
        removed = editor.remove(ids if label is None else editor.ids_of(editor.label_of(label)))
        n_images = len(editor.images)
    say(f"{model}: removed {_images(len(removed))}; {_images(n_images)} left")


def relabel(
    model: ModelDir,
    label: Label,
    more: MoreIds = None,
    image: Ids = None,
    trust_network: TrustNetwork = False,
) -> None:
    """Correct the label of images in a model.

    lnbnn relabel model --image 17 --label otter
    """
    from lnbnn.model.changes import edit

    ids = _parse_ids(image, more)
    if not ids:
        raise typer.BadParameter("give at least one --image ID; lnbnn list shows them")
    with edit(model, trust_network=trust_network) as editor:
        changed = editor.relabel(ids, editor.label_of(label))
    say(f"{model}: {_images(len(changed))} now {label}")


def list_(
    model: ModelDir,
    label: Annotated[
        str | None, typer.Option("--label", "-l", help="Only images of this class.", show_default=False)
    ] = None,
    format: Annotated[Format, typer.Option(help="How to print them.")] = Format.table,
) -> None:
    """List the images of a model: id, class, number of descriptors, file.

    With --format json, one object per line:
    {"id": ..., "label": ..., "n_descriptors": ..., "path": ..., "sha256": ...}.
    """
    from lnbnn.errors import InvalidInputError
    from lnbnn.model.changes import list_images

    images = [image for image in list_images(model) if label is None or str(image.label) == label]
    if not images:
        raise InvalidInputError(f"no image of {model} has the label {label!r}.")
    if format is Format.json:
        for image in images:
            print_json(image.as_json())
    elif format is Format.csv:
        _write_csv(images)
    else:
        rows = [(image.id, image.label, f"{image.n_descriptors:,}", image.name) for image in images]
        print_table(["id", "class", "descriptors", "image"], rows)


list_.__name__ = "list"  # the command's name; a function of that name would hide Python's own


def check(
    model: ModelDir,
    format: Annotated[Format, typer.Option(help="How to print it (csv: the problems).")] = Format.table,
    trust_network: TrustNetwork = False,
) -> None:
    """Verify a model: every checksum, every count, and that it opens. The exit code is 1 if anything is wrong."""
    from lnbnn.model.changes import check_model

    with progress_bars() as progress:
        report = check_model(model, trust_network=trust_network, progress=progress)
    if format is Format.json:
        print_json(report.as_json())
    elif format is Format.csv:
        print_csv([["problem"], *([text] for text in report.problems)])
    elif not report.problems:
        say(
            f"{model}: whole; {report.n_files} files, {human_bytes(report.n_bytes)}, {_images(report.n_images)}, "
            f"{report.n_descriptors:,} descriptors"
        )
    for text in (*report.problems, *report.left_over):
        note(f"{model}: {text}")
    if report.problems:
        raise typer.Exit(1)


def merge(
    first: ModelDir,
    second: Annotated[Path, typer.Argument(help="Another model with the same settings.", show_default=False)],
    output: Annotated[Path, typer.Argument(help="The model folder to create.", show_default=False)],
    force: Force = False,
    trust_network: TrustNetwork = False,
) -> None:
    """Merge two models that have the same method and settings.

    Images of the first keep their ids; those of the second get new ones. Duplicates are kept once.
    """
    from lnbnn.model.changes import list_images
    from lnbnn.model.changes import merge as merge_models

    with progress_bars() as progress:
        duplicates = merge_models(
            first, second, output, overwrite=force, trust_network=trust_network, progress=progress
        )
    if duplicates:
        note(f"{_images(len(duplicates))} of {second} skipped: duplicates of images in {first}")
    images = list_images(output)
    say(f"{output}: {_images(len(images))} of {len({image.label for image in images})} classes")


def compact(model: ModelDir, trust_network: TrustNetwork = False) -> None:
    """Rewrite a model's files: drop what was removed, and index what was added.

    An index that has outgrown its training is retrained. Models do this by themselves when it pays off.
    """
    from lnbnn.model.changes import compact as compact_model

    with progress_bars() as progress:
        before, after = compact_model(model, trust_network=trust_network, progress=progress)
    say(f"{model}: {human_bytes(before)} before, {human_bytes(after)} now")


def calibrate(model: ModelDir, trust_network: TrustNetwork = False) -> None:
    """Calibrate a model's probabilities, and let it answer "unknown".

    Each image of the model is classified as if it had never been seen, and again as if its whole class had not. Then
    predict gives probabilities, and predict --reject can answer "unknown".
    """
    from lnbnn.model.changes import calibrate as calibrate_model
    from lnbnn.model.changes import list_images

    with progress_bars() as progress:
        calibrate_model(model, trust_network=trust_network, progress=progress)
    say(f"{model}: calibrated on {_images(len(list_images(model)))}")


def _images(n: int) -> str:
    return f"{n} image{'' if n == 1 else 's'}"


def _parse_ids(*given: list[str] | None) -> list[int]:
    ids = []
    for text in [part for texts in given for item in texts or [] for part in item.split(",") if part.strip()]:
        if not text.strip().isdecimal() or len(text.strip()) > 18:
            raise typer.BadParameter(f"expected ids of images, whole numbers; got {text[:60]!r}", param_hint="--image")
        ids.append(int(text))
    return ids


def _write_csv(images: list[Reference]) -> None:
    rows = [[image.id, image.label, image.n_descriptors, image.name] for image in images]
    print_csv([["id", "label", "n_descriptors", "path"], *rows])
