"""The page in a real Chromium, used as people use it. Skipped where there is none."""

from __future__ import annotations

import shutil

import pytest
from paging import KINDS, SECRET, bomb, find_browser, labels_of, live, picture, serving, teach, wait_for

from lnbnn.model.changes import edit, list_images

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: the page is not tried")
axe = pytest.importorskip("axe_playwright_python.sync_playwright")

BROWSER = find_browser()
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium is installed: the page is not tried in a browser")

VIEWS = ("ask", "teach", "photos", "audit", "good")
HOSTILE = "<img src=x onerror=document.title='owned'>"


@pytest.fixture(scope="module")
def browser():
    options = ["--no-sandbox", "--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream"]
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=BROWSER, args=options)
        yield chromium
        chromium.close()


def is_wrong(message):
    """An error on the console; not that of a picture just removed, or of a server that ends or has ended."""
    url = message.location.get("url", "")
    gone = "/picture?" in url and "404" in message.text
    ends = url.endswith(("/api/audit", "/api/evaluation")) and "503" in message.text
    return message.type in ("error", "warning") and not (gone or ends) and "net::ERR_" not in message.text


@pytest.fixture
def visit(browser):
    """``visit(address)``: the page there, let in; an error on its console fails the test."""
    contexts, wrong = [], []

    def open_page(address, **how):
        context = browser.new_context(**{"viewport": {"width": 1200, "height": 850}} | how)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(240_000)
        page.on("console", lambda message: is_wrong(message) and wrong.append(f"{message.text} {message.location}"))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        name, _, view = address.partition("#")
        page.goto(f"{name}?secret={SECRET}" + (f"#{view}" if view else ""))
        page.wait_for_selector("h1")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert wrong == []


@pytest.fixture
def copied(model, tmp_path):
    return shutil.copytree(model, tmp_path / "copied")


@pytest.fixture
def page(copied, visit):
    """The page of nine photos of three classes."""
    with live(copied) as address:
        yield visit(address)


def go(page, view):
    page.evaluate(f"location.hash = '#{view}'")
    page.wait_for_selector(f"main.{view} h1")


def sent(kind, seed):
    return {"name": f"{kind}-{seed}.png", "mimeType": "image/png", "buffer": picture(kind, seed)}


def drop(page, selector, files):
    """Drop files on an element, as the browser hands them over."""
    page.evaluate(
        """([selector, files]) => {
            const transfer = new DataTransfer();
            for (const [name, bytes] of files)
                transfer.items.add(new File([new Uint8Array(bytes)], name, {type: "image/png"}));
            const target = document.querySelector(selector);
            for (const kind of ["dragenter", "dragover", "drop"])
                target.dispatchEvent(new DragEvent(kind, {dataTransfer: transfer, bubbles: true, cancelable: true}));
        }""",
        [selector, [[name, list(content)] for name, content in files]],
    )


def so(page, condition):
    """Wait until something is so in the page; the page's own policy forbids Playwright's way."""
    wait_for(lambda: page.evaluate(condition))


def make_class(page, name):
    page.fill("#new-class", name)
    page.press("#new-class", "Enter")
    page.locator("section.class h2", has_text=name).wait_for()


def labels(path):
    return {image.id: image.label for image in list_images(path)}


# ---- teach and ask ---------------------------------------------------------------------------------------------------


def test_teach_two_classes_from_nothing_ask_correct_and_undo(visit, tmp_path):
    model = tmp_path / "mine"
    with live(model) as address:
        page = visit(address)
        assert page.locator("h1").inner_text() == "Teach", "an empty model begins there"
        make_class(page, "rows")
        drop(page, '[data-label="rows"]', [(f"r{n}.png", picture("rows", n)) for n in (1, 2, 3)])
        page.locator('[data-label="rows"] a', has_text="3 photos").wait_for()
        make_class(page, "columns")
        chooser = page.locator('[data-label="columns"] input[type=file]').first
        chooser.set_input_files([sent("columns", 1), sent("columns", 2)])
        page.locator('[data-label="columns"] a', has_text="2 photos").wait_for()
        assert labels(model) == {0: "rows", 1: "rows", 2: "rows", 3: "columns", 4: "columns"}

        go(page, "ask")
        drop(page, ".drop", [("new.png", picture("rows", 50))])
        page.locator(".headline h2", has_text="rows").wait_for()
        page.locator(".evidence-photo svg.pairs").first.wait_for()
        assert page.locator("svg.pairs line.mark").count() > 0, "patch to patch, with lines"
        page.locator("button.rank", has_text="columns").click()
        page.locator(".legend", has_text="blue: for columns").wait_for()

        drop(page, ".drop", [("odd.png", picture("checks", 51))])
        page.locator(".photo figcaption", has_text="odd.png").wait_for()
        page.get_by_role("button", name="No, it is …").click()
        page.get_by_role("combobox", name="The right class").fill("checks")
        page.keyboard.press("Enter")
        page.locator(".taught", has_text="Taught as checks").wait_for()
        assert labels(model)[5] == "checks"
        page.locator("#undo").click()
        page.locator(".toast", has_text="Undone: adding 1 photo").wait_for()
        assert sorted(labels(model).values()) == ["columns", "columns", "rows", "rows", "rows"]


def test_yes_teaches_and_undo_of_the_message_takes_it_back(page, copied):
    go(page, "ask")
    drop(page, ".drop", [("new.png", picture("rows", 50))])
    page.get_by_role("button", name="Yes, rows").click()
    page.locator(".taught").wait_for()
    assert len(labels(copied)) == 10
    page.locator(".toast button", has_text="Undo").click()
    page.get_by_role("button", name="Yes, rows").wait_for()
    wait_for(lambda: len(labels(copied)) == 9)


def test_folders_become_classes_and_files_that_are_no_photos_are_named(page, copied):
    go(page, "teach")
    chooser = page.locator("form.new input[type=file]")
    page.evaluate("document.querySelector('form.new input[type=file]').removeAttribute('webkitdirectory')")
    folder = copied.parent / "folder"
    for kind in ("dots", "waves"):
        (folder / kind).mkdir(parents=True)
        (folder / kind / "1.png").write_bytes(picture("checks" if kind == "dots" else "rows", 61))
    page.evaluate("document.querySelector('form.new input[type=file]').webkitdirectory = true")
    chooser.set_input_files(folder)
    page.locator('[data-label="waves"] a', has_text="1 photo").wait_for()
    assert sorted(set(labels(copied).values())) == ["checks", "columns", "dots", "rows", "waves"]
    drop(
        page,
        '[data-label="dots"]',
        [("bad.png", b"no picture"), ("bomb.png", bomb()), ("good.png", picture("checks", 62))],
    )
    page.locator(".errors summary", has_text="2 files could not be used").wait_for()
    assert "bad.png: not a picture" in page.locator(".errors").inner_text()
    assert "bomb.png: more than" in page.locator(".errors").inner_text()
    page.locator('[data-label="dots"] a', has_text="2 photos").wait_for()


def test_paste_and_camera(page, copied):
    go(page, "ask")
    page.evaluate(
        """(bytes) => {
            const transfer = new DataTransfer();
            transfer.items.add(new File([new Uint8Array(bytes)], "pasted.png", {type: "image/png"}));
            document.dispatchEvent(new ClipboardEvent("paste", {clipboardData: transfer, bubbles: true}));
        }""",
        list(picture("columns", 52)),
    )
    page.locator(".headline h2", has_text="columns").wait_for()
    page.get_by_role("button", name="Camera").click()
    so(page, "document.querySelector('dialog video')?.videoWidth > 0")
    page.get_by_role("button", name="Take photo").click()
    page.locator(".photo figcaption", has_text="camera-").wait_for()
    page.locator(".headline h2").wait_for()
    assert page.locator("dialog").count() == 0


def test_unknown_by_the_slider(page):
    go(page, "ask")
    wait_for(lambda: page.evaluate("fetch('/api/model').then((r) => r.json()).then((m) => m.can_reject)"))
    drop(page, ".drop", [("new.png", picture("rows", 53))])
    page.locator(".headline h2", has_text="rows").wait_for()
    so(page, "!document.getElementById('unknown').disabled")
    page.locator("#unknown").focus()
    for _ in range(6):
        page.keyboard.press("ArrowRight")
    page.locator(".unknown output", has_text="1 % is accepted").wait_for()
    page.locator(".headline h2", has_text="unknown").wait_for()
    page.keyboard.press("Home")
    page.locator(".headline h2", has_text="rows").wait_for()


# ---- photos ----------------------------------------------------------------------------------------------------------


def test_relabel_remove_and_undo_by_keyboard(page, copied):
    go(page, "photos")
    page.locator(".tile").first.wait_for()
    page.locator(".gallery").focus()
    page.keyboard.press("Home")
    page.keyboard.press("Space")
    page.keyboard.press("Shift+ArrowRight")
    page.locator(".toolbar", has_text="2 selected").wait_for()
    page.keyboard.press("r")
    page.keyboard.type("stripes")
    page.keyboard.press("Enter")
    page.locator(".gallery-head", has_text="stripes").wait_for()
    assert sorted(labels(copied).values()).count("stripes") == 2
    page.keyboard.press("Control+z")
    wait_for(lambda: "stripes" not in labels(copied).values())
    so(page, "!document.querySelector('.gallery-box').textContent.includes('stripes')")
    page.locator(".gallery").focus()
    page.keyboard.press("End")
    page.keyboard.press("Space")
    page.keyboard.press("Delete")
    wait_for(lambda: len(labels(copied)) == 8)
    page.keyboard.press("Control+z")
    wait_for(lambda: len(labels(copied)) == 9)


def test_select_by_mouse_and_open_one(page):
    go(page, "photos")
    tiles = page.locator(".tile")
    tiles.first.wait_for()
    tiles.nth(0).click()
    tiles.nth(4).click(modifiers=["Shift"])
    tiles.nth(2).click(modifiers=["Control"])
    page.locator(".toolbar", has_text="4 selected").wait_for()
    tiles.nth(1).dblclick()
    page.locator("dialog .neighbor").first.wait_for()
    assert "Without this photo the model would say" in page.locator("dialog").inner_text()
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog", state="detached")


def test_of_many_photos_only_those_in_sight_are_in_the_document(visit, tmp_path):
    with serving(tmp_path / "many") as client:
        for kind in KINDS:
            teach(client, kind, range(32))
        assert len(labels_of(client)) == 96
    with live(tmp_path / "many") as address:
        page = visit(f"{address}#photos", viewport={"width": 420, "height": 500})
        page.locator(".tile").first.wait_for()
        most = 0
        for _ in range(12):
            page.mouse.wheel(0, 700)
            page.wait_for_timeout(40)
            most = max(most, page.locator(".tile").count())
        assert 0 < most < 72
        page.locator(".gallery").focus()
        page.keyboard.press("End")
        page.locator('.tile[aria-posinset="96"]').wait_for()


# ---- audit, how good, tabs -------------------------------------------------------------------------------------------


def test_audit_by_keys_and_it_is_remembered(copied, visit):
    with edit(copied) as editor:
        editor.relabel(0, "rows")
    with live(copied) as address:
        page = visit(f"{address}#audit")
        entry = page.locator("article.entry", has_text="Labeled rows, looks like checks")
        entry.focus()
        page.keyboard.press("a")
        entry.wait_for(state="detached")
        wait_for(lambda: labels(copied)[0] == "checks")
        page.keyboard.press("Control+z")
        wait_for(lambda: labels(copied)[0] == "rows")
        update = page.get_by_role("button", name="The model has changed: update")
        wait_for(
            lambda: entry.count() or (update.is_visible() and update.click())
        )  # again, if it was of the version before
        assert "suggestion" in page.locator("main").inner_text()


def test_what_is_kept_in_the_audit_is_not_asked_again(copied, visit):
    with edit(copied) as editor:
        editor.relabel(0, "rows")
    with live(copied) as address:
        page = visit(f"{address}#audit")
        entry = page.locator("article.entry", has_text="Labeled rows, looks like checks")
        entry.focus()
        page.keyboard.press("k")
        entry.wait_for(state="detached")
        page.reload()
        page.locator("main", has_text="1 already decided").wait_for()
        assert entry.count() == 0
        assert labels(copied)[0] == "rows"


def test_how_good_and_the_photos_of_a_cell(page):
    go(page, "good")
    page.locator(".cell").first.wait_for()
    assert page.locator(".figure").first.inner_text().split()[1] == "%"
    page.locator(".cell").first.click()
    page.locator("dialog .neighbor img").first.wait_for()
    assert page.locator("dialog .neighbor").count() >= 1


def test_tabs_and_the_command_line_see_each_others_changes(copied, visit):
    with live(copied) as address:
        first, second = visit(f"{address}#teach"), visit(f"{address}#photos")
        second.locator(".tile").first.wait_for()
        make_class(first, "waves")
        drop(first, '[data-label="waves"]', [("w.png", picture("rows", 70))])
        second.locator(".gallery-head", has_text="waves").wait_for()
        second.locator("#model-size", has_text="4 classes · 10 photos").wait_for()
        with edit(copied) as editor:
            editor.relabel(0, "from the command line")
        first.locator("section.class h2", has_text="from the command line").wait_for()
        second.locator(".gallery-head", has_text="from the command line").wait_for()


# ---- everyone --------------------------------------------------------------------------------------------------------


def test_names_of_every_kind_are_shown_as_text(visit, tmp_path):
    with serving(tmp_path / "odd") as client:
        teach(client, "rows", [1, 2], HOSTILE)
        teach(client, "columns", [1, 2], "\u202egnp.exe\u200b")
    with live(tmp_path / "odd") as address:
        page = visit(address)
        for view in VIEWS:
            go(page, view)
            if view in ("audit", "good"):
                page.locator("main section").first.wait_for()
        go(page, "ask")
        drop(page, ".drop", [(HOSTILE + ".png", picture("rows", 50))])
        page.locator(".headline h2", has_text=HOSTILE).wait_for()
        assert "owned" not in page.title()
        go(page, "teach")
        assert "\\u202egnp.exe\\u200b" in page.locator("main").inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(copied, visit, scheme):
    with live(copied) as address:
        page = visit(address, color_scheme=scheme)
        checker = axe.Axe()
        for view in VIEWS:
            go(page, view)
            if view == "ask":
                drop(page, ".drop", [("a.png", picture("rows", 80)), ("b.png", picture("checks", 81))])
                page.locator(".evidence-photo svg.pairs").first.wait_for()
            elif view == "photos":
                page.locator(".tile").first.click()
            elif view in ("audit", "good"):
                page.locator("main section").first.wait_for()
            found = checker.run(page)
            assert found.violations_count == 0, f"{view}: {found.generate_report()}"
        go(page, "photos")
        page.locator(".tile").first.dblclick()
        page.locator("dialog .neighbor").first.wait_for()
        found = checker.run(page)
        assert found.violations_count == 0, found.generate_report()
        page.goto(f"{address}api")
        found = checker.run(page)
        assert found.violations_count == 0, found.generate_report()


def test_at_the_width_of_a_phone_nothing_is_cut_off(copied, visit):
    with live(copied) as address:
        page = visit(address, viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True)
        for view in VIEWS:
            go(page, view)
            if view == "ask":
                drop(page, ".drop", [("a.png", picture("rows", 80)), ("b.png", picture("checks", 81))])
                page.locator(".evidence-photo svg.pairs").first.wait_for()
            elif view in ("audit", "good"):
                page.locator("main section").first.wait_for()
            assert page.evaluate("document.documentElement.scrollWidth") <= 360, view
        go(page, "photos")
        page.locator(".tile").first.tap()
        page.locator(".toolbar", has_text="1 selected").wait_for()
