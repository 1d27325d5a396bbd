"""dask-nlis plan: the problem from names or a file, the same numbers as nlis.plan, and exit code 2 for what is refused."""

import json
import re

import click
import h5py
import numpy as np
import pytest
import zarr
from click.testing import CliRunner
from counting import no_compute, rows_of

import dask_nlis as nlis
from dask_nlis.cli.main import group, main
from dask_nlis.cli.problems import problem_from

X, Y = rows_of(31, 400, 3)
MODEL = ["--model", "single-index", "--activation", "swish:c1=1,c2=2"]
PROBLEM = nlis.Problem(nlis.SingleIndex(nlis.Swish(c1=1, c2=2)))


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """The same data as a Zarr group, an HDF5 file and two NPY files."""
    folder = tmp_path_factory.mktemp("plan")
    stored = zarr.open_group(folder / "data.zarr", mode="w")
    with h5py.File(folder / "data.h5", "w") as file:
        for name, values in (("X", X), ("y", Y), ("v", np.ones(400))):
            stored.create_array(name, data=values, chunks=(100, *values.shape[1:]))
            file.create_dataset(name, data=values)
            np.save(folder / f"{name}.npy", values)
    return folder


def plan(*arguments):
    """Output of the command, which must succeed."""
    result = CliRunner().invoke(group, ["plan", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_the_command_shows_the_plan_of_the_function(store):
    text = plan(store / "data.zarr", "--y", "y", *MODEL, "--size", "100", "--block-bytes", "2400", "--no-calibrate")
    with no_compute():
        x, y = nlis.open_rows(store / "data.zarr", X="X", y="y", block_bytes=2400)
    found = nlis.plan(PROBLEM, x, y, size=100, calibrate=False)
    assert all(line in text for line in (*found.lines(), found.note))
    for each in found.passes:
        assert any(line.startswith(each.label) and f"{each.tasks:,}" in line for line in text.splitlines())
    assert " s" in plan(store / "data.zarr", "--y", "y", *MODEL).splitlines()[2]  # with the time, from one block


@pytest.mark.parametrize("data", ["data.zarr", "data.h5", "X.npy"])
def test_json_is_one_object_with_the_same_numbers_for_every_kind_of_data(data, store):
    names = ("y", "v") if data != "X.npy" else (store / "y.npy", store / "v.npy")
    arguments = [store / data, "--y", names[0], "--weight", names[1], *MODEL, "--size", "0.25", "--scores", "leverage"]
    found = json.loads(plan(*arguments, "--scheme", "multinomial", "--no-calibrate", "--json"))
    expected = nlis.plan(
        PROBLEM, X, Y, size=100, scores="leverage", scheme="multinomial", sample_weight=np.ones(400), calibrate=False
    )
    assert [found[name] for name in ("reads", "size", "flops", "block_bytes")] == [
        expected.reads, expected.size, expected.flops, expected.block_bytes,
    ]  # fmt: skip
    assert [each["label"] for each in found["passes"]] == [each.label for each in expected.passes]


# Options: the problem they name.
NAMED = {
    (None, "linear", None, None, None): nlis.Problem(nlis.Linear()),
    (None, "linear:intercept=false", None, "huber:delta=1.5", None): nlis.Problem(nlis.Linear(False), nlis.Huber(1.5)),
    (None, "linear", None, "logistic-loss:labels=-1/1", "ball:radius=1e1"): nlis.Problem(
        nlis.Linear(), nlis.LogisticLoss((-1, 1)), constraint=nlis.Ball(10.0)
    ),
    (
        None,
        "single-index",
        "leaky-relu:slope=.1",
        "absolute-error:on_singular=zero",
        "box:lower=-1,upper=1",
    ): nlis.Problem(nlis.SingleIndex(nlis.LeakyRelu(0.1)), nlis.AbsoluteError("zero"), constraint=nlis.Box(-1, 1)),
    (None, "relu-network:n_hidden=5,hidden_bias=true", "tanh", None, "amplitude-band:lower=1,budget=50"): nlis.Problem(
        nlis.ReluNetwork(5, nlis.Tanh(), hidden_bias=True), constraint=nlis.AmplitudeBand(1, 50)
    ),
    (None, "deep-relu-network:widths=4/3", None, None, None): nlis.Problem(nlis.DeepReluNetwork((4, 3))),
}


@pytest.mark.parametrize("options", NAMED)
def test_names_with_numbers_make_the_problem(options):
    assert problem_from(*options) == NAMED[options]


# What is given: (options, what the message must say).
REFUSED = {
    "no problem": ([], "no problem is named"),
    "no activation": (["--model", "single-index"], "--model single-index needs activation; give --activation"),
    "an unknown model": (["--model", "forest"], "--model 'forest' is not known; give one of linear, single-index"),
    "code": (["--model", "linear", "--loss", "__import__('os')"], "is not known"),
    "code as a value": (["--model", "linear", "--loss", "huber:delta=1+1"], r"delta='1\+1' is no value"),
    "no value": (["--model", "linear", "--loss", "huber:delta"], "'delta' is no key=value"),
    "twice": (["--model", "linear", "--loss", "huber:delta=1,delta=2"], "'delta=2' is no key=value of its own"),
    "an unknown key": (["--model", "linear:slope=1"], "--model linear has no 'slope'; it takes intercept"),
    "no argument": (["--model", "linear", "--loss", "huber"], "--loss huber needs delta; give huber:delta="),
    "an activation too many": (["--model", "linear", "--activation", "tanh"], "--model linear has no 'activation'"),
    "a value that the class refuses": (["--model", "linear", "--constraint", "ball:radius=-1"], "radius"),
    "a file besides": (["--problem", "p.toml", "--model", "linear"], "--problem holds the whole problem"),
    "no such file": (["--problem", "nowhere.toml"], "does not exist"),
    "a file of another kind": (["--problem", "p.yaml"], r"ends in .toml or .json"),
    "no such data": (["--model", "linear", "--y", "z"], "--y 'z' is no array of this group"),
    "no labels": (["--model", "linear"], "--y is missing, but --scores 'two-stage' need labels; give --y"),
    "size": (["--model", "linear", "--y", "y", "--size", "many"], "'many' is no number of rows"),
    "memory": (["--model", "linear", "--y", "y", "--memory-limit", "10 MB"], "needs about .* but may use 9.54 MiB"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_ends_with_exit_code_2_and_one_line_of_reason(case, store, capsys):
    options, says = REFUSED[case]
    with pytest.raises(SystemExit) as left:
        main(["plan", str(store / "data.zarr"), *options])
    assert left.value.code == 2
    error = capsys.readouterr().err
    assert re.search(says, error), error
    assert "Traceback" not in error


TOML = """
[model]
noun = "SingleIndex"
[model.activation]
noun = "Swish"
c1 = 1
c2 = 2
[constraint]
noun = "Ball"
radius = 10.0
"""


def test_a_problem_comes_from_a_file_as_to_dict_writes_it_and_toml_may_leave_defaults_out(tmp_path):
    problem = nlis.Problem(nlis.SingleIndex(nlis.Swish(c1=1, c2=2)), constraint=nlis.Ball(10.0))
    (tmp_path / "p.json").write_text(json.dumps(problem.to_dict()))
    (tmp_path / "p.toml").write_text(TOML)
    for name in ("p.json", "p.toml"):
        assert problem_from(tmp_path / name, None, None, None, None) == problem
    for text in ("[model]\nnoun = 'os'", "[model]\nnoun = 'Swish'\nc3 = 1", "not toml", "model = 1", ""):
        (tmp_path / "q.toml").write_text(text)
        with pytest.raises((nlis.InputError, nlis.InputTypeError)) as caught:
            problem_from(tmp_path / "q.toml", None, None, None, None)
        assert len(str(caught.value)) <= 300
    (tmp_path / "q.json").write_text("[1]")
    with pytest.raises(nlis.InputError, match="holds no table"):
        problem_from(tmp_path / "q.json", None, None, None, None)
    with pytest.raises(click.UsageError):
        problem_from(None, None, None, None, None)
