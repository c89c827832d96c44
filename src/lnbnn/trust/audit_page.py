"""The HTML report of an audit, with pictures: one self-contained file."""

from __future__ import annotations

import base64
import os
from collections.abc import Sequence

from lnbnn.errors import ImageReadError
from lnbnn.escaping import html_text, shell_word
from lnbnn.files.atomic import atomic_path
from lnbnn.files.images import jpeg_thumbnail
from lnbnn.trust.audit import Audit
from lnbnn.trust.photos import is_inside

__all__ = ["audit_page", "write_audit_page"]

_SIDE = 150
_MAX_SHOWN = 200

_STYLE = """
body { font: 15px/1.4 system-ui, sans-serif; color: #222; background: #fafafa; }
body { margin: 0 auto; max-width: 1180px; padding: 1.5em }
h1 { font-size: 1.5em; margin: 0 0 .2em }
h2 { font-size: 1.15em; margin: 2em 0 .2em }
p { margin: .2em 0 .8em; color: #555 }
.grid { display: grid; grid-template-columns: repeat(auto-fill, minmax(340px, 1fr)); gap: 12px }
.card { background: #fff; border: 1px solid #ddd; border-radius: 8px; padding: 10px; overflow-wrap: anywhere }
.pair { display: flex; gap: 8px }
figure { margin: 0; flex: 1; min-width: 0 }
.picture { height: 150px; background: #f0f0f0; border-radius: 4px; color: #888 }
.picture { display: flex; align-items: center; justify-content: center }
img { max-width: 100%; max-height: 150px; display: block }
figcaption { font-size: 12px; color: #555; margin-top: 3px }
figcaption, span, code, td { white-space: pre-wrap }
.wrong { color: #b3261e; font-weight: 600 }
.right { color: #1b6e3c; font-weight: 600 }
.bar { height: 7px; background: #e6e6e6; border-radius: 4px; margin: 2px 0 6px }
.bar div { height: 100%; border-radius: 4px }
code { font-size: 12px; background: #f0f0f0; padding: 2px 5px; border-radius: 4px }
code { display: inline-block; margin-top: 4px }
table { border-collapse: collapse; background: #fff }
td, th { border: 1px solid #ddd; padding: 4px 10px; text-align: left }
"""


def write_audit_page(
    path: str | os.PathLike[str],
    audit: Audit,
    *,
    model: str = "model",
    folders: Sequence[str | os.PathLike[str]] = (),
) -> int:
    """Write the page that :func:`audit_page` makes, atomically; returns how many pictures are missing."""
    text, n_missing = audit_page(audit, model=model, folders=folders)
    with atomic_path(path) as partial:
        partial.write_text(text, encoding="utf-8")
    return n_missing


def audit_page(
    audit: Audit, *, model: str = "model", folders: Sequence[str | os.PathLike[str]] = ()
) -> tuple[str, int]:
    """The page as text, and how many pictures are missing.

    Pictures are read from the paths in the model, but only within the given folders: a model may name any path. A
    picture that is missing, or elsewhere, is shown by name.
    """
    pictures, title = _Pictures(folders), f"Audit of {html_text(model)}"
    suspects, duplicates, strangers = _cards(audit, shell_word(model), pictures)
    confused = [
        "".join(f"<td>{html_text(cell)}</td>" for cell in (c.label, c.answer, c.n_images, f"{100 * c.share:.0f} %"))
        for c in audit.confused[:_MAX_SHOWN]
    ]
    parts = [
        "<!doctype html><html lang='en'><meta charset='utf-8'><meta name='viewport' content='width=device-width'>",
        f"<title>{title}</title><style>{_STYLE}</style>",
        f"<h1>{title}</h1>",
        f"<p>{audit.n_images:,} images of {audit.n_classes:,} classes. Each was classified as if it had never been "
        f"seen: {100 * audit.accuracy:.1f} % got their own label.</p>",
    ]
    if pictures.n_missing:
        command = _command(f"audit {shell_word(model)} -o audit.html --images FOLDER")
        parts.append(
            f"<p>{pictures.n_missing} pictures are not shown; only those in the folders given are. {command}</p>"
        )
    for heading, what, cards, n_found in (
        (
            "Labels that look wrong",
            "Without the image, the model answers another class. The bar shows how likely the label is to be wrong. "
            "Left: the image; right: the most similar one in the model.",
            suspects,
            len(audit.suspects),
        ),
        (
            "Near-duplicates",
            "One of the two contains most of the other; pairs with different labels come first.",
            duplicates,
            len(audit.near_duplicates),
        ),
        (
            "Images unlike any other",
            "No class stands out for them, least of all their own.",
            strangers,
            len(audit.strangers),
        ),
    ):
        shown = "" if n_found <= len(cards) else f" The first {len(cards)} of {n_found} are shown."
        parts.append(f"<h2>{heading} ({n_found})</h2><p>{what}{shown}</p>")
        parts.append(f"<div class='grid'>{''.join(cards)}</div>" if cards else "<p>None.</p>")
    table = "<table><tr><th>class</th><th>answered as</th><th>images</th><th>share of the class</th></tr>"
    rows = "".join(f"<tr>{row}</tr>" for row in confused)
    parts += ["<h2>Confused classes</h2>", f"{table}{rows}</table>" if rows else "<p>None.</p>", "</html>"]
    return "\n".join(parts) + "\n", pictures.n_missing


def _cards(audit: Audit, model: str, pictures: _Pictures) -> tuple[list[str], list[str], list[str]]:
    """A card for each suspect, near-duplicate and stranger that is shown."""
    suspects = []
    for suspect in audit.suspects[:_MAX_SHOWN]:
        share = f"{100 * suspect.probability:.0f}"
        closest = f"{html_text(suspect.closest_label)}, image {suspect.closest_id}"
        suspects.append(
            f"<div class='card'><div class='pair'>{pictures.figure(suspect.name, f'image {suspect.id}')}"
            f"{pictures.figure(suspect.closest_name, closest)}</div>"
            f"<div>label <span class='wrong'>{html_text(suspect.label)}</span>, {share} % likely to be wrong</div>"
            f"<div class='bar' title='{share} %'><div style='width:{share}%;background:#b3261e'></div></div>"
            f"<div>looks like <span class='right'>{html_text(suspect.suggested)}</span></div>"
            f"{_command(f'relabel {model} --image {suspect.id} --label {shell_word(suspect.suggested)}')}</div>"
        )
    duplicates = []
    for pair in audit.near_duplicates[:_MAX_SHOWN]:
        span = f"<span class='{'wrong' if pair.across_classes else 'right'}'>"
        how = "the same bytes" if pair.same_bytes else f"{100 * pair.share:.0f} % of the descriptors"
        duplicates.append(
            f"<div class='card'><div class='pair'>{pictures.figure(pair.name, f'image {pair.id}')}"
            f"{pictures.figure(pair.other_name, f'image {pair.other_id}')}</div>"
            f"<div>{span}{html_text(pair.label)}</span> and {span}{html_text(pair.other_label)}</span>, {how}</div>"
            f"{_command(f'remove {model} --image {pair.other_id}')}</div>"
        )
    strangers = [
        f"<div class='card'>{pictures.figure(stranger.name, f'image {stranger.id}')}"
        f"<div>label {html_text(stranger.label)}, number {stranger.rank} among the classes</div>"
        f"{_command(f'remove {model} --image {stranger.id}')}</div>"
        for stranger in audit.strangers[:_MAX_SHOWN]
    ]
    return suspects, duplicates, strangers


def _command(words: str) -> str:
    return f"<code>{html_text(f'lnbnn {words}')}</code>"


class _Pictures:
    """Small copies of the pictures that lie in given folders, links resolved; counts those it has no copy of."""

    def __init__(self, folders: Sequence[str | os.PathLike[str]]) -> None:
        self._folders = folders
        self.n_missing = 0

    def figure(self, name: str, caption: str) -> str:
        try:
            if not is_inside(name, self._folders):
                raise ImageReadError(f"{name}: not in a folder that was named.")
            data = base64.b64encode(jpeg_thumbnail(os.path.realpath(name), _SIDE)).decode("ascii")
            picture = f"<img alt='' src='data:image/jpeg;base64,{data}'>"
        except ImageReadError:
            self.n_missing += 1
            picture = "picture not found"
        file = html_text(os.path.basename(name))
        return f"<figure><div class='picture'>{picture}</div><figcaption>{caption}<br>{file}</figcaption></figure>"
