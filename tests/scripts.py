"""Scripts that are no modules of the package, loaded from their files: the examples, and the training of test data."""

import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

TESTS = Path(__file__).parent
EXAMPLES = TESTS.parent / "examples"


@cache
def example(name: str) -> ModuleType:
    """An example by its name under examples/, such as "benchmarks/accuracy"; examples may import their neighbours."""
    return _loaded(EXAMPLES / f"{name}.py", f"example_{name.replace('/', '_')}")


@cache
def training() -> ModuleType:
    """The script that trained the stored network on drawings."""
    return _loaded(TESTS / "data" / "train_quickdraw.py", "train_quickdraw")


def _loaded(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
    return module
