"""Nouns are lazy, verbs compute: what is read how often, and how many tasks that takes."""

import dask.array as da
import numpy as np
import pytest
import zarr
from counting import CountingArray, Tasks, executed, no_compute, rows_of

import dask_nlis as nlis

PROBLEM = nlis.Problem(nlis.SingleIndex(nlis.Swish(c1=1, c2=2)))
THETA = np.array([0.3, -0.2, 0.1, 0.05])
BLOCKS, ROWS = 160, 10
X, Y = rows_of(21, BLOCKS * ROWS, 3)


def lazy_pair(values=X):
    """Counting X and y, and Dask arrays over them in equal blocks."""
    counted = CountingArray(values), CountingArray(Y)
    return counted, tuple(array.dask(ROWS) for array in counted)


def dual(x, y, **options):
    return nlis.dual_matrix(PROBLEM, x, y, theta=THETA, **options)


class Plain:
    """What h5py and the like offer: a shape, a dtype, chunks and slicing."""

    def __init__(self, counted, chunks):
        self.counted, self.shape, self.dtype, self.chunks = counted, counted.shape, counted.dtype, chunks

    def __getitem__(self, index):
        return self.counted[index]


def test_nouns_of_lazy_data_read_nothing_and_compute_nothing():
    counted, (x, y) = lazy_pair()
    factor = nlis.factorize(dual(x, y))
    for array in counted:
        array.reads()
    with no_compute():
        A = dual(x, y, sample_weight=y * y)
        R = nlis.reference_matrix(PROBLEM, x, y)
        scores = [nlis.leverage_scores(dual(x, y), factor), nlis.norm_scores(A), nlis.norm_scores(R)]
        for noun in (A, R, factor):
            repr(noun), noun._repr_html_(), hash(noun), A.token, A.shape, A.block(3), A.to_dask_array()
    assert all(isinstance(s, da.Array) and s.shape == (BLOCKS * ROWS,) and s.dtype == np.float64 for s in scores)
    assert [array.reads() for array in counted] == [0, 0]


def test_an_array_like_is_read_only_by_the_verbs_in_whole_chunks_of_its_own():
    counted = CountingArray(X)
    plain = Plain(counted, chunks=(5, 3))
    with no_compute():
        A = nlis.reference_matrix(PROBLEM, plain, block_bytes=23 * 24)
    assert A.source.chunks == (20,) * 80
    assert counted.reads() == 0
    factor = nlis.factorize(A)
    assert counted.reads() == 1
    with no_compute():  # the same object is the same matrix
        nlis.leverage_scores(nlis.reference_matrix(PROBLEM, plain, block_bytes=23 * 24), factor)


def test_each_verb_reads_as_often_as_it_says():
    counted, (x, y) = lazy_pair()

    def reads():
        return tuple(array.reads() for array in counted)

    A = dual(x, y)
    factor = nlis.factorize(A)
    assert reads() == (1, 1)
    assert factor.reads == 1
    scores = nlis.leverage_scores(A, factor)
    for scheme in ("multinomial", "poisson"):
        nlis.draw(scores, 100, scheme=scheme, seed=0)
        assert reads() == (1, 1)
    nlis.norm_scores(A).compute()
    assert reads() == (1, 1)
    nlis.total_loss(PROBLEM, x, y, np.tile(THETA, (50, 1)))  # one read, however many thetas
    assert reads() == (1, 1)
    nlis.standardize(x, y)
    assert reads() == (1, 1)
    nlis.top_rows(scores, 5)
    assert reads() == (1, 1)


@pytest.mark.parametrize(("gap", "reads"), [(1e-1, 1), (1e-5, 2), (1e-9, 3)])
def test_an_ill_conditioned_factor_reads_more_often_and_says_so(gap, reads):
    close = X.copy()
    close[:, 1] = close[:, 0] + gap * close[:, 1]
    counted, (x, y) = lazy_pair(close)
    factor = nlis.factorize(dual(x, y))
    assert reads == (1 if factor.condition <= 1e2 else 2 if factor.condition <= 1e7 else 3)
    assert factor.reads == reads
    assert [array.reads() for array in counted] == [reads, reads]


def test_take_reads_only_the_blocks_that_hold_drawn_rows():
    counted, (x, y) = lazy_pair()
    sample = nlis.draw(np.where(np.arange(BLOCKS * ROWS) % 400 < 2, 1.0, 0.0), 50, seed=0)
    sample.take(x, y)
    expected = np.repeat(np.arange(BLOCKS) % 40 == 0, ROWS)
    for array in counted:
        assert np.array_equal(array.rows, expected.astype(int))


# Layers of Dask's own tsqr in the merge of the stacks, whose names are not ours to choose.
TSQR = ("qr", "stack", "getitem")


def names(keys):
    return [key if isinstance(key, str) else key[0] for key in keys]


def y_of(kind, folder):
    if kind == "NumPy":
        return Y
    if kind == "Dask":
        return da.from_array(Y, ROWS)
    stored = zarr.create_array(folder, shape=Y.shape, dtype="f8", chunks=(ROWS,))
    stored[...] = Y
    return stored


@pytest.mark.parametrize("y_kind", ["NumPy", "Dask", "Zarr"])
@pytest.mark.parametrize("x_kind", ["storage", "memory"])
def test_every_pass_takes_one_task_a_block_under_a_label_of_its_own(x_kind, y_kind, tmp_path):
    y = y_of(y_kind, tmp_path / "y")
    x = CountingArray(X).dask(ROWS) if x_kind == "storage" else da.from_array(X, (ROWS, 3))
    A = dual(x, y)
    with Tasks() as tasks:
        factor = nlis.factorize(A)
    (read,) = (names(keys) for keys in tasks.phases)
    assert all(name.startswith("nlis-factor") for name in read)
    assert len(read) <= 1.1 * BLOCKS
    with Tasks() as tasks:
        nlis.factorize(A, method="tsqr")
    read, *merge = (names(keys) for keys in tasks.phases)
    assert all(name.startswith("nlis-factor") for name in read)
    assert len(read) <= 1.2 * BLOCKS
    assert sum(map(len, merge)) <= 0.4 * BLOCKS
    assert all(name.startswith(("nlis-merge", "nlis-factor-stack", *TSQR)) for keys in merge for name in keys)

    scores = nlis.leverage_scores(A, factor)
    assert executed(scores) == executed(nlis.norm_scores(A)) == executed(A.to_dask_array()) == BLOCKS
    with Tasks() as tasks:
        sample = nlis.draw(scores, 200, seed=0)
    assert set(tasks.labels) == {"nlis-score", "nlis-draw"}
    assert tasks.labels["nlis-score"] == BLOCKS
    with Tasks() as tasks:
        sample.take(x, y)
    assert set(tasks.labels) == {"nlis-gather"}
    assert tasks.labels["nlis-gather"] <= 2 * len(np.unique(sample.indices // ROWS))  # X and y
    with Tasks() as tasks:
        nlis.total_loss(PROBLEM, x, y, np.tile(THETA, (3, 1)))
    assert tasks.labels == {"nlis-loss": BLOCKS}


def graph_of(array):
    return dict(array.__dask_optimize__(array.dask, array.__dask_keys__()))


def test_the_graph_of_lazy_scores_holds_blocks_one_whitener_and_few_constants():
    _, (x, y) = lazy_pair()
    A = dual(x, y)
    scores = nlis.leverage_scores(A, nlis.factorize(A))
    graph = graph_of(scores)
    assert len(graph) <= BLOCKS + 5
    (whitener,) = (key for key in graph if "whitener" in str(key))
    assert sum(whitener in node.dependencies for node in graph.values()) == BLOCKS
    for lazy in (scores, nlis.norm_scores(A), A.to_dask_array()):  # X is read inside the task, never a result
        assert not [key for key in graph_of(lazy) if key[0] in (x.name, y.name)]


def test_theta_is_copied_on_entry():
    theta = THETA.copy()
    x = da.from_array(X, (ROWS, 3))
    A = nlis.dual_matrix(PROBLEM, x, Y, theta=theta)
    scores, token = nlis.norm_scores(A), A.token
    expected = nlis.norm_scores(dual(x, Y)).compute()
    theta[:] = 1e9
    assert np.array_equal(scores.compute(), expected)
    assert A.token == token
    assert not A.theta.flags.writeable


@pytest.mark.parametrize("build", ["numpy", "pandas", pytest.param("xarray", marks=pytest.mark.adapters)])
def test_in_memory_input_is_computed_at_the_call(build):
    x = X
    if build != "numpy":
        library = pytest.importorskip(build)
        x = library.DataFrame(X) if build == "pandas" else library.DataArray(X)
    with no_compute():
        A = nlis.reference_matrix(PROBLEM, x, Y)
    with Tasks() as tasks:
        scores = nlis.leverage_scores(A, nlis.factorize(A))
    assert tasks.computes >= 2
    with no_compute():
        assert np.asarray(scores).shape == (BLOCKS * ROWS,)
