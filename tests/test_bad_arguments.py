"""Every public verb and noun, each of its arguments given what does not belong there.

Cases come from the signatures, so that a new name is covered once its valid call stands in `CALLS`. What comes out is
a result, or one error of ours that names the argument in one line; never a bare message of NumPy, Dask or Zarr, and
no warning of theirs.
"""

import inspect
import re
import warnings
from collections.abc import Iterable
from importlib.util import find_spec

import dask
import pytest
import zarr
from names import BY_NAME
from spoils import BAD, CALLS, FRAME, SAMPLE, X, Y

import dask_nlis as nlis
from dask_nlis.errors import NlisError, NlisWarning

#: Names that verbs return and users do not make, and nouns without arguments.
MADE_BY_VERBS = frozenset(
    {
        "Certificate",
        "Comparison",
        "Drift",
        "Encoded",
        "Encoding",
        "Factor",
        "Fit",
        "FittedModel",
        "JaxModel",
        "LayerStack",
        "Plan",
        "RowTable",
        "Run",
        "Sample",
        "SampleSize",
    }
    | {"Report", "Sandwich", "Standardization", "Standardized", "TallMatrix", "TorchModel", "XarrayRows"}
)

#: Kinds of the fast suite; the others run with the slow tests.
OFTEN = (
    *("None", "dict", "generator", "text", "True", "NaN", "infinity", "minus half", "huge integer", "0-d", "3-d"),
    *("object array", "masked", "sparse", "complex array", "dates", "unequal lists", "empty", "lazy of another length"),
)

#: What is asked for and takes for ever, or fails in rooms that other tests look after.
LEFT_OUT = {
    ("compare", "n_starts", "huge integer"),
    ("refit", "n_starts", "huge integer"),
    ("pilot", "sample_weight", "huge array"),
    ("run", "sample_weight", "huge array"),
    ("plan", "memory_limit", "huge integer"),
}

#: Other words for an argument in messages about what the data hold, or for one of several arguments.
ALSO_CALLED = {
    "arrays": "array 0",
    "sample_weight": "rows of the matrix are zero|weights are all zero",
    "lower": "AmplitudeBand is empty",
    "memory_limit": "this process .* may use",
}


def calls() -> list[tuple[str, str]]:
    return [(name, argument) for name, (_, given) in CALLS.items() for argument in given]


def holds_several(name: str, argument: str) -> bool:
    return argument != "found" and isinstance(CALLS[name][1][argument], list | tuple | dict)


def outcome(name: str, argument: str, kind: str, inside: bool = False) -> str | None:
    """What is wrong with the answer to a bad argument; None where it is a result, or one of our errors that names it.

    With `inside` the first item of a list, a tuple or a mapping is bad.
    """
    function, given = CALLS[name]
    bad, good = BAD[kind](), given[argument]
    if inside:
        bad = good | {next(iter(good)): bad} if isinstance(good, dict) else type(good)([bad, *good[1:]])
    given = given | {argument: bad}
    several = [given.pop("arrays")] if "arrays" in given else []
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            function(*several, **given)
        except NlisError as error:
            text = str(error)
            if not isinstance(error, BY_NAME[name].errors):
                return f"{kind}: {type(error).__name__} is not among the errors of the docstring: {text}"
            if "\n" in text or len(text) > 300:
                return f"{kind}: no line of 300 characters: {text!r}"
            named = rf"(?<![A-Za-z_]){argument}(?![A-Za-z_])|" + ALSO_CALLED.get(argument, r"(?!)")
            if not re.search(named, text):
                return f"{kind}: does not name {argument}: {text}"
            if not re.search("; |: ", text):
                return f"{kind}: no remedy: {text}"
        except Exception as error:
            return f"{kind}: {type(error).__name__}: {error}"
    foreign = [w for w in seen if not issubclass(w.category, NlisWarning)]
    return f"{kind}: warns {foreign[0].message}" if foreign else None


def check(name: str, argument: str, kinds: Iterable[str], inside: bool = False) -> None:
    wrong = [outcome(name, argument, kind, inside) for kind in kinds if (name, argument, kind) not in LEFT_OUT]
    assert not list(filter(None, wrong))


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """A folder with what is opened, for the stores that some texts name; and one thread: the tables are tiny."""
    monkeypatch.chdir(tmp_path)
    SAMPLE.save("saved.csv")
    group = zarr.create_group("data.zarr")
    group.create_array("X", data=X)
    group.create_array("y", data=Y)
    FRAME.to_csv("table.csv", index=False)
    nlis.ingest("table.csv", "table.zarr", target="y")
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.mark.parametrize(("name", "argument"), calls())
def test_what_does_not_belong_is_a_result_or_one_error_of_ours_naming_the_argument(name, argument):
    check(name, argument, OFTEN)


@pytest.mark.parametrize(("name", "argument"), [each for each in calls() if holds_several(*each)])
def test_what_does_not_belong_among_several_is_a_result_or_one_error_of_ours(name, argument):
    check(name, argument, OFTEN, inside=True)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "argument"), calls())
def test_every_kind_that_does_not_belong_as_well(name, argument):
    check(name, argument, set(BAD) - set(OFTEN))


def test_every_public_name_and_each_of_its_arguments_is_spoilt():
    for name in nlis.__all__:
        public = getattr(nlis, name)
        if (
            not callable(public)
            or (isinstance(public, type) and issubclass(public, Exception))
            or name in MADE_BY_VERBS
            or (name in ("from_jax", "from_torch", "from_xarray") and not find_spec(name.removeprefix("from_")))
        ):
            continue
        wanted = {
            each.name
            for each in inspect.signature(public).parameters.values()
            if each.kind is not inspect.Parameter.VAR_POSITIONAL
        }
        given = set(CALLS[name][1]) if name in CALLS else set()
        assert given == wanted, name


def test_the_calls_that_are_spoilt_are_valid():
    for name, (function, given) in CALLS.items():
        if name != "open_run":  # no run is stored
            given = dict(given)
            several = [given.pop("arrays")] if "arrays" in given else []
            function(*several, **given)
