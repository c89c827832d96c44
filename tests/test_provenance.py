"""What an outcome was made with: its commit, and a digest of just the code that computes it."""

import importlib.util
import subprocess
from functools import partial

import pytest

from lnbnn.data.folder import LabeledImages
from lnbnn.lab import Part, get_experiments
from lnbnn.lab.provenance import code_of, commit_of, data_of

MODULE = """
from helper import double
from lnbnn.errors import LnbnnError

def compute(lab, settings):
    return {"x": double(settings["x"])}
"""
HELPER = "def double(x):\n    return 2 * x\n"


def part_of(folder, module=MODULE, helper=HELPER, **settings):
    """A part whose module, in a folder of its own, imports a helper that lies beside it."""
    folder.mkdir()
    (folder / "job.py").write_text(module)
    (folder / "helper.py").write_text(helper)
    spec = importlib.util.spec_from_file_location("helper", folder / "helper.py")
    tree = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tree)
    spec = importlib.util.spec_from_file_location("job", folder / "job.py")
    job = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(__import__("sys").modules, "helper", tree)
        spec.loader.exec_module(job)
    return Part("job", settings, job.compute)


def test_code_is_that_of_the_module_and_of_what_it_imports(tmp_path):
    code = code_of(part_of(tmp_path / "a"))
    assert code_of(part_of(tmp_path / "b")) == code
    assert code_of(part_of(tmp_path / "c", module=MODULE + "# why\n", helper='"""Doc."""\n' + HELPER)) == code
    assert code_of(part_of(tmp_path / "d", module=MODULE.replace('["x"]', '["y"]'))) != code
    assert code_of(part_of(tmp_path / "e", helper=HELPER.replace("2 * x", "3 * x"))) != code


def test_code_is_that_of_the_names_in_the_settings(tmp_path):
    plain = code_of(part_of(tmp_path / "a"))
    codes = [code_of(part_of(tmp_path / name, what=name)) for name in ("nbnn", "spm-hard", "dense-sift", "exact")]
    assert len({plain, *codes}) == 5
    nested = code_of(part_of(tmp_path / "nested", members=[["nbnn", {"k": 1}]]))
    assert nested == codes[0]
    assert code_of(part_of(tmp_path / "family", what="deep@stage6")) == code_of(part_of(tmp_path / "deep", what="deep"))


def test_code_of_a_partial_is_that_of_its_function(tmp_path):
    part = part_of(tmp_path / "a")
    assert code_of(Part("job", {}, partial(partial(part.compute, 1), 2))) == code_of(part)


def test_code_of_the_experiments_is_that_of_their_methods():
    """Pyramids do not change with the matching methods, nor these with the pyramids."""
    several = get_experiments("table2")
    parts = {part.kind: part for experiment in several for part in experiment.plan(experiment.settings)}
    assert len({code_of(parts[kind]) for kind in ("spm-hard", "local-nbnn-responses", "nbnn-responses")}) == 3


def test_a_part_of_a_published_set_says_so(tmp_path):
    paths = [tmp_path / label / f"{number}.jpg" for label, n in (("a", 2), ("b", 3)) for number in range(n)]
    for path in paths:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"12")
    images = LabeledImages(tuple(map(str, paths)), ("a", "a", "b", "b", "b"))
    found = data_of("caltech256", images)
    digest = found.pop("digest")
    assert found == {"n_classes": 2, "n_images": 5, "images_per_class": [2, 3], "n_images_published": 29780}
    assert data_of("caltech256", images.take([4, 2, 0, 1, 3]))["digest"] == digest  # in any order
    assert data_of("caltech256", LabeledImages(images.paths, ("a", "b", "b", "b", "b")))["digest"] != digest
    assert "n_images_published" not in data_of("mine", images)
    assert data_of("", LabeledImages((), ())) == {}


@pytest.fixture
def checkout(tmp_path):
    """A folder under version control: code, a record, pages."""

    def git(*words):
        user = ("-c", "user.name=x", "-c", "user.email=x@example.org")
        return subprocess.run(["git", *user, *words], cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    for name in ("src/code.py", "results/old.json", "docs/page.md", "README.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("1")
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "first")
    return tmp_path, git("rev-parse", "--short", "HEAD").strip()


def test_the_commit_is_that_of_the_code(checkout, tmp_path_factory, monkeypatch):
    """A change of the code since the commit shows; new records and pages, which a run writes itself, do not."""
    folder, head = checkout
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert commit_of(folder / "src") == head
    for name in ("results/new.json", "results/old.json", "docs/page.md", "README.md"):
        (folder / name).write_text("2")
    assert commit_of(folder / "src") == head
    (folder / "src" / "code.py").write_text("2")
    assert commit_of(folder / "src") == f"{head}-dirty"
    (folder / "src" / "code.py").write_text("1")
    (folder / "src" / "new.py").write_text("1")
    assert commit_of(folder / "src") == f"{head}-dirty"


def test_code_that_nobody_committed_has_no_commit(checkout, tmp_path_factory):
    folder, _ = checkout
    (folder / "site-packages").mkdir()
    assert commit_of(folder / "site-packages") == "unknown"
    assert commit_of(tmp_path_factory.mktemp("no checkout")) == "unknown"
