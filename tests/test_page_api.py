"""The HTTP API: replies in the shapes of the command line, every request that makes no sense refused in one line."""

from __future__ import annotations

import json
import re
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from paging import BASE, SECRET, bomb, files, labels_of, noise, picture, serving, teach, wait_for
from starlette.testclient import TestClient

from lnbnn.errors import ImageReadError, InvalidInputError, LnbnnError, ModelInUseError
from lnbnn.model.changes import check_model, edit
from lnbnn.page.api import Api
from lnbnn.page.app import STATIC, make_app
from lnbnn.page.guard import Keys, Limits
from lnbnn.page.replies import Refused, as_reply, status_of
from lnbnn.page.reports import REPORTS, Reports


@pytest.fixture
def copied(model, tmp_path):
    return shutil.copytree(model, tmp_path / "copied")


@pytest.fixture
def client(copied):
    """The page of a model of nine photos, three of each of three classes."""
    with serving(copied) as page:
        yield page


@pytest.fixture
def empty(tmp_path):
    with serving(tmp_path / "new") as page:
        yield page


# ---- replies ---------------------------------------------------------------------------------------------------------


def test_replies_hold_any_text_and_no_number_that_is_none():
    reply = as_reply({"a": [float("nan"), float("inf"), 1.5], "b": "\udcff</script>\u2028"})
    assert json.loads(reply.body) == {"a": [None, None, 1.5], "b": "\udcff</script>\u2028"}
    assert reply.body.isascii()


def test_each_error_has_its_status():
    errors = [ModelInUseError(), ImageReadError(), InvalidInputError(), LnbnnError(), MemoryError(), OSError()]
    assert [status_of(error) for error in errors] == [503, 422, 422, 409, 503, 500]
    assert status_of(Refused(418, "tea")) == 418
    assert status_of(KeyError()) == 500


# ---- asking ----------------------------------------------------------------------------------------------------------


def test_one_photo_as_the_body(client, copied, run, tmp_path):
    (tmp_path / "new.png").write_bytes(picture("columns", 77))
    reply = client.post(
        "/api/predict?name=new.png&top=3", content=picture("columns", 77), headers={"Content-Type": "image/png"}
    )
    said = json.loads(run("predict", copied, tmp_path / "new.png", "--format", "json", "--top", "3").out)
    found = reply.json()
    assert (found["label"], found["ranking"]) == (said["label"], said["ranking"])
    assert set(said) <= set(found)
    assert found["path"] == "new.png"


def test_several_photos_in_a_form_and_bad_ones_among_them(client):
    bad = [("photo", ("no.jpg", b"no picture")), ("photo", ("none.jpg", b"")), ("photo", ("bomb.png", bomb()))]
    found = client.post("/api/predict", files=[*files("rows", [71]), *bad, *files("checks", [72])]).json()
    assert [entry["label"] for entry in found] == ["rows", None, None, None, "checks"]
    assert [entry["path"] for entry in found] == ["rows-71.png", "no.jpg", "none.jpg", "bomb.png", "checks-72.png"]
    assert all(entry["error"].startswith(entry["path"]) for entry in found[1:4])


def test_why_by_the_photo_that_was_asked_about(client):
    asked = client.post("/api/predict", content=picture("rows", 78)).json()
    found = client.post("/api/explain", params={"photo": asked["photo"], "against": "checks"}).json()
    assert found["label"] == asked["label"]
    assert found["against"] == "checks"
    assert found["photo"] == asked["photo"]
    assert client.post("/api/explain", content=picture("rows", 78)).json()["ranking"] == found["ranking"]
    assert client.post("/api/explain", params={"photo": "0" * 64}).status_code == 404
    assert client.post("/api/explain", params={"photo": asked["photo"], "label": "otter"}).status_code == 422


def test_unknown_at_a_rate(client):
    wait_for(lambda: client.get("/api/model").json()["can_reject"])
    strange = client.post("/api/predict", params={"reject": "0.01"}, content=noise()).json()
    assert strange["is_unknown"]
    assert strange["label"] == "unknown"
    assert strange["false_accept_rate"] > 0.01
    sure = client.post("/api/predict", params={"reject": "0.999"}, content=picture("rows", 79)).json()
    assert sure["label"] == "rows"
    assert 0 < sure["probability"] <= 1
    assert len(sure["probabilities"]) == 3


# ---- looking ---------------------------------------------------------------------------------------------------------


def test_the_model_and_its_photos_as_the_command_line_lists_them(client, copied, run):
    facts = json.loads(run("info", copied, "--format", "json").out)
    found = client.get("/api/model").json()
    for name in ("classes", "n_images", "n_classes", "method", "settings"):
        assert found[name] == facts[name]
    listed = [json.loads(line) for line in run("list", copied, "--format", "json").out.splitlines()]
    images = client.get("/api/images").json()["images"]
    assert [{key: image[key] for key in listed[0]} for image in images] == listed
    assert images[0]["name"] == "photo_0.png"
    assert [image["label"] for image in client.get("/api/images?label=rows").json()["images"]] == ["rows"] * 3


def test_one_photo_without_itself(client):
    found = client.get("/api/images/0").json()
    assert found["answer"] == "checks"
    assert {neighbor["id"] for neighbor in found["neighbors"]} & {1, 2}
    assert client.get("/api/images/99").status_code == 422
    assert client.get("/api/images/x").status_code == 404


def test_pictures_are_reencoded_never_sent_as_they_came(client):
    image = client.get("/api/images").json()["images"][0]
    for size, side in (("64", 256), ("256", 256), ("1000", 1024)):
        reply = client.get(f"/api/images/0/picture?size={size}")
        assert reply.headers["content-type"] == "image/jpeg"
        assert reply.content[:3] == b"\xff\xd8\xff"
        assert side >= 110
    named = client.get(f"/api/images/0/picture?of={image['sha256'][:12]}")
    assert "immutable" in named.headers["cache-control"]
    assert client.get("/api/images/0/picture").headers["cache-control"] == "no-store"
    assert client.get("/api/images/99/picture").status_code == 404


def test_the_audit_and_the_evaluation(client, copied, run):
    found = client.get("/api/audit").json()
    said = json.loads(run("audit", copied, "--format", "json").out)
    plain = {
        key: [{k: v for k, v in entry.items() if k != "decision"} for entry in found[key]]
        for key in ("suspects", "near_duplicates", "strangers")
    }
    assert plain | {"confused": found["confused"]} == {key: said[key] for key in [*plain, "confused"]}
    good = client.get("/api/evaluation").json()
    assert good["n_images"] == 9
    assert len(good["images"]) == 9
    assert sum(map(sum, good["confusion"])) == 9


def test_a_report_asked_for_before_a_change_is_on_the_model_after_it(client, monkeypatch):
    go_on, asked, of = threading.Event(), [], Reports.of

    def ask(self, kind, opened):
        report = of(self, kind, opened)
        asked.append(opened.generation)
        return report

    def slow(opened, progress):
        assert go_on.wait(300)
        progress("looking", 1, 1)
        return {"n_rows": sum(image.label == "rows" for image in opened.images.values())}

    monkeypatch.setattr(Reports, "of", ask)
    monkeypatch.setitem(REPORTS, "evaluation", slow)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(client.get, "/api/evaluation")
        wait_for(lambda: len(asked) == 1)
        assert client.post("/api/relabel", json={"ids": [0], "label": "rows"}).status_code == 200
        second = pool.submit(client.get, "/api/evaluation")
        wait_for(lambda: len(asked) == 2)
        go_on.set()
        replies = [one.result(300).json() for one in (first, second)]
    assert replies[0] == replies[1]
    assert replies[0]["n_rows"] == 4


# ---- changing --------------------------------------------------------------------------------------------------------


def test_teaching_from_nothing_asking_correcting_and_undoing(empty, tmp_path):
    assert empty.get("/api/model").json()["n_images"] == 0
    assert empty.get("/api/images").json()["images"] == []
    assert empty.post("/api/predict", content=picture()).status_code == 422
    added = teach(empty, "rows", [1, 2])
    assert {key: len(value) for key, value in added.items()} == {
        "added": 2,
        "duplicates": 0,
        "doubles": 0,
        "skipped": 0,
    }
    teach(empty, "columns", [1, 2])
    assert empty.post("/api/predict", content=picture("rows", 50)).json()["label"] == "rows"
    asked = empty.post("/api/predict?name=odd.png", content=picture("checks", 51)).json()
    corrected = empty.post("/api/add", params={"label": "checks", "photo": asked["photo"], "name": "odd.png"}).json()
    assert corrected["added"][0]["label"] == "checks"
    assert labels_of(empty) == {0: "rows", 1: "rows", 2: "columns", 3: "columns", 4: "checks"}
    assert empty.post("/api/undo").json() == {"undone": "adding 1 photo"}
    assert (
        empty.post("/api/relabel", json={"ids": [0, 1], "label": "stripes"}).json()["relabeled"][0]["label"]
        == "stripes"
    )
    assert empty.post("/api/remove", json={"ids": [2]}).json()["n_gone_for_good"] == 0
    assert sorted(labels_of(empty).values()) == ["columns", "stripes", "stripes"]
    assert empty.get("/api/model").json()["undo"] == "removing 1 photo"
    assert check_model(tmp_path / "new").problems == ()


def test_errors_by_file(empty):
    bad = [("photo", ("letter.txt", b"dear")), ("photo", ("bomb.png", bomb()))]
    found = empty.post("/api/add?label=rows", files=[*bad, *files("rows", [1])]).json()
    assert [image["label"] for image in found["added"]] == ["rows"]
    assert {name: reason.split(":")[0] for name, reason in found["skipped"]} == {
        "letter.txt": "letter.txt",
        "bomb.png": "bomb.png",
    }
    again = empty.post("/api/add?label=rows", files=files("rows", [1])).json()
    assert again["duplicates"] == again["doubles"] == [["rows-1.png", 0]]


LABELS = ["<img src=x onerror=alert(1)>", "=1+1", "${x}", "日本語", "a/../b", "‮evil", "x" * 150, "'\"`", "null", "0"]


@pytest.mark.parametrize("label", LABELS)
def test_labels_of_every_kind_are_text(empty, label):
    teach(empty, "rows", [1], label)
    assert labels_of(empty) == {0: label}
    assert empty.get("/api/images", params={"label": label}).json()["images"][0]["label"] == label


def test_a_change_of_the_command_line_is_seen(client, copied):
    with edit(copied) as editor:
        editor.relabel(0, "stripes")
    wait_for(lambda: labels_of(client)[0] == "stripes")


def test_what_was_decided_stays_decided(client):
    client.post("/api/relabel", json={"ids": [0], "label": "rows"})
    entry = next(one for one in client.get("/api/audit").json()["suspects"] if one["id"] == 0)
    about = {"list": "suspects", "ids": [0], "labels": [entry["label"], entry["suggested"]], "decision": "keep"}
    assert client.post("/api/decide", json=about).json() == {"decided": "keep"}
    assert [one["decision"] for one in client.get("/api/audit").json()["suspects"] if one["id"] == 0] == ["keep"]


# ---- what makes no sense ---------------------------------------------------------------------------------------------

BAD = [
    ("POST", "/api/predict?reject=2", {"content": b"x"}, 422),
    ("POST", "/api/predict?reject=nan", {"content": b"x"}, 422),
    ("POST", "/api/predict?reject=x", {"content": b"x"}, 422),
    ("POST", "/api/predict?top=0", {"content": b"x"}, 422),
    ("POST", "/api/predict?top=99999999999999999999", {"content": b"x"}, 422),
    ("POST", "/api/predict", {"content": b""}, 422),
    ("POST", "/api/predict", {"content": b"not a picture"}, 422),
    ("POST", "/api/predict", {"content": b"x", "headers": {"Content-Type": "text/plain"}}, 415),
    ("POST", "/api/predict", {"content": b"x", "headers": {"Content-Type": "multipart/form-data"}}, 400),
    ("POST", "/api/predict", {"content": b"x", "headers": {"Content-Type": "multipart/form-data; boundary=y"}}, None),
    ("POST", "/api/predict", {"data": {"a": "b"}, "files": [("a", ("", b""))]}, None),
    ("GET", "/api/predict", {}, 405),
    ("POST", "/api/model", {}, 405),
    ("POST", "/api/add", {"content": b"x"}, 422),
    ("POST", "/api/add?label=%20", {"content": b"x"}, 422),
    ("POST", "/api/add?label=a%00b", {"content": picture()}, 422),
    ("POST", "/api/add?label=a&photo=../../etc/passwd", {}, 404),
    ("POST", "/api/remove", {"content": b"{}"}, 415),
    ("POST", "/api/remove", {"json": {}}, 422),
    ("POST", "/api/remove", {"json": {"ids": []}}, 422),
    ("POST", "/api/remove", {"json": {"ids": [True]}}, 422),
    ("POST", "/api/remove", {"json": {"ids": [10**30]}}, 422),
    ("POST", "/api/remove", {"json": {"ids": ["0"]}}, 422),
    ("POST", "/api/remove", {"json": [1]}, 422),
    ("POST", "/api/relabel", {"json": {"ids": [0]}}, 422),
    ("POST", "/api/relabel", {"json": {"ids": [0], "label": {"a": 1}}}, 422),
    ("POST", "/api/relabel", {"json": {"ids": [0], "label": ""}}, 422),
    ("POST", "/api/undo", {}, 422),
    ("POST", "/api/decide", {"json": {"list": "suspects", "ids": [0], "labels": [[]], "decision": "keep"}}, 422),
    ("POST", "/api/decide", {"json": {"list": "x", "ids": [0], "labels": [], "decision": "keep"}}, 422),
    ("GET", "/api/images/0/picture?size=-1", {}, 422),
    ("GET", "/api/nothing", {}, 404),
    ("GET", "/nothing", {}, 404),
]


@pytest.mark.parametrize(("method", "path", "how", "status"), BAD, ids=lambda value: str(value)[:60])
def test_requests_that_make_no_sense(client, method, path, how, status):
    reply = client.request(method, path, **how)
    assert 400 <= reply.status_code < 500
    assert status is None or reply.status_code == status, reply.text
    assert list(reply.json()) == ["error"] or "error" in reply.json()
    assert "Traceback" not in reply.text
    assert "/tmp" not in reply.text, "no path of this machine"
    assert len(labels_of(client)) == 9


@pytest.mark.parametrize(
    "body", [b"[" * 100_000, b'{"ids": [' + b"1," * 1000, b"\xff\xfe", b'{"ids": NaN}', b"1" * 5000]
)
def test_json_that_is_none(client, body):
    reply = client.post("/api/remove", content=body, headers={"Content-Type": "application/json"})
    assert reply.status_code in (400, 422)


PATHS = ["/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2f..%2fapp.py", "/static//etc/passwd", "/static/%00"]
PATHS += ["/static/....//app.py", "/api/images/0/../../../etc/passwd", "/..%5c..%5cwindows", "/static/\\..\\app.py"]


@pytest.mark.parametrize("path", PATHS)
def test_no_path_leads_out_of_the_static_files(client, path):
    reply = client.get(path)
    assert reply.status_code in (400, 404)
    assert "import" not in reply.text
    assert "root:" not in reply.text


def test_too_many_questions_uploads_and_listeners_are_told_to_come_again(copied):
    with serving(copied, limits=Limits(n_questions=0, n_uploads=0, n_listeners=0)) as page:
        for reply in (
            page.post("/api/predict", content=picture()),
            page.post("/api/explain", content=picture()),
            page.get("/api/images/0"),
            page.post("/api/add?label=rows", content=picture()),
            page.get("/api/events"),
        ):
            assert reply.status_code == 503
            assert reply.headers["retry-after"] == "1"
        assert page.get("/api/model").status_code == 200


def test_photos_and_files_have_their_limits(copied):
    with serving(copied, limits=Limits(photo_bytes=1 << 20, request_bytes=3 << 20, n_files=2)) as page:
        assert page.post("/api/predict", content=b"x" * ((1 << 20) + 1)).status_code == 413
        assert page.post("/api/predict", content=b"x" * ((3 << 20) + 1)).status_code == 413
        large = [("photo", ("large.jpg", b"x" * ((1 << 20) + 1)))]
        found = page.post("/api/add?label=rows", files=[*large, *files("rows", [60])]).json()
        assert found["skipped"] == [["large.jpg", "large.jpg: a photo may have at most 1 MiB; shrink it first."]]
        assert len(found["added"]) == 1
        assert page.post("/api/predict", files=files("rows", [1, 2, 3])).status_code == 400


def test_an_error_of_our_own_is_told_to_the_terminal_and_not_to_the_client(copied, monkeypatch, caplog):
    def fail(*_):
        raise KeyError("/secret/path")

    monkeypatch.setattr("lnbnn.page.api.left_out_answer", fail)
    app = make_app(copied, Keys(secret=SECRET))
    with TestClient(
        app, base_url=BASE, headers={"Authorization": f"Bearer {SECRET}"}, raise_server_exceptions=False
    ) as page:
        reply = page.get("/api/images/0")
    assert reply.status_code == 500
    assert "secret" not in reply.text
    assert "GET /api/images/0 failed: KeyError" in caplog.text


# ---- the description -------------------------------------------------------------------------------------------------


def test_the_description_page_names_every_route():
    text = (STATIC / "api.html").read_text(encoding="utf-8")
    described = set(re.findall(r"<code>(GET|POST) (/api/[^<]+)</code>", text))
    routes = {
        (("POST" if "POST" in route.methods else "GET"), re.sub(r"{(\w+):\w+}", r"{\1}", route.path))
        for route in Api.routes(_Anything())
    }
    assert described == routes


class _Anything:
    def __getattr__(self, name):
        return lambda request: None
