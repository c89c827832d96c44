"""Follow every link of the built site; nothing may come from another host: `python docs/check_site.py site`."""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src", "video": "src"}
NOT_LOADED = ("canonical", "prev", "next", "alternate")  # links that a browser does not fetch


class Page(HTMLParser):
    """What a page links to, what it loads, and the places that can be linked to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.places: set[str] = {""}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.places |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        elif tag in LOADED and LOADED[tag] in found and found.get("rel") not in NOT_LOADED:
            self.loads.append(found[LOADED[tag]])


def problems(site: Path) -> list[str]:
    """One line per link that leads nowhere, and per file that would come from elsewhere."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html") if path.name != "404.html"}
    found = []
    for path, page in pages.items():
        name = path.relative_to(site)
        found += [f"{name}: loads {address}" for address in page.loads if is_elsewhere(address)]
        for address in [*page.links, *page.loads]:
            if is_elsewhere(address) or address.startswith(("mailto:", "data:", "javascript:")):
                continue
            parts = urlsplit(address)
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.is_file():
                found.append(f"{name}: {address} is not there")
            elif target in pages and unquote(parts.fragment) not in pages[target].places:
                found.append(f"{name}: {address}: no such place in the page")
    for sheet in site.rglob("*.css"):
        text = sheet.read_text(encoding="utf-8")
        found += [f"{sheet.name}: loads {one}" for one in re.findall(r"url\(['\"]?(https?://[^)'\"]+)|@import", text)]
    return found


def is_elsewhere(address: str) -> bool:
    return address.startswith(("http:", "https:", "//"))


if __name__ == "__main__":
    wrong = problems(Path(sys.argv[1]).resolve())
    print("\n".join(wrong) or "every link leads somewhere, and nothing is loaded from elsewhere")
    sys.exit(bool(wrong))
