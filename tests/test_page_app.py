"""The application as a whole: what is sent to the browser holds no script of its own and nothing from another host."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from paging import BASE, SECRET, picture, quick_model, serving, teach
from starlette.testclient import TestClient

from lnbnn.errors import LnbnnError
from lnbnn.page.app import STATIC, make_app
from lnbnn.page.guard import Keys

PAGES = sorted(STATIC.glob("*.html"))
SCRIPTS = sorted(STATIC.glob("*.js"))


class Tags(HTMLParser):
    """All tags of a page with their attributes, and the text of its scripts."""

    def __init__(self):
        super().__init__()
        self.found, self.scripts, self._inside = [], "", False

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        self._inside = tag in ("script", "style")

    def handle_endtag(self, tag):
        self._inside = False

    def handle_data(self, data):
        self.scripts += data if self._inside else ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_inline_script_or_style_and_nothing_from_another_host(page):
    tags = Tags()
    tags.feed(page.read_text(encoding="utf-8"))
    assert tags.scripts.strip() == ""
    for tag, attributes in tags.found:
        assert not [name for name in attributes if name.startswith("on") or name == "style"], tag
        for name in ("src", "href", "action"):
            assert attributes.get(name, "/").startswith(("/", "#")), attributes
            assert not attributes.get(name, "/").startswith("//")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_scripts_parse_no_html_and_run_no_text(script):
    text = script.read_text(encoding="utf-8")
    for word in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "new Function",
        "DOMParser",
    ):
        assert word not in text, word
    assert not re.findall(r"https?://(?!www\.w3\.org/2000/svg)", text)
    for imported in re.findall(r'from "([^"]+)"', text):
        assert (STATIC / imported).is_file(), imported
    assert len(text.splitlines()) < 400


def test_styles_load_nothing():
    assert "url(" not in (STATIC / "style.css").read_text(encoding="utf-8")
    assert "@import" not in (STATIC / "style.css").read_text(encoding="utf-8")


def test_the_pages_are_served(tmp_path):
    with serving(tmp_path / "new") as page:
        assert "<main id=" in page.get("/").text
        assert "HTTP API" in page.get("/api").text
        assert page.get("/static/main.js").headers["content-type"].startswith("text/javascript")
        assert page.get("/login", follow_redirects=False).headers["location"] == "/"


def test_the_form_for_the_password(tmp_path):
    app = make_app(tmp_path / "new", Keys(password="correct horse"), new=quick_model)
    with TestClient(app, base_url=BASE) as page:
        assert "Password" in page.get("/").text
        wrong = page.post("/login", data={"password": "horse"})
        assert wrong.status_code == 403
        assert page.get("/api/model").status_code == 401
        assert "<main id=" in page.post("/login", data={"password": "correct horse"}).text
        assert page.get("/api/model").status_code == 200
        assert page.post("/login", files=[("password", ("x", b"y"))]).status_code == 400


def test_the_end_lets_go_of_everything(tmp_path):
    with serving(tmp_path / "new") as page:
        teach(page, "rows", [1, 2])
        page.post("/api/remove", json={"ids": [0]})
        page.post("/api/predict", content=picture("rows", 5))
        assert len(list((tmp_path / "new.photos").glob("*.png"))) == 2
        with pytest.raises(LnbnnError, match="another lnbnn serve"):
            make_app(tmp_path / "new", Keys(secret=SECRET))
    assert len(list((tmp_path / "new.photos").glob("*.png"))) == 1, "what was removed cannot come back any more"
    with serving(tmp_path / "new") as page:
        assert page.get("/api/model").json()["n_images"] == 1


def test_a_second_life_finds_photos_names_and_model(tmp_path):
    with serving(tmp_path / "new") as page:
        teach(page, "rows", [1, 2])
        teach(page, "columns", [3])
    (tmp_path / "moved").mkdir()
    for name in ("new", "new.photos"):
        (tmp_path / name).rename(tmp_path / "moved" / name)
    with serving(tmp_path / "moved" / "new") as page:
        images = page.get("/api/images").json()["images"]
        assert [image["name"] for image in images] == ["rows-1.png", "rows-2.png", "columns-3.png"]
        assert all(page.get(f"/api/images/{image['id']}/picture?size=1024").status_code == 200 for image in images)
        pairs = page.post("/api/explain", content=picture("rows", 9)).json()["pairs"]
        assert pairs
        assert all(pair["match"] is not None for pair in pairs)
