"""At the ends of float64: an index that overflows, closed forms of norms that would, the largest and smallest delta."""

import mpmath as mp
import numpy as np
import pytest
from tables import ACTIVATIONS

import dask_nlis as nlis

LARGE = {
    **{name: nlis.SingleIndex(phi.activation) for name, phi in ACTIVATIONS.items()},
    "phi on the sum of units": nlis.ReluNetwork(2, nlis.Tanh()),
    "phi on each unit": nlis.ReluNetwork(2, nlis.Tanh(), per_unit=True),
    "squared units": nlis.ReluNetwork(2, nlis.Tanh(), unit=nlis.SquaredRelu()),
    "deep": nlis.DeepReluNetwork((2, 2), nlis.Logistic()),
}


@pytest.mark.parametrize("verb", [nlis.factorize, nlis.norm_scores])
@pytest.mark.parametrize("model", LARGE)
def test_an_index_that_overflows_is_reported_also_where_phi_levels_off(model, verb, rng):
    """A secant of 0 at an infinite index would pass for a row of zeros: rank 1 in place of 3."""
    x, y = rng.uniform(1, 2, size=(20, 2)), rng.normal(size=20)
    x[7] *= 1e200
    theta = np.full(LARGE[model].n_parameters(2), 1e200)
    theta[-1] *= not isinstance(LARGE[model], nlis.SingleIndex)
    A = nlis.dual_matrix(nlis.Problem(LARGE[model]), x, y, theta=theta)
    with pytest.raises(nlis.NonFiniteError, match=r"row [07], overflows in the model"):
        verb(A)


@pytest.mark.filterwarnings("ignore::dask_nlis.ScaleWarning")  # phi(0) beside rows of 1e-8
@pytest.mark.parametrize("power", [0, 100, 150, 200, 300])
@pytest.mark.parametrize("phi", [nlis.Tanh(), nlis.Logistic(), nlis.Arctan(), nlis.Softplus(), nlis.Swish(0, 1)])
def test_norms_are_those_of_the_rows_where_factors_leave_the_range_but_rows_do_not(phi, power, rng):
    x = rng.normal(size=(40, 2)) * 10.0**power
    A = nlis.dual_matrix(
        nlis.Problem(nlis.SingleIndex(phi, intercept=False)), x, theta=np.full(2, 1e10 if power <= 150 else 3.0)
    )
    rows = A.to_dask_array().compute()
    if np.abs(rows).max() > 1e154:  # the square of a row itself is no float64
        with pytest.raises(nlis.NonFiniteError, match="overflow at log2_scale=0; give log2_scale="):
            nlis.norm_scores(A)
        return
    np.testing.assert_allclose(nlis.norm_scores(A), (rows**2).sum(axis=1), rtol=1e-14)


def test_the_scale_of_norms_is_that_of_float64():
    for scale in (1101, -1101, 10**9):
        with pytest.raises(
            nlis.InputError, match=f"log2_scale={scale} is beyond any float64; give one from -1100 to 1100"
        ):
            nlis.norm_scores(np.eye(2), log2_scale=scale)
    np.testing.assert_array_equal(nlis.norm_scores(np.eye(2) * 2.0**-1074, log2_scale=-1074), [1.0, 1.0])


@pytest.mark.parametrize("delta", [2.2250738585072014e-308, 1e-300, 1e308, 1.7976931348623157e308])
@pytest.mark.parametrize("kind", [nlis.Huber, nlis.PseudoHuber])
def test_the_smallest_and_the_largest_delta_lose_no_digit(kind, delta):
    loss = kind(delta)
    a, b = np.meshgrid([0.0, 1e-300, 1e-20, 1.0, -3e5, 1e150], [0.0, 1e-299, -1.0, 2e150])
    a, b, y = a.ravel(), b.ravel(), np.zeros(a.size)

    def root(t):
        d = mp.mpf(delta)
        if kind is nlis.PseudoHuber:
            return t * mp.sqrt(2 / (1 + mp.sqrt(1 + (t / d) ** 2)))
        return t if abs(t) <= d else mp.sign(t) * mp.sqrt(2 * d * abs(t) - d * d)

    with mp.workdps(900), np.errstate(all="raise", under="ignore"):
        here, there = ([root(mp.mpf(v)) for v in part] for part in (a, b))
        np.testing.assert_allclose(loss.root(a, y), [float(v) for v in here], rtol=1e-15)
        step = [mp.mpf(s) - mp.mpf(t) for s, t in zip(a, b, strict=True)]
        moved = np.array([s != 0 for s in step])
        slope = [float((r - q) / s) if s else 1.0 for r, q, s in zip(here, there, step, strict=True)]
        np.testing.assert_allclose(loss.root_slope(a, b, y)[moved], np.array(slope)[moved], rtol=1e-14)
        np.testing.assert_allclose(loss.root_slope(y, y, y), 1.0, rtol=1e-15)
        assert loss.value(np.array([1.0]), np.array([0.0])) > 0


@pytest.mark.parametrize("loss", [nlis.SquaredError(), nlis.Huber(1e300), nlis.PseudoHuber(1e300)])
def test_a_loss_beyond_float64_is_infinite_without_a_warning(loss):
    assert loss.value(np.array([1e200]), np.array([0.0])) == np.inf


@pytest.mark.parametrize("kind", [nlis.Huber, nlis.PseudoHuber])
def test_a_subnormal_delta_is_refused(kind):
    with pytest.raises(nlis.InputError, match="delta=5e-324 is not allowed"):
        kind(5e-324)


def test_bad_weights_are_named_where_rows_with_missing_cells_are_dropped(rng):
    x, weight = rng.normal(size=(20, 2)), np.ones(20)
    x[2, 1], weight[5], weight[9] = np.nan, np.nan, -1.0
    A = nlis.reference_matrix(nlis.Problem(nlis.Linear()), x, rng.normal(size=20), sample_weight=weight, missing="drop")
    with pytest.raises(nlis.NonFiniteError, match=r"^sample_weight is .*row 5 \(2 rows"):
        nlis.factorize(A)
    labels = np.where(np.arange(20) % 2, 1.0, 0.0)
    labels[1] = 7.0
    A = nlis.reference_matrix(
        nlis.Problem(nlis.Linear(), nlis.LogisticLoss()), x, labels, sample_weight=weight, missing="drop"
    )
    with pytest.raises(nlis.NonFiniteError, match=r"^sample_weight is .*row 5 \(2 rows"):
        nlis.factorize(A)
    A = nlis.reference_matrix(nlis.Problem(nlis.Linear()), x[:2], sample_weight=np.full(2, 2**60))
    with pytest.raises(nlis.NonFiniteError, match=r"integer beyond 2\^53, at row 0"):
        nlis.factorize(A)
