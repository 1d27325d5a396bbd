"""Arrays that came over a socket lie anywhere in memory: every block function gives the bits of those that were made here."""

import dataclasses

import dask
import dask.array as da
import numpy as np
import pytest
from counting import rows_of, same_bits
from nets import NETS

import dask_nlis as nlis
from dask_nlis import phase
from dask_nlis.kernels.aligned import aligned
from dask_nlis.matrix.tasks import rows_block
from dask_nlis.scores.leverage import leverage_block
from dask_nlis.scores.norms import norm_block

N, D = 300, 4
MODELS = {"single index": nlis.SingleIndex(nlis.Tanh()), "linear": nlis.Linear()} | NETS


def moved(array, by=1):
    """The same numbers, so many bytes beyond where they should lie."""
    raw = np.empty(array.nbytes + 64, dtype=np.uint8)
    first = -raw.ctypes.data % 64 + by
    there = raw[first : first + array.nbytes].view(array.dtype).reshape(array.shape)
    there[...] = array
    return there


def moved_inside(value):
    """A job, a rule, a problem or a model with each of its arrays moved."""
    if isinstance(value, np.ndarray):
        return value if value.dtype == object else moved(value)
    if isinstance(value, tuple):
        parts = [moved_inside(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if dataclasses.is_dataclass(value) and type(value).__module__.startswith("dask_nlis."):
        new = dataclasses.replace(value)
        for field in dataclasses.fields(new):
            object.__setattr__(new, field.name, moved_inside(getattr(value, field.name)))
        return new
    return value


@pytest.mark.filterwarnings("ignore::dask_nlis.ScaleWarning")
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_rows_norms_and_leverage_are_those_of_arrays_made_here(name, weighted):
    model = MODELS[name]
    x, y = rows_of(3, N, D)
    weight = np.linspace(0.5, 2.0, N) if weighted else None
    problem = nlis.Problem(model)
    theta = np.linspace(-0.5, 0.7, model.n_parameters(D))
    A = nlis.dual_matrix(problem, x, y, theta=theta, sample_weight=weight)
    factor = nlis.factorize(A)
    whitener = factor.whitener, factor.correction
    job, far_job = A.job, moved_inside(A.job)
    assert not far_job.rule.theta.flags.aligned
    blocks, far = (x, y, weight, 0), (moved(x), moved(y), None if weight is None else moved(weight), 0)
    for task, options in (
        (rows_block, {}),
        (norm_block, {"log2_scale": 0}),
        (leverage_block, {"whitener": whitener, "tolerance": 1e-6}),
    ):
        moved_options = {key: moved_inside(value) for key, value in options.items()}
        found = task(*far, job=far_job, **moved_options)
        assert same_bits(found, task(*blocks, job=job, **options)), task.__name__


def test_softmax_of_several_outputs_too():
    x, y = rows_of(3, N, D)
    labels = (y > 0).astype(float) + (y > 1)
    problem = nlis.Problem(nlis.MultilayerPerceptron((3,), n_outputs=2), nlis.SoftmaxLoss(3))
    A = nlis.dual_matrix(problem, x, labels, theta=np.linspace(-0.5, 0.7, problem.model.n_parameters(D)))
    for task, options in ((rows_block, {}), (norm_block, {"log2_scale": 0})):
        found = task(moved(x), moved(labels), None, 0, job=moved_inside(A.job), **options)
        assert same_bits(found, task(x, labels, None, 0, job=A.job, **options))


def test_what_lies_right_is_not_copied_and_the_rest_is_equal():
    A = nlis.dual_matrix(nlis.Problem(nlis.Linear()), *rows_of(3, N, D), theta=np.ones(D + 1))
    job = A.job
    assert aligned(job) is job
    far = moved_inside(job)
    back = aligned(far)
    assert back == job
    assert back.rule.theta.flags.aligned
    assert not far.rule.theta.flags.aligned  # what others may hold is left as it is


@pytest.mark.parametrize(
    "dtype", [np.float64, np.float32, np.int64, np.dtype([("row", np.int64), ("score", np.float64)])]
)
def test_arrays_of_every_type_come_to_lie_at_their_size(dtype):
    array = np.zeros(9, dtype=dtype)
    for by in (1, 2, 4):
        found = aligned(moved(array, by))
        assert found.ctypes.data % (8 if by < 4 or found.dtype.itemsize > 4 else 4) == 0
        np.testing.assert_array_equal(found, array)
    box = np.empty((1, 1), dtype=object)
    box[0, 0] = {"r": [moved(np.ones(3))]}
    assert aligned(box)[0, 0]["r"][0].flags.aligned


def test_blocks_of_scores_and_of_x_are_brought_in_line_before_a_verb_sees_them():
    scores = np.random.default_rng(0).lognormal(size=5_000)
    x = np.random.default_rng(1).standard_normal((5_000, 3))
    graphs = [da.from_delayed(dask.delayed(each), each.shape, float) for each in (scores, moved(scores))]
    seen = []
    for given in graphs:
        seen.append(phase.on_blocks(given, "nlis-score", np.sum, {0: ()})[0])
    assert seen[0] == seen[1]
    assert nlis.draw(graphs[0], 500, seed=0) == nlis.draw(graphs[1], 500, seed=0)
    tables = [nlis.standardize(da.from_delayed(dask.delayed(each), each.shape, float)) for each in (x, moved(x))]
    assert tables[0].transform == tables[1].transform
