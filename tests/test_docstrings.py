"""What the docstring of each public name has to say, by its kind; true where that can be tried out.

One table of rules, `RULES`, and few exceptions. Names come from `dask_nlis.__all__`: a new one is checked by itself.
"""

import ast
import doctest
import inspect
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import api_page
import dask
import numpy as np
import pytest
from names import BETWEEN_ROOMS, BY_NAME, PROTOCOLS, PUBLIC, Public, of_protocols
from sklearn.linear_model import LinearRegression
from spoils import BAD, BENT, CALLS, FACTOR, FRAME, PROBLEM, SAMPLE, TANGENT, THETA, X, Y

import dask_nlis as nlis

#: Rooms that are mathematics: a function or class of theirs names the definition, theorem, paper or section it follows.
MATHEMATICS = {
    *(
        "activations",
        "constraints",
        "diagnostics",
        "factor",
        "losses",
        "matrix",
        "models",
        "problem",
        "refit",
        "sample",
    ),
    *("sampling", "scores", "theory"),
}

#: Names in those rooms that follow no source, and why.
WITHOUT_SOURCE = {
    "bottom_rows": "sorts",
    "compare": "does other verbs for many seeds",
    "concat": "renumbers rows",
    "refit_with": "leaves the fit to another library",
    "top_rows": "sorts",
    "total_loss": "sums",
}

SOURCE = re.compile(
    r"\b(1[89]|20)\d\d\b|\b(Definition|Proposition|Theorem|Corollary|Example) \d|\b(section|chapter|DLMF) \d"
)
#: A pytree has no shape.
ARRAY = re.compile(r"(?<!pytree of )\b(array_like|ndarray|arrays?|DataFrame \(|Series \()")
SHAPE = re.compile(r"\(\.\.\.\)|\((?:\w[\w+ ]*|\*\w+)(?:, ?(?:\w[\w+ -]*|\.\.\.))*,?\)")
DTYPE = re.compile(r"float\d+|int\d+|bool|dtype|in the container|containers? they came in|\bAxes\b")


#: What the parser calls entries of a section.
KEYS = {"Parameters": "param", "Attributes": "attribute"}


def one_line(each: Public) -> bool:
    first, _, rest = each.text.partition("\n")
    return 0 < len(first) <= 120 and first.endswith((".", ")", "...", ":")) and (not rest or rest.startswith("\n"))


def parameters(each: Public) -> bool:
    """Entries are those of the signature in its order, each with its type, arrays with their shape, and a text."""
    if not each.parameters:
        return not each.has("Parameters")
    return _entries(each, "Parameters" if each.kind != "made" else "Attributes", each.parameters)


def _entries(each: Public, section: str, wanted: list[str]) -> bool:
    # Attributes that are computed may follow the fields.
    found = [(name.strip(" *"), one) for one in each.entries(KEYS[section]) for name in one.arg_name.split(",")]
    names = [name for name, _ in found]
    return (names == wanted or (section == "Attributes" and names[: len(wanted)] == wanted)) and all(
        one.type_name and one.description and (not ARRAY.search(one.type_name) or SHAPE.search(one.type_name))
        for _, one in found
    )


def returns(each: Public) -> bool:
    """What comes back has a type; an array its shape and dtype, or word of the container it came in."""
    if inspect.signature(each.value).return_annotation in (None, "None"):
        return not each.has("Returns")
    found = each.parsed.many_returns
    texts = [f"{one.type_name} {one.return_name or ''} {one.description or ''}" for one in found]
    arrays = [text for one, text in zip(found, texts, strict=True) if ARRAY.search(one.type_name or "")]
    return bool(found) and all(SHAPE.search(text) and DTYPE.search(text) for text in arrays)


def raises(each: Public) -> bool:
    """Errors are named with their case; at least one where there are arguments."""
    named = each.entries("raises")
    return bool(named or not each.parameters) and all(one.type_name and one.description for one in named)


def example(each: Public) -> bool:
    return bool(doctest.DocTestParser().get_examples(each.text))


def example_here_or_in_its_class(each: Public) -> bool:
    """A method or property may stand in an example of its class, or of another method of it."""
    owner, _, name = each.name.rpartition(".")
    texts = [other.text for other in PUBLIC if other.name == owner or other.name.startswith(f"{owner}.")]
    return name in set().union(*map(_shown, texts))


def reads(each: Public) -> bool:
    """How often data are read is said above the first section, also where they are not."""
    return bool(each.reads)


def source(each: Public) -> bool:
    return each.room not in MATHEMATICS or each.name in WITHOUT_SOURCE or SOURCE.search(each.text) is not None


def shaped(each: Public) -> bool:
    """A property that is an array names its shape in its line."""
    annotation = str(inspect.signature(each.value.fget).return_annotation)
    return "ndarray" not in annotation or SHAPE.search(each.summary) is not None


def all_methods(each: Public) -> bool:
    """The example of a protocol calls all that it has."""
    return {name for name in vars(each.value) if not name.startswith("_")} <= _shown(each.text)


def _shown(text: str) -> set[str]:
    """Attributes that examples ask for."""
    return {
        node.attr
        for one in doctest.DocTestParser().get_examples(text)
        for node in ast.walk(ast.parse(one.source))
        if isinstance(node, ast.Attribute)
    }


def known(each: Public) -> bool:
    """A method of a protocol takes what the protocol's takes; there all else is said."""
    found = of_protocols(each.name.rpartition(".")[2])
    return isinstance(each.value, property) or each.parameters in [
        list(inspect.signature(one).parameters)[1:] for one in found if inspect.isfunction(one)
    ]


#: What the docstring of a name of each kind must have.
RULES = {
    "function": (one_line, parameters, returns, raises, example, reads, source),
    "class": (one_line, parameters, raises, example, source),
    "made": (one_line, parameters, example),
    "method": (one_line, parameters, returns, raises, example_here_or_in_its_class),
    "property": (one_line, shaped, example_here_or_in_its_class),
    "shared": (one_line, known),
    "protocol": (one_line, all_methods, source),
    "error": (one_line,),
}

PROTOCOL_NAMES = [Public(protocol.__name__, protocol, "protocol") for protocol in PROTOCOLS]


@pytest.mark.parametrize("each", [*PUBLIC, *PROTOCOL_NAMES], ids=lambda each: each.name)
def test_the_docstring_of_a_public_name_says_what_its_kind_asks_for(each):
    rules = (one_line,) if each.name in BETWEEN_ROOMS else RULES[each.kind]
    missing = [rule.__name__ for rule in rules if not rule(each)]
    assert not missing


# --- what is said is true -------------------------------------------------------------------------------------------

NAN = np.where(np.arange(X.size).reshape(X.shape) == 4, np.nan, X)
ELSEWHERE = nlis.dual_matrix(PROBLEM, X, Y, theta=2 * THETA)

#: What brings an error about, given for one argument or another.
BRING_ABOUT: dict[str, tuple[Any, ...]] = {
    "InputError": (
        *(BAD[kind] for kind in ("3-d", "empty", "minus half", "empty dict", "text", "empty text", "other width")),
        lambda: FACTOR,  # merged with itself
        lambda: [SAMPLE],  # one alone
        lambda: FRAME[["b"]],  # columns are missing
        lambda: 10**6,  # no such block
        lambda: [10**6],  # no such row
        lambda: LinearRegression(positive=True),  # not fitted
    ),
    "InputTypeError": tuple(BAD[kind] for kind in ("None", "text", "object", "0-d", "dict")),
    "MissingDataError": (
        lambda: "nowhere/nothing.zarr",
        lambda: "nowhere/nothing.csv",
        lambda: ["nowhere/nothing.zarr"] * 2,
    ),
    "NonFiniteError": (
        lambda: NAN,
        lambda: nlis.dual_matrix(PROBLEM, NAN, Y, theta=THETA),
        lambda: nlis.tangent_matrix(PROBLEM, NAN, Y, theta=THETA),
    ),
    "MatrixMismatchError": (
        lambda: nlis.factorize(ELSEWHERE),
        lambda: nlis.factorize(nlis.reference_matrix(PROBLEM, X[:, :2], Y)),
        lambda: ELSEWHERE,
        lambda: BENT,
        lambda: TANGENT,
    ),
}

#: Named errors that take more than one bad argument, shown by other tests.
SHOWN_ELSEWHERE = {
    ("CustomLoss", "InputError"): "when it is evaluated",
    ("Encoding.load", "InputError"): "of a store that something else wrote",
    ("certificate", "NonFiniteError"): "the factor of such rows is not made: they change after it",
    ("influence_scores", "NonFiniteError"): "the same",
    ("ingest", "NonFiniteError"): "of a file with a missing cell",
    ("leverage_scores", "NonFiniteError"): "the same as of certificate",
    ("open_run", "InputError"): "of a damaged store",
    ("suspects", "NonFiniteError"): "the same as of certificate",
}


@pytest.fixture
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    SAMPLE.save("saved.csv")
    with dask.config.set(scheduler="synchronous"):
        yield


def tries(name: str, error: str) -> Iterator[Exception]:
    """What comes of a valid call with one argument in its turn replaced."""
    function, given = CALLS[name]
    for argument in given:
        for bad in BRING_ABOUT[error]:
            spoilt = given | {argument: bad()}
            several = [spoilt.pop("arrays")] if "arrays" in spoilt else []
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    function(*several, **spoilt)
                except Exception as came:
                    yield came


@pytest.mark.usefixtures("_here")
@pytest.mark.parametrize(
    ("name", "error"),
    [
        (name, error.__name__)
        for name in CALLS
        for error in BY_NAME[name].errors
        if error.__name__ in BRING_ABOUT and (name, error.__name__) not in SHOWN_ELSEWHERE
    ],
)
def test_an_error_that_is_named_comes(name, error):
    assert any(type(came).__name__ == error for came in tries(name, error))


@pytest.fixture(scope="module")
def results():
    """What the valid calls of public names return."""
    with dask.config.set(scheduler="synchronous"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = {}
        for name, (function, given) in CALLS.items():
            if BY_NAME[name].kind in ("function", "method") and "path" not in given and name != "ingest":
                given = dict(given)
                several = [given.pop("arrays")] if "arrays" in given else []
                found[name] = function(*several, **given)
    return found


def is_as_said(value: Any, said: str, text: str) -> bool:
    """Whether an array has as many dimensions as the shape that is named, and the dtype, float64 where none is."""
    if not isinstance(value, np.ndarray):
        return True
    shape = re.search(r"of shape \(([^)]*)\)", said)
    dtype = re.search(r"\b(int64|float64|float32|bool)\b", said)
    dims = [part for part in shape[1].split(",") if part.strip()]
    asked_for = "dtype" in text
    return ("..." in shape[1] or len(dims) == value.ndim) and (
        asked_for or value.dtype == np.dtype(dtype[1] if dtype else "float64")
    )


def test_results_have_the_type_the_shape_and_the_dtype_that_are_named(results):
    wrong = []
    for name, value in results.items():
        each = BY_NAME[name].parsed.many_returns[0]
        said = each.type_name or ""
        kind = type(value).__name__
        if isinstance(value, np.ndarray):
            fits = is_as_said(value, said, each.description or "")
        elif hasattr(nlis, kind):
            fits = kind in said
        else:
            fits = True
        if not fits:
            wrong.append((name, said, kind))
    assert not wrong


def test_attributes_of_nouns_have_the_shape_and_the_dtype_that_are_named(results):
    nouns = {type(value).__name__: value for value in [*results.values(), PROBLEM]}
    nouns |= {type(part).__name__: part for part in (nlis.standardize(X, Y).transform,)}
    seen, wrong = 0, []
    for name, noun in nouns.items():
        if BY_NAME.get(name, Public("", None, "")).kind != "made":
            continue
        for one in BY_NAME[name].entries("attribute"):
            for field in one.arg_name.split(","):
                value = getattr(noun, field.strip(" *"))
                seen += isinstance(value, np.ndarray)
                if not is_as_said(value, one.type_name, one.description):
                    wrong.append((name, field, one.type_name))
    assert seen > 25
    assert not wrong


TESTS = "".join(path.read_text("utf-8") for path in Path(__file__).parent.glob("test_*.py") if path != Path(__file__))


@pytest.mark.parametrize(
    "error", sorted({error.__name__ for each in PUBLIC for error in each.errors} - set(BRING_ABOUT))
)
def test_every_other_error_that_is_named_is_asked_for_by_a_test(error):
    assert error in TESTS


# --- the index in the guide -------------------------------------------------------------------------------------------


def test_the_index_is_what_the_docstrings_say():
    assert api_page.PAGE.read_text("utf-8") == api_page.page(), "python tests/api_page.py writes it anew"


@pytest.mark.parametrize(
    "each", [each for each in PUBLIC if "." not in each.name or each.kind == "function"], ids=lambda each: each.name
)
def test_the_index_has_every_public_name(each):
    assert re.search(rf"(`|^### ){re.escape(each.name)}(`|\(|$)", api_page.page(), re.MULTILINE)


def test_the_index_has_every_method_and_property():
    members = [each for each in PUBLIC if each.kind in ("method", "property") and each.name not in BETWEEN_ROOMS]
    page = api_page.page()
    assert len(members) > 60
    for each in members:
        owner, _, name = each.name.rpartition(".")
        if f"### {owner}\n" in page:  # models and sets have the methods of their protocols
            part = page.split(f"### {owner}\n")[1].split("\n#")[0]
            assert f"| `{name}" in part
