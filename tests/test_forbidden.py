"""No door to code from data: what the package may not import or call, read off its syntax trees (R6.1)."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / "dask_nlis").rglob("*.py"))

#: Modules that make objects or processes of bytes and text.
MODULES = {
    "pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "skops", "yaml", "subprocess", "pty",
    "code", "codeop", "runpy", "imp", "xmlrpc", "xml", "pickletools",
}  # fmt: skip

#: Functions that run text, wherever they are taken from, called or handed on.
BARE = {"eval", "exec", "compile", "__import__", "execfile"}

#: The same by the module they belong to, and readers that unpickle.
DOTTED = {
    "os.system", "os.popen", "os.startfile", "os.posix_spawn", "builtins.eval", "builtins.exec", "builtins.compile", "yaml.load",
    "torch.load", "np.lib.format.read_array", "npy.read_array", "da.from_npy_stack", "dask.array.from_npy_stack",
    "np.core.multiarray.scalar", "pd.read_pickle", "pandas.read_pickle", "pd.eval", "pandas.eval", "numexpr.evaluate",
    "dask.utils.import_required", "entry_points", "importlib.metadata.entry_points",
}  # fmt: skip


def forbidden(tree: ast.AST) -> list[str]:
    """Every use in a tree of what is not allowed, with its line."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [f"{node.lineno} {a.name}" for a in node.names if a.name.partition(".")[0] in MODULES]
        elif isinstance(node, ast.ImportFrom):
            if (node.module or "").partition(".")[0] in MODULES:
                found.append(f"{node.lineno} {node.module}")
            found += [
                f"{node.lineno} {a.name}" for a in node.names if f"{node.module}.{a.name}" in DOTTED | {"builtins.eval"}
            ]
        elif isinstance(node, ast.Name) and node.id in BARE:
            found.append(f"{node.lineno} {node.id}")
        elif isinstance(node, ast.Attribute):
            whole = ast.unparse(node)
            if whole in DOTTED or whole.startswith(("os.exec", "os.spawn")):
                found.append(f"{node.lineno} {whole}")
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called.rpartition(".")[2] == "import_module":
                literal = len(node.args) == 1 and isinstance(node.args[0], ast.Constant)
                found += [] if literal else [f"{node.lineno} {called} of what is no literal"]
            # Of all functions of NumPy this one reads pickles unless it is told not to, or by a later default.
            if called in ("np.load", "numpy.load") and not any(
                k.arg == "allow_pickle" and isinstance(k.value, ast.Constant) and k.value.value is False
                for k in node.keywords
            ):
                found.append(f"{node.lineno} {called} without allow_pickle=False")
        if isinstance(node, ast.keyword) and node.arg in ("allow_pickle", "shell", "allow_dangerous_deserialization"):
            closed = isinstance(node.value, ast.Constant) and node.value.value is False
            found += [] if closed else [f"{node.value.lineno} {node.arg}"]
    return found


def test_nothing_in_the_package_unpickles_or_runs_text():
    assert len(FILES) > 150
    found = {path.relative_to(ROOT).as_posix(): forbidden(ast.parse(path.read_text("utf-8"))) for path in FILES}
    assert not {path: lines for path, lines in found.items() if lines}


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "import cloudpickle.cloudpickle as c",
        "from joblib import load",
        "from marshal import loads",
        "import shelve, os",
        "import yaml",
        "def f(x):\n    return eval(x)",
        "map(exec, lines)",
        "compile(text, 'a', 'eval')",
        "__import__(name)",
        "import importlib\nimportlib.import_module(name)",
        "from importlib import import_module\nimport_module(f'{name}.x')",
        "np.load(path)",
        "np.load(path, allow_pickle=True)",
        "np.load(path, allow_pickle=flag)",
        "np.save(path, x, allow_pickle=True)",
        "run(command, shell=True)",
        "run(command, shell=asked)",
        "os.system(command)",
        "os.execv(path, [])",
        "from os import system",
        "torch.load(path)",
        "import builtins\nbuiltins.eval(x)",
        "da.from_npy_stack(folder)",
    ],
)
def test_each_door_is_seen(code):
    assert forbidden(ast.parse(code))


@pytest.mark.parametrize(
    "code",
    [
        "import json",
        "re.compile(text)",
        "model.eval",
        "np.load(path, allow_pickle=False)",
        "importlib.import_module('h5py')",
    ],
)
def test_what_is_harmless_passes(code):
    assert not forbidden(ast.parse(code))
