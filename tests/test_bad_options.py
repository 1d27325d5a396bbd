"""Bad inputs, second part: theta, sizes, seeds, sets, models, stores and paths (rows 25-84 of the catalogue).

Refused from metadata alone, under a scheduler that forbids any compute.
"""

import pickle
from functools import partial

import dask.array as da
import numpy as np
import pytest
import zarr
from counting import no_compute
from refusals import LAZY, LINEAR, LOCK, SWISH, TYPE, VALUE, X, Y, check, dual, matrix, refused

import dask_nlis as nlis

SQUARES = LAZY[:, 0] ** 2
SOME = np.r_[np.ones(5), np.zeros(9)]


def residual(prediction, y, lock=None):
    return prediction - y


def torch_like(theta):
    """A tensor of a torch that need not be there."""
    return type("Tensor", (), {"__module__": "torch", "__array__": lambda self, *_: theta})()


#: Number and name: (call, error, what the message must say).
BEFORE_COMPUTE = {
    "25 NaN in theta": (lambda: dual([0, 1, np.nan, 3]), VALUE, r"theta\[2\]=nan"),
    "25 infinity in theta": (lambda: dual([0, -np.inf, 0, 3]), VALUE, r"theta\[1\]=-inf"),
    "27 theta too short": (lambda: dual(np.zeros(3)), VALUE, r"theta .*\(3,\).* expects \(4,\)"),
    "27 theta too long": (lambda: nlis.total_loss(SWISH, X, Y, np.zeros(5)), VALUE, r"theta .*\(5,\).*\(4,\)"),
    "28 theta as a table": (lambda: dual(np.zeros((1, 4))), VALUE, r"theta .*\(1, 4\).*\(4,\)"),
    "28 three dimensions": (lambda: nlis.total_loss(SWISH, X, Y, np.zeros((1, 1, 4))), VALUE, r"theta .*\(1, 1, 4\)"),
    "31 text as theta": (lambda: dual("ones"), TYPE, "theta is str"),
    "31 text inside theta": (lambda: dual([0, 1, 2, "three"]), TYPE, "theta is list"),
    "51 size 0": (lambda: nlis.draw(LAZY[:, 0] ** 2, 0), VALUE, "size=0 .*positive integer"),
    "51 size 2.5": (lambda: nlis.draw(LAZY[:, 0] ** 2, 2.5), TYPE, "size=2.5 is float"),
    "51 size as text": (lambda: nlis.run(SWISH, LAZY, Y, size="10"), TYPE, "size='10' is str"),
    "52 size above n": (lambda: nlis.draw(LAZY[:, 0] ** 2, 21, scheme="poisson"), VALUE, "size=21 .*20 rows"),
    "57 c1 below 0": (lambda: nlis.Swish(c1=-1, c2=2), VALUE, "c1=-1.*0 <= c1 <= c2"),
    "57 c1 above c2": (lambda: nlis.Swish(c1=3, c2=2), VALUE, "c1=3, c2=2"),
    "57 zeta NaN": (lambda: nlis.Swish(1, 2, zeta=np.nan), VALUE, "zeta=nan.*finite"),
    "58 negative seed": (lambda: nlis.draw(LAZY[:, 0] ** 2, 5, seed=-1), VALUE, "seed=-1 is negative"),
    "58 Generator": (lambda: nlis.draw(LAZY[:, 0] ** 2, 5, seed=np.random.default_rng(0)), TYPE, "seed is a Generator"),
    "60 scores of another length": (
        lambda: nlis.top_rows(Y[:7], X=LAZY),
        VALUE,
        r"X has shape \(20, 3\), scores \(7,\)",
    ),
    "60 scores as a table": (lambda: nlis.draw(LAZY, 5), VALUE, r"scores have shape \(20, 3\)"),
    "61 empty box": (lambda: nlis.Box(lower=[0, 2], upper=[1, 1]), VALUE, "entry 1: lower exceeds upper"),
    "61 ball of no radius": (lambda: nlis.Ball(0), VALUE, "radius=0 "),
    "no kind of problem": (lambda: nlis.dual_matrix(nlis.Linear(), X, Y, theta=np.zeros(4)), TYPE, "problem is Linear"),
    "unknown device": (lambda: matrix(X, device="gpu"), VALUE, "device='gpu'.*'auto', 'cpu', 'cuda'"),
    "unknown missing": (lambda: matrix(X, missing="skip"), VALUE, "missing='skip'.*'raise' or 'drop'"),
    "block_bytes 0": (lambda: matrix(X, block_bytes=0), VALUE, "block_bytes=0 "),
    "block_bytes in words": (lambda: matrix(X, block_bytes="lots"), VALUE, "block_bytes='lots'"),
    "negative weights count": (lambda: matrix(X, Y, sample_weight=Y[:4]), VALUE, r"X and sample_weight .*\[20, 4\]"),
    "27 theta of a network": (
        lambda: nlis.dual_matrix(nlis.Problem(nlis.ReluNetwork(2)), X, Y, theta=np.zeros(7)),
        VALUE,
        r"theta .*\(7,\).* expects \(8,\) for the 3 columns of X: a1, b1\[x0\]",
    ),
    "29 lazy theta": (lambda: dual(da.ones(4)), TYPE, r"theta is a lazy Array; give theta\.compute\(\)"),
    "31 torch tensor as theta": (
        lambda: dual(torch_like(np.ones(4))),
        TYPE,
        r"torch Tensor.*theta\.detach\(\)\.cpu\(\)",
    ),
    "44 masked theta": (lambda: dual(np.ma.masked_greater(np.arange(4.0), 2)), TYPE, "theta is .*MaskedArray"),
    "48 group without the name of an array": (lambda: matrix("in.zarr"), VALUE, r"X is a Zarr group.*X \(20, 3\), y"),
    "48 no such array": (lambda: nlis.open_rows("in.zarr", X="Z"), VALUE, r"X='Z' .*X \(20, 3\), y \(20,\)"),
    "51 negative size": (lambda: nlis.draw(SQUARES, -3), VALUE, "size=-3 .*positive integer"),
    "51 size True": (lambda: nlis.draw(SQUARES, True), TYPE, "size=True is bool"),
    "52 systematic": (lambda: nlis.draw(SQUARES, 21, scheme="systematic"), VALUE, "size=21 .*20 rows"),
    "55 epsilon": (lambda: nlis.sample_size(3, 1.0), VALUE, "epsilon=1.0 .*between 0 and 1"),
    "55 delta NaN": (lambda: nlis.sample_size(3, 0.1, np.nan), VALUE, "delta=nan .*between 0 and 1"),
    "56 beta": (lambda: nlis.sample_size(3, 0.1, beta=1.5), VALUE, "beta=1.5 .*from 0 to 1"),
    "58 seed 1.5": (lambda: nlis.draw(SQUARES, 5, seed=1.5), TYPE, "seed=1.5 is float"),
    "61 half-spaces without a common point": (
        lambda: nlis.HalfSpaces([[1.0, 0], [-1, 0]], [-1.0, -1.0]),
        VALUE,
        "rows 0, 1 contradict each other",
    ),
    "63 negative radius": (lambda: nlis.Ball(-2.0), VALUE, "radius=-2.0 "),
    "65 degree 0": (lambda: nlis.Homogeneous(residual, residual, degree=0, n_params=3), VALUE, "degree=0 .*positive"),
    "65 degree below 0": (lambda: nlis.Homogeneous(residual, residual, degree=-1.5, n_params=3), VALUE, "degree=-1.5"),
    "68 lambda": (lambda: nlis.CustomLoss(lambda p, y: p, residual), TYPE, "value=.*lambda.* cannot be pickled"),
    "68 closure over a lock": (
        lambda: nlis.reference_matrix(
            nlis.Problem(nlis.Linear(), nlis.CustomLoss(residual, partial(residual, lock=LOCK))), X, Y
        ),
        TYPE,
        "problem holds what cannot be pickled",
    ),
    "69 unknown model": (
        lambda: nlis.Problem.from_dict(LINEAR.to_dict() | {"model": {"noun": "SingelIndex"}}),
        VALUE,
        "noun='SingelIndex' is not known; allowed: AbsoluteError, .*did you mean 'SingleIndex'",
    ),
    "69 unknown loss": (
        lambda: nlis.Problem.from_dict(LINEAR.to_dict() | {"loss": {"noun": "SquareError"}}),
        VALUE,
        "noun='SquareError' .*did you mean 'SquaredError'",
    ),
    "70 the store is there": (
        lambda: nlis.run(LINEAR, LAZY, Y, size=5, store="in.zarr"),
        nlis.StoreExistsError,
        "store='in.zarr' exists; give a new path",
    ),
    "73 dots in the name of an array": (lambda: nlis.open_rows("in.zarr", X="../X"), VALUE, r"X='\.\./X' "),
    "73 dots inside it": (lambda: nlis.open_rows("in.zarr", X="a/../../X"), VALUE, r"X='a/\.\./\.\./X' "),
    "74 password in the path": (lambda: nlis.open_rows("s3://me:s3cret@bucket/x", X="X"), VALUE, "path .*credentials"),
    "74 password in X": (lambda: matrix("s3://me:s3cret@bucket/x"), VALUE, "X .*credentials"),
    "75 no such path": (lambda: nlis.open_rows("gone.zarr", X="X"), nlis.MissingDataError, "path='gone.zarr' does not"),
    "75 no such X": (lambda: matrix("gone.zarr"), nlis.MissingDataError, "X='gone.zarr' does not exist"),
    "75 no run": (lambda: nlis.open_run("gone.zarr"), nlis.MissingDataError, "path='gone.zarr' holds no run"),
    "83 k of 0": (lambda: nlis.top_rows(SQUARES, 0), VALUE, "k=0 .*positive integer"),
    "83 k of 2.5": (lambda: nlis.suspects(X, k=2.5), TYPE, "k=2.5 is float"),
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder that holds in.zarr with X and y."""
    monkeypatch.chdir(tmp_path)
    group = zarr.create_group("in.zarr")
    group.create_array("X", data=X)
    group.create_array("y", data=Y)
    return tmp_path


@pytest.mark.parametrize("case", BEFORE_COMPUTE)
def test_refused_in_one_line_before_any_compute(case, folder):
    with no_compute():
        refused(BEFORE_COMPUTE[case])


def test_71_a_folder_that_cannot_be_written_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with no_compute(), pytest.raises(PermissionError, match=r"store='.*run'.*not writable"):
        nlis.run(LINEAR, LAZY, Y, size=5, seed=0, store=tmp_path / "run")


@pytest.mark.parametrize("store", ["in.zarr", "in.zarr/run", "in.zarr/X/run"])
def test_72_a_store_that_is_the_input_or_lies_inside_a_zarr_group_is_refused(store, folder):
    before = sorted(folder.rglob("*"))
    kind = nlis.StoreExistsError if store == "in.zarr" else VALUE
    with no_compute(), pytest.raises(kind, match=f"store='{store}' ") as caught:
        nlis.run(LINEAR, *nlis.open_rows("in.zarr", X="X", y="y"), size=5, seed=0, store=store)
    check(caught.value, kind)
    assert sorted(folder.rglob("*")) == before


def test_53_more_draws_than_rows_are_made_with_a_warning():
    with pytest.warns(nlis.NlisWarning, match="size=9 exceeds the 5 rows; rows are drawn repeatedly"):
        assert nlis.draw(np.ones(5), 9, seed=0).counts.sum() == 9


@pytest.mark.parametrize("scheme", ["poisson", "systematic"])
def test_54_more_rows_than_positive_scores_are_refused_without_replacement(scheme):
    refused((lambda: nlis.draw(SOME, 9, scheme=scheme, seed=0), VALUE, "size=9 exceeds the 5 positive scores"))


def test_58_no_seed_is_a_fresh_one_that_is_recorded():
    drawn = [nlis.draw(np.ones(50), 9) for _ in range(2)]
    assert drawn[0].seed != drawn[1].seed
    again = nlis.draw(np.ones(50), 9, seed=drawn[0].seed)
    assert again == drawn[0]


def test_83_84_ranks_are_clipped_with_a_warning_and_ties_go_to_the_smaller_row():
    scores = np.array([1.0, 0, 0, 1, 0])
    with pytest.warns(nlis.NlisWarning, match="k=9 exceeds the 5 finite scores"):
        assert nlis.top_rows(scores, 9).indices.tolist() == [0, 3, 1, 2, 4]
    assert nlis.bottom_rows(scores, 2).indices.tolist() == [1, 2]


TABLE = np.arange(240.0).reshape(80, 3) / 7
TEXTS = np.array(["a"] * 80)
_A = nlis.dual_matrix(LINEAR, TABLE, TABLE[:, 0] ** 2, theta=np.ones(4))
_SCORES = np.ones(80)
#: Verbs with an argument that is one number or one word.
SCALARS = {
    "certificate deep": lambda bad: nlis.certificate(_A, nlis.factorize(_A), nlis.draw(_SCORES, 9, seed=0), deep=bad),
    "compare max_bytes": lambda bad: nlis.compare(
        LINEAR, TABLE, _SCORES, {"a": _SCORES}, sizes=9, seeds=1, max_bytes=bad
    ),
    "compare mix": lambda bad: nlis.compare(LINEAR, TABLE, _SCORES, {"a": _SCORES}, sizes=9, seeds=1, mix=bad),
    "drift by": lambda bad: nlis.drift(LINEAR, TABLE, _SCORES, [np.ones(4), np.zeros(4)], by=bad),
    "dual_matrix block_bytes": lambda bad: nlis.dual_matrix(LINEAR, TABLE, theta=np.ones(4), block_bytes=bad),
    "dual_matrix device": lambda bad: nlis.dual_matrix(LINEAR, TABLE, theta=np.ones(4), device=bad),
    "dual_matrix missing": lambda bad: nlis.dual_matrix(LINEAR, TABLE, theta=np.ones(4), missing=bad),
    "draw scheme": lambda bad: nlis.draw(_SCORES, 9, scheme=bad),
    "draw seed": lambda bad: nlis.draw(_SCORES, 9, seed=bad),
    "draw size": lambda bad: nlis.draw(_SCORES, bad),
    "factorize method": lambda bad: nlis.factorize(TABLE, method=bad),
    "norm_scores log2_scale": lambda bad: nlis.norm_scores(TABLE, log2_scale=bad),
    "refit n_starts": lambda bad: nlis.refit(LINEAR, TABLE, _SCORES, _SCORES, n_starts=bad),
    "refit ridge": lambda bad: nlis.refit(LINEAR, TABLE, _SCORES, _SCORES, ridge=bad),
    "run rounds": lambda bad: nlis.run(LINEAR, TABLE, _SCORES, size=40, rounds=bad),
    "run scores": lambda bad: nlis.run(LINEAR, TABLE, _SCORES, size=40, scores=bad),
    "sample_size guarantee": lambda bad: nlis.sample_size(3, 0.3, guarantee=bad),
    "suspects by": lambda bad: nlis.suspects(_A, by=bad),
    "take max_bytes": lambda bad: nlis.draw(_SCORES, 9, seed=0).take(TABLE, max_bytes=bad),
}


@pytest.mark.parametrize("bad", [TABLE, TEXTS, da.from_array(TABLE, 20)], ids=["table", "texts", "lazy"])
@pytest.mark.parametrize("case", SCALARS)
def test_a_table_where_a_number_or_a_word_belongs_is_refused_in_one_line(case, bad):
    with pytest.raises(nlis.NlisError, match=r"; give ") as refused:
        SCALARS[case](bad)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) <= 300


def test_a_message_is_one_line_that_keeps_its_beginning_and_its_remedy():
    error = nlis.InputError(f"size={np.arange(500)!r} is not allowed; give a positive integer", row=3)
    assert str(error).startswith("size=array([ 0, 1, 2,")
    assert str(error).endswith(" is not allowed; give a positive integer")
    assert len(str(error)) <= 300
    assert "\n" not in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.row) == (str(error), 3)
    missing = nlis.MissingDataError("path='a  b' holds no run; check the path")
    assert str(missing) == "path='a  b' holds no run; check the path"
