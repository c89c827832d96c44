"""The arrows between the rooms point one way, and heavy packages stay behind their doors."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import lnbnn

PACKAGE = Path(lnbnn.__file__).parent
HERE = Path(__file__).resolve().parent.parent

ANYWHERE = {"version"}
MAX_TOP_MODULES = 8  # names with "__" and a room's own folder not counted

# The only rooms, or modules of a room, that may import a heavy package.
DOORS = {
    "cv2": {"files/images", "descriptors", "data/toy"},
    "PIL": {"files/images", "files/picture_memory", "data/toy"},
    "faiss": {"indexes/faiss_index", "indexes/faiss_kmeans", "indexes/faiss_lists", "indexes/faiss_tree"},
    "pyflann_ibeis": {"indexes/flann_index"},
    "pymilvus": {"indexes/milvus_collection"},
    "grpc": {"indexes/milvus_collection"},
    "onnx": {"descriptors/onnx_file"},
    "onnxruntime": {"descriptors/onnx_file"},
    "timm": {"descriptors/timm_network"},
    "torch": {"descriptors/timm_network"},
    "safetensors": {"descriptors/timm_network"},
    "matplotlib": {"trust/figures", "lab"},
    "numba": {"compiled"},
    "scipy": {"methods/affine_correction", "methods/least_squares", "model/calibration"},
    "sklearn": {"methods/kernel_svm", "methods/linear_classifiers", "classifiers"},
    "typer": {"cli"},
    "rich": {"cli"},
    "skimage": set(),
    "starlette": {"page"},
    "uvicorn": {"page/server"},
    "ray": {"cluster/connection"},
}

MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path.name != "__main__.py")


def rooms():
    """The rooms in their order, lowest first, as CONTRIBUTING shows them."""
    page = (HERE / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = page.partition("<!-- rooms -->")[2].partition("<!-- /rooms -->")[0]
    return [room for row in table.splitlines()[3:] for room in re.findall(r"`(\w+)/?`", row.split("|")[1])]


def room_of(path):
    """The folder of the package that a module is in; a module in no folder is a room of its own."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def name_of(path):
    return path.relative_to(PACKAGE).with_suffix("").as_posix()


def imports_of(path):
    """Every imported module, wherever the import stands, and those under ``if TYPE_CHECKING`` too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def rooms_imported(path):
    found = {name.split(".")[1] for name in imports_of(path) if name.startswith("lnbnn.")}
    return found & {room_of(other) for other in MODULES}


# ---- the rooms -------------------------------------------------------------------------------------------------------


def test_the_rooms_are_those_that_contributing_shows():
    found = {room_of(path) for path in MODULES} - {"__init__"} - ANYWHERE
    assert found == set(rooms()), "CONTRIBUTING.md: the table of rooms"
    assert len(rooms()) == len(set(rooms()))


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_point_downward(path):
    room, order = room_of(path), rooms()
    if room in {"__init__", *ANYWHERE}:
        return
    above = rooms_imported(path) - {*order[: order.index(room) + 1], *ANYWHERE}
    assert not above, f"{room} imports from rooms above it: {sorted(above)}"


def test_few_modules_stand_in_no_room():
    top = [path.name for path in PACKAGE.glob("*.py") if "__" not in path.name]
    assert len(top) <= MAX_TOP_MODULES, sorted(top)


def test_the_way_of_one_image_is_real(photos, model):
    """Every step that CONTRIBUTING shows is a function or class of this name, and a prediction passes it."""
    page = (HERE / "CONTRIBUTING.md").read_text(encoding="utf-8")
    way = page.partition("<!-- way -->")[2].partition("<!-- /way -->")[0]
    steps = [line.split()[0] for line in way.splitlines() if line.strip()]
    assert len(steps) > 8
    passed = passed_by_predict(model, next(photos.rglob("*.png")))
    missing = [step for step in steps if not passed & {f"lnbnn.{step}", f"lnbnn.{step}.__init__"}]
    assert missing == []


def passed_by_predict(model, image):
    """The functions of the package that ``lnbnn predict`` passes, by their full names."""
    code = f"""
import sys, threading
names = set()
def note(frame, event, arg):
    if event == "call":
        module = frame.f_globals.get("__name__", "")
        if module.startswith("lnbnn."):
            names.add(module + "." + frame.f_code.co_qualname)
        elif frame.f_code.co_name == "__init__" and "self" in frame.f_locals:  # made by dataclasses
            kind = type(frame.f_locals["self"])
            names.add(kind.__module__ + "." + kind.__qualname__ + ".__init__")
threading.setprofile(note)
sys.setprofile(note)
sys.argv = ["lnbnn", "predict", {str(model)!r}, {str(image)!r}, "--jobs", "1"]
try:
    from lnbnn.cli import main
    main()
except SystemExit:
    pass
finally:
    sys.setprofile(None)
print("PASSED", *names)
"""
    return set(" ".join(run_python(code)).partition("PASSED ")[2].split())


def test_a_classifier_has_a_short_line_of_inheritance():
    for kind in (lnbnn.LocalNBNN, lnbnn.NBNN, lnbnn.LateFusion):
        own = [base for base in kind.__mro__ if base.__module__.startswith("lnbnn")]
        assert len(own) <= 3, own


# ---- heavy packages --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("package", sorted(DOORS))
def test_heavy_packages_have_one_door(package):
    importers = {name_of(path) for path in MODULES if any(name.split(".")[0] == package for name in imports_of(path))}
    strangers = {name for name in importers if not {name, name.split("/")[0]} & DOORS[package]}
    assert not strangers


def run_python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


def test_import_loads_nothing_heavy():
    heavy = ["cv2", "faiss", "matplotlib", "sklearn", "numba", "typer", "rich", "skimage", "PIL", "numpy", "joblib"]
    assert run_python(f"import sys, lnbnn; print(*[name for name in {heavy} if name in sys.modules])") == []


def test_listing_the_registries_loads_no_backend():
    code = (
        "import sys; from lnbnn.indexes import INDEXES; from lnbnn.classifiers import CLASSIFIERS; "
        "from lnbnn.descriptors import DESCRIPTORS; "
        "print(*[name for name in ['cv2', 'faiss', 'matplotlib', 'sklearn', 'numba', 'typer'] if name in sys.modules])"
    )
    assert run_python(code) == []


def test_command_line_help_loads_no_backend():
    code = (
        "import sys; import lnbnn.cli; "
        "print(*[name for name in ['cv2', 'faiss', 'matplotlib', 'sklearn', 'numba'] if name in sys.modules])"
    )
    assert run_python(code) == []


def test_opening_a_local_nbnn_model_loads_neither_scikit_learn_nor_scipys_parts():
    code = (
        "import sys; import lnbnn.classifiers.local_nbnn, lnbnn.indexes.faiss_index, lnbnn.descriptors.dense_sift; "
        "print(*[name for name in ['sklearn', 'scipy.optimize', 'scipy.stats', 'joblib'] if name in sys.modules])"
    )
    assert run_python(code) == []


# ---- tests mirror the package ----------------------------------------------------------------------------------------

# Modules, or whole rooms, that are tested in a file of another name.
TESTED_IN = {
    "cli": "test_cli",
    "page/undo": "test_page_served_model",
    "page/replies": "test_page_api",
    "lab": "test_experiments",
    "descriptors/network": "test_onnx_network",
    "descriptors/onnx_file": "test_onnx_network",
    "files/atomic": "test_model_writer",
    "indexes/exact": "test_indexes",
    "indexes/faiss_index": "test_indexes",
    "indexes/flann_index": "test_indexes",
    "indexes/milvus_collection": "test_milvus_index",
    "indexes/milvus_survey": "test_milvus_index",
    "indexes/selection": "test_indexes",
    "indexes/vector_table": "test_indexes",
    "trust/audit_page": "test_audit",
    "version": "test_api_surface",
}


@pytest.mark.parametrize("path", [path for path in MODULES if path.name != "__init__.py"], ids=name_of)
def test_every_module_has_a_test_file_of_its_name(path):
    """``test_x.py``, or ``test_room_x.py`` where two rooms have an ``x``; that of a room's base has the room's name."""
    tests = {file.stem for file in Path(__file__).parent.glob("test_*.py")}
    room, name = path.parent.name, path.stem
    expected = {f"test_{room}"} if name == "base" else {f"test_{name}", f"test_{room}_{name}"}
    elsewhere = {TESTED_IN[key] for key in (name_of(path), room_of(path)) if key in TESTED_IN}
    assert (expected | elsewhere) & tests, f"tests/test_{name}.py is missing"
