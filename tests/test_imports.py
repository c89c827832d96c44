"""The arrows between the modules point one way, and heavy packages stay behind their doors."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import lnbnn

PACKAGE = Path(lnbnn.__file__).parent

# Lowest first: a module imports only from lines above its own, or from its own folder.
LAYERS = [
    "errors",
    "escaping",
    "memory",
    "atomic",
    "manifest_fields",
    "regular_files",
    "outputs",
    "compiled",
    "registry",
    "settings",
    "features",
    "scoring",
    "affine",
    "calibration",
    "mislabelled",
    "responses",
    "location",
    "images",
    "arrays",
    "image_table",
    "locks",
    "normalization",
    "model_folder",
    "model_writer",
    "descriptors",
    "indexes",
    "datasets",
    "store",
    "extraction",
    "intake",
    "pyramid",
    "classifiers",
    "editing",
    "audit",
    "audit_page",
    "planning",
    "tuning",
    "evidence",
    "records",
    "evaluation",
    "figures",
    "presets",
    "demo",
    "experiments",
    "cli",
]
ANYWHERE = {"version"}

# The only modules that may import a heavy package.
DOORS = {
    "cv2": {"images", "descriptors", "datasets"},
    "PIL": {"images", "datasets"},
    "faiss": {"indexes/faiss_index", "indexes/faiss_kmeans", "indexes/faiss_lists", "indexes/faiss_tree"},
    "pyflann_ibeis": {"indexes/flann_index"},
    "onnx": {"descriptors/onnx_file"},
    "onnxruntime": {"descriptors/onnx_file"},
    "timm": {"descriptors/timm_network"},
    "torch": {"descriptors/timm_network"},
    "matplotlib": {"figures"},
    "numba": {"compiled"},
    "scipy": {"affine", "calibration"},
    "sklearn": {"classifiers"},
    "typer": {"cli"},
    "rich": {"cli"},
    "skimage": set(),
}

MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path.name != "__main__.py")


def layer_of(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


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


def own_layers(imported):
    layers = {name.split(".")[1] for name in imported if name.startswith("lnbnn.")}
    return layers & {*LAYERS, *ANYWHERE, *(layer_of(path) for path in MODULES)}


def test_every_module_has_its_layer():
    found = {layer_of(path) for path in MODULES} - {"__init__"} - ANYWHERE
    unplaced = found - set(LAYERS)
    assert not unplaced, f"give these modules a place in LAYERS: {sorted(unplaced)}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_imports_point_downwards(path):
    layer = layer_of(path)
    if layer == "__init__" or layer in ANYWHERE:
        return
    assert layer in LAYERS
    allowed = {*LAYERS[: LAYERS.index(layer) + 1], *ANYWHERE}
    above = own_layers(imports_of(path)) - allowed
    assert not above, f"{layer} imports from higher layers: {sorted(above)}"


@pytest.mark.parametrize("package", sorted(DOORS))
def test_heavy_packages_have_one_door(package):
    importers = {
        path.relative_to(PACKAGE).with_suffix("").as_posix()
        for path in MODULES
        if any(name.split(".")[0] == package for name in imports_of(path))
    }
    strangers = {name for name in importers if name not in DOORS[package] and name.split("/")[0] not in DOORS[package]}
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
