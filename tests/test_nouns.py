"""What is equal has one hash, one token and one dictionary, in every process; and what a noun holds nobody changes."""

import functools
import json
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
from dask.base import tokenize
from nets import NETS
from tables import ACTIVATIONS, LOSSES, MODELS, SETS

import dask_nlis as nlis


def power(p, y, exponent):
    return np.abs(p - y) ** exponent


def power_derivative(p, y, exponent):
    return exponent * np.sign(p - y) * np.abs(p - y) ** (exponent - 1)


def partial_loss():
    return nlis.CustomLoss(functools.partial(power, exponent=2.0), functools.partial(power_derivative, exponent=2.0))


#: Nouns of equal value, made in two ways.
PAIRS = {
    "swish of -0": lambda: (nlis.Swish(0.0, 1, 0.0), nlis.Swish(-0.0, 1, -0.0)),
    "swish of NumPy numbers": lambda: (nlis.Swish(1, 2), nlis.Swish(np.float32(1), np.int8(2))),
    "leaky relu of -0": lambda: (nlis.LeakyRelu(0.0), nlis.LeakyRelu(-0.0)),
    "leaky relu of a NumPy number": lambda: (nlis.LeakyRelu(0.5), nlis.LeakyRelu(np.float16(0.5))),
    "delta as an integer": lambda: (nlis.Huber(1.0), nlis.Huber(np.int64(1))),
    "labels as an array": lambda: (nlis.LogisticLoss((-1, 1)), nlis.LogisticLoss(np.array([-1.0, 1.0]))),
    "labels as bools": lambda: (nlis.LogisticLoss(), nlis.LogisticLoss([False, True])),
    "degree as an integer": lambda: (
        nlis.Homogeneous(np.add, np.add, 1, 3),
        nlis.Homogeneous(np.add, np.add, 1.0, np.int8(3)),
    ),
    "tolerance of NumPy": lambda: (
        nlis.Numerical(np.add, np.add, 3, 0.5),
        nlis.Numerical(np.add, np.add, 3, np.float32(0.5)),
    ),
    "widths of NumPy": lambda: (nlis.DeepReluNetwork((2, 3)), nlis.DeepReluNetwork(np.array([2, 3]))),
    "units of NumPy": lambda: (nlis.ReluNetwork(2), nlis.ReluNetwork(np.uint8(2), per_unit=np.False_)),
    "intercept of NumPy": lambda: (nlis.Linear(False), nlis.Linear(np.False_)),
    "partial functions": lambda: (partial_loss(), partial_loss()),
}


@pytest.mark.parametrize("made", PAIRS.values(), ids=PAIRS)
def test_equal_nouns_have_one_hash_one_token_and_one_repr(made):
    one, other = made()
    assert one == other
    assert hash(one) == hash(other)
    assert tokenize(one) == tokenize(other)
    assert repr(one) == repr(other) or "partial" in repr(one)


def test_theta_of_minus_zero_is_theta_of_zero(rng):
    x, y = rng.normal(size=(20, 2)), rng.normal(size=20)
    A, B = (nlis.dual_matrix(nlis.Problem(nlis.Linear()), x, y, theta=[zero, 1.0, zero]) for zero in (0.0, -0.0))
    assert A == B
    assert hash(A.rule) == hash(B.rule)
    nlis.leverage_scores(B, nlis.factorize(A))
    assert hash(nlis.Ball(1.0, [0.0, 1.0])) == hash(nlis.Ball(1.0, [-0.0, 1.0]))


ALL = {
    **{f"activation {name}": phi.activation for name, phi in ACTIVATIONS.items()},
    **{f"loss {name}": loss for name, loss in LOSSES.items()},
    **{f"model {name}": model for name, model in (MODELS | NETS).items()},
    **{f"set {name}": part for name, part in SETS.items() if part is not None},
    "partial functions": partial_loss(),
}


@pytest.mark.parametrize("noun", ALL.values(), ids=ALL)
def test_every_noun_is_itself_after_pickling_and_shows_itself(noun):
    there = pickle.loads(pickle.dumps(noun))
    assert there == noun
    assert hash(there) == hash(noun)
    assert tokenize(there) == tokenize(noun)
    assert type(noun).__name__ in repr(noun)
    assert "<table>" in noun._repr_html_()
    assert noun != object()


def tokens():
    """Tokens of all nouns, and of a matrix and a factor of each kind."""
    x, y = np.arange(30.0).reshape(10, 3) ** 1.5, np.arange(10.0)
    made = dict(ALL)
    for name in ("swish 1, 2", "linear"):
        A = nlis.dual_matrix(nlis.Problem(MODELS[name], constraint=nlis.Ball(2.0)), x, y, theta=[1, 2, 3, 4])
        made[f"matrix {name}"] = A.token
        made[f"rule {name}"] = nlis.factorize(A, method="tsqr").rule_token
    return {name: tokenize(noun) for name, noun in made.items()}


def test_tokens_do_not_depend_on_the_process_or_its_hash_seed():
    program = "import json, test_nouns; print(json.dumps(test_nouns.tokens()))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), *sys.path])}
    found = [
        json.loads(
            subprocess.run(
                [sys.executable, "-c", program],
                env=environment | {"PYTHONHASHSEED": seed},
                check=True,
                capture_output=True,
                text=True,
            ).stdout
        )
        for seed in ("1", "77")
    ]
    assert found[0] == found[1]


def as_json(noun):
    return json.loads(json.dumps(noun.to_dict(), default=lambda array: array.tolist()))


@pytest.mark.parametrize("method", ["gram", "auto", "tsqr", "sketch", "sketch-only"])
@pytest.mark.parametrize("condition", [1.0, 1e5])
def test_a_factor_goes_through_json(method, condition, rng):
    if method == "gram" and condition > 100:
        return
    x = rng.normal(size=(50, 4)) @ np.linalg.qr(rng.normal(size=(4, 4)))[0] * np.geomspace(1, condition, 4)
    x[:, 1] = x[:, 1] / condition + x[:, 0]
    factor = nlis.factorize(x, method=method)
    again = nlis.Factor.from_dict(as_json(factor))
    assert again == factor
    assert hash(again) == hash(factor)
    assert tokenize(again) == tokenize(factor)
    np.testing.assert_array_equal(nlis.leverage_scores(x, again), nlis.leverage_scores(x, factor))


@pytest.mark.parametrize("model", [model for model in NETS.values() if not hasattr(model, "value")], ids=str)
def test_a_problem_goes_through_json(model):
    problem = nlis.Problem(model, nlis.Huber(0.5), constraint=nlis.Ball(3.0, [0.0, 1.0]))
    assert nlis.Problem.from_dict(as_json(problem)) == problem


def test_nobody_writes_into_a_factor(rng):
    x = rng.normal(size=(50, 4))
    factor = nlis.factorize(x)
    scores = nlis.leverage_scores(x, factor)
    for name in ("r", "singular_values", "column_scale", "whitener"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(factor, name)[0] = 9.0
        factor.to_dict()[name][0] = 9.0
    given = factor.to_dict()
    again = nlis.Factor.from_dict(given)
    given["whitener"][:] = 9.0
    for kept in (factor, again):
        np.testing.assert_array_equal(nlis.leverage_scores(x, kept), scores)


class Cubic:
    """An activation of the user's own."""

    at_zero, domain = 0.0, (-np.inf, np.inf)

    def value(self, t):
        return t**3

    def derivative(self, t):
        return 3 * t**2

    def second_derivative(self, t):
        return 6 * t

    def secant(self, t):
        return t**2

    def secant_bounds(self, lower=-np.inf, upper=np.inf):
        return 0.0, np.inf


def test_what_no_file_may_name_has_no_dictionary():
    problem = nlis.Problem(nlis.SingleIndex(Cubic()))
    with pytest.raises(nlis.InputTypeError, match="Problem activation is a Cubic, which no file may name"):
        problem.to_dict()
    with pytest.raises(nlis.InputError, match="noun='Linear' is no Problem"):
        nlis.Problem.from_dict(nlis.Problem(nlis.Linear()).to_dict()["model"])
