"""The command that looks for mistakes in a model's images: audit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lnbnn.cli.arguments import Jobs, ModelDir, TrustNetwork
from lnbnn.cli.console import Format, ProgressBars, note, print_csv, print_json, print_table, say
from lnbnn.escaping import json_text

if TYPE_CHECKING:
    from lnbnn.trust.audit import Audit, NearDuplicate

__all__ = ["audit"]


def audit(
    model: ModelDir,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="A page of pictures to write (.html), or .json.", show_default=False),
    ] = None,
    images: Annotated[
        list[Path] | None,
        typer.Option(help="A folder whose pictures may be on the page; several: repeated.", show_default=False),
    ] = None,
    min_probability: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="List labels that are at least this probably wrong.")
    ] = 0.3,
    top: Annotated[int, typer.Option(min=1, help="Rows of each table.")] = 20,
    format: Annotated[Format, typer.Option(help="How to print it (csv: the labels that look wrong).")] = Format.table,
    jobs: Jobs = None,
    trust_network: TrustNetwork = False,
) -> None:
    """Look for mistakes in a model's images: wrong labels, near-duplicates, strangers, confused classes.

    Each image is looked up as if the model did not hold it. Nothing is changed; lnbnn relabel and lnbnn remove do that.

        lnbnn audit model -o audit.html --images photos
    """
    from lnbnn.classifiers import load
    from lnbnn.files.atomic import atomic_path
    from lnbnn.files.outputs import check_file
    from lnbnn.trust.audit import audit as audit_model
    from lnbnn.trust.audit_page import write_audit_page

    if output is not None and output.suffix.lower() not in {".html", ".htm", ".json"}:
        raise typer.BadParameter(f"expected a name that ends in .html or .json; got {output.name!r}")
    if output is not None:
        check_file(output)
    with ProgressBars() as progress:
        classifier = load(model, trust_network=trust_network).set_params(n_jobs=jobs)
        found = audit_model(classifier, min_probability=min_probability, progress=progress)
    if format is Format.json:
        print_json(found.as_dict())
    elif format is Format.csv:
        names = ["id", "label", "suggested", "probability", "doubt", "closest_id", "name"]
        print_csv([names, *([getattr(suspect, name) for name in names] for suspect in found.suspects)])
    else:
        _print_audit(found, top)
    if output is not None:
        if output.suffix.lower() == ".json":
            with atomic_path(output) as partial:
                partial.write_text(json_text(found.as_dict(), indent=1) + "\n", encoding="utf-8")
        else:
            n_missing = write_audit_page(output, found, model=str(model), folders=images or [])
            if n_missing:
                note(f"{n_missing} pictures are not on the page; name the folders they are in: --images FOLDER")
        note(f"audit: {output}")


def _print_audit(found: Audit, top: int) -> None:
    wrong = [
        (s.id, s.label, s.suggested, f"{100 * s.probability:.0f} %", f"{s.closest_id} ({s.closest_label})", s.name)
        for s in found.suspects
    ]
    alike = [
        (d.id, d.label, d.other_id, d.other_label, _alike(d), f"{d.name}, {d.other_name}")
        for d in found.near_duplicates
    ]
    strange = [(s.id, s.label, s.rank, s.name) for s in found.strangers]
    confused = [(c.label, c.answer, c.n_images, f"{100 * c.share:.0f} %") for c in found.confused]
    tables: list[tuple[str, list[str], Sequence[tuple[object, ...]]]] = [
        ("labels that look wrong", ["id", "label", "looks like", "wrong with", "most like image", "image"], wrong),
        ("near-duplicates", ["id", "label", "id", "label", "alike", "images"], alike),
        ("images that nothing resembles", ["id", "label", "rank of its label", "image"], strange),
        ("classes that are confused", ["class", "taken for", "images", "share of the class"], confused),
    ]
    for title, columns, rows in tables:
        more = f", the first {top}" if len(rows) > top else ""
        say(f"{title}: {len(rows)}{more}")
        if rows:
            print_table(columns, rows[:top])
    say(f"{found.n_images} images of {found.n_classes} classes; {100 * found.accuracy:.1f} % got their label back")


def _alike(pair: NearDuplicate) -> str:
    return "same bytes" if pair.same_bytes else f"{100 * pair.share:.0f} %"
