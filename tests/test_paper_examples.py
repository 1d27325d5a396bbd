"""Examples that draw a picture and end beside the paper's claim: they run, their figures are those of the scores, and
no picture is overwritten unasked."""

import re
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner
from scripts import EXAMPLES, example

import dask_nlis as nlis


def started(name, *arguments, code=0):
    """What an example prints in a process of its own."""
    ran = subprocess.run(
        [sys.executable, EXAMPLES / f"{name}.py", *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert ran.returncode == code, ran.stdout + ran.stderr
    return ran


def drawn(folder, name, shape=None):
    """The picture alone in a folder: a drawing with many colours, of the shape given."""
    plt = pytest.importorskip("matplotlib.pyplot")
    assert [path.name for path in folder.iterdir()] == [f"{name}.png"]
    pixels = plt.imread(folder / f"{name}.png")
    assert shape is None or pixels.shape == shape
    assert len(np.unique(pixels.reshape(-1, 4), axis=0)) > 50
    return pixels


def rows(output):
    """Cells of the lines of tables."""
    return [
        [cell.strip() for cell in line.strip("│ ").split("│")] for line in output.splitlines() if line.startswith("│")
    ]


def test_a_picture_that_is_there_is_not_drawn_over_unasked(tmp_path):
    drawing = example("drawing")
    assert drawing.free_path(tmp_path / "new", "a.png", False) == tmp_path / "new" / "a.png"
    (tmp_path / "a.png").write_bytes(b"kept")
    with pytest.raises(drawing.click.ClickException, match=r"a\.png is there already; give another --folder"):
        drawing.free_path(tmp_path, "a.png", False)
    assert drawing.free_path(tmp_path, "a.png", True).read_bytes() == b"kept"


def test_differences_are_told_at_three_standard_errors():
    medians = example("medians")
    a = np.array([1.0, 1.1, 0.9, 1.0])
    assert medians.apart(a, a + 1 + 0.01 * np.arange(4))[2] == "below"
    assert medians.apart(a + 1, a + 0.01 * np.arange(4))[2] == "above"
    mean, error, how = medians.apart(a, a[::-1] * np.array([1, 2, 0.5, 1]))
    assert how == "not to be told from"
    values = a - a[::-1] * np.array([1, 2, 0.5, 1])
    assert (mean, error) == (values.mean(), pytest.approx(values.std(ddof=1) / 2))
    assert medians.median(np.full(9, 0.5)) == "0.50 ± 0.00"


@pytest.mark.adapters
def test_figure_2_counts_what_is_at_both_ends_of_every_score(tmp_path):
    pytest.importorskip("matplotlib")
    arguments = ["--seeds", "2", "--size", "400", "--data", "digits", "--folder", tmp_path]
    ran = started("paper_figure2", *arguments)
    drawn(tmp_path, "paper_figure2")
    module = example("paper_figure2")
    table = {cells[0]: cells[1:] for cells in rows(ran.stdout) if cells[0] in module.SCORES}
    assert list(table) == list(module.SCORES)
    assert table["linear leverage"][2:] == ["100.0% ± 0.0%", "100.0%"]

    X, y = module.load("digits", 400)
    runs = [module.trained(X, y, seed) for seed in range(2)]
    wrong = [run.wrong[np.argsort(-run.scores["loss"], kind="stable")[:100]].mean() for run in runs]
    assert table["loss"][0].startswith(f"{np.mean(wrong):.1%}")
    assert ran.stdout.splitlines()[-1].startswith("digits: of the images with the highest nonlinear leverage")

    again = started("paper_figure2", *arguments, code=1)
    assert "paper_figure2.png is there already; give another --folder, or --overwrite" in again.stderr
    assert not again.stdout


@pytest.mark.adapters
def test_loss_finds_what_the_network_gets_wrong_and_leverage_is_that_of_the_definition():
    pytest.importorskip("matplotlib")
    module = example("paper_figure2")
    X, y = module.load("digits", 300)
    run = module.trained(X, y, 0)
    hat = X @ np.linalg.pinv(X)
    np.testing.assert_allclose(run.scores["linear leverage"], np.diag(hat), atol=1e-10)
    np.testing.assert_allclose(run.scores["linear norm"], (X**2).sum(axis=1), rtol=1e-12)
    high, low = module.extremes(run.scores["loss"], 50)
    assert run.scores["loss"][high].min() > run.scores["loss"][low].max()
    assert not run.wrong[low].any()
    assert nlis.leverage_scores(X, nlis.factorize(X)).sum() == pytest.approx(np.linalg.matrix_rank(X))


@pytest.mark.adapters
def test_four_hands_compute_the_same_and_are_compared_in_one_table(tmp_path):
    ran = started("side_by_side", "--seeds", "4", "--size", "300", "--folder", tmp_path)
    drawn(tmp_path, "side_by_side")
    assert not ran.stderr
    differences = [float(found) for found in re.findall(r"at most (\S+) apart", ran.stdout)]
    assert len(differences) == 3
    assert max(differences) < 1e-6
    table = rows(ran.stdout)
    hands = [cells[0].partition(":")[0] for cells in table]
    assert [hand for hand in hands if hand] == [
        "at chance", "the paper", "the paper", "optimal subsampling", "optimal subsampling", "dask_nlis", "dask_nlis",
        "statsmodels",
    ]  # fmt: skip
    said = re.search(
        r"of linear leverage, and (.*?) \(([+-][\d.]+), s\.e\. ([\d.]+)\) that of uniform rows", ran.stdout
    )
    gap, error = float(said[2]), float(said[3])
    assert said[1] == ("less than" if gap < -3 * error else "more than" if gap > 3 * error else "not to be told from")


@pytest.mark.adapters
def test_the_formulas_of_the_rivals_are_those_of_their_papers(rng):
    pytest.importorskip("matplotlib")
    module = example("side_by_side")
    X = rng.normal(size=(400, 3))
    data = module.Data(X, np.column_stack([X, np.ones(400)]), (rng.random(400) < 0.4).astype(float))
    theta = rng.normal(size=4)
    # The law of the adjoint: f(theta) = f(0) + <theta, f*>, f the root of the loss with the sign of the error.
    F = module.adjoint_rows(data, theta)
    loss = np.logaddexp(0, (1 - 2 * data.y) * (data.X1 @ theta))
    np.testing.assert_allclose((F[:, :-1] @ theta + F[:, -1]) ** 2, loss, rtol=1e-12)
    np.testing.assert_allclose(module.leverage_by_svd(F), np.diag(F @ np.linalg.pinv(F)) / 5, atol=1e-13)

    weights = rng.uniform(0.1, 5, 400)
    ours = nlis.refit(module.PROBLEM, X, data.y, weights)
    np.testing.assert_allclose(module.weighted(data.X1, data.y, weights).theta, ours.theta, atol=1e-6)
    mine, theirs = module.weighted(data.X1, data.y, np.ones(400)), module.by_statsmodels(data.X1, data.y)
    np.testing.assert_allclose(mine.theta, theirs.theta, atol=1e-8)
    np.testing.assert_allclose(mine.errors, theirs.errors, rtol=1e-6)

    # Draws with weights 1 / (s tau) estimate sums over all rows; four standard errors of the mean of 400.
    tau, of = rng.uniform(0.1, 1, 400), rng.normal(size=400)
    sums = []
    for seed in range(400):
        drawn_rows, shares = module.with_replacement(tau, 20, np.random.default_rng(seed))
        sums.append(shares @ of[drawn_rows])
    assert abs(np.mean(sums) - of.sum()) < 4 * np.std(sums) / 20


@pytest.mark.adapters
def test_checkpoints_are_compared_with_the_last_one_by_drift_and_by_samples(tmp_path):
    ran = started("checkpoints", "--seeds", "5", "--size", "1500", "--data", "california", "--folder", tmp_path)
    drawn(tmp_path, "checkpoints")
    assert not ran.stderr
    table = [cells for cells in rows(ran.stdout) if re.fullmatch(r"\d+|uniform|linear leverage", cells[0])]
    assert [cells[0] for cells in table[-2:]] == ["uniform", "linear leverage"]
    losses = [float(cells[1]) for cells in table[:-2]]
    assert losses == sorted(losses, reverse=True)
    assert table[-3][2:6] == ["1", "1", "1", "1"]
    assert re.search(r"^california: the scores of iteration \d+ \(loss ", ran.stdout, re.MULTILINE)


@pytest.mark.adapters
def test_what_drift_says_of_a_checkpoint_is_what_its_scores_say():
    pytest.importorskip("pandas")
    module = example("checkpoints")
    of = module.trained("Quick Draw", 1000)
    found = module.compared(of, 100, 40)
    scores = [module.leverage(of, theta) for theta in (of.thetas[1], of.thetas[-1])]
    early, late = (each / each.sum() for each in scores)
    assert found.affinity[1] == pytest.approx(np.sqrt(early * late).sum(), rel=1e-9)
    some = late > 0
    assert found.beta[1] == pytest.approx((early[some] / late[some]).min(), rel=1e-6)
    assert found.losses[-1] == pytest.approx(nlis.total_loss(of.problem, of.X, of.y, of.thetas[-1]), rel=1e-12)
    # Scores in proportion to the losses estimate their sum without error.
    losses = np.asarray(nlis.loss_scores(nlis.dual_matrix(of.problem, of.X, of.y, theta=of.thetas[-1])))
    assert module.estimated(losses, losses, 50, 3).max() < 1e-6
    assert module.estimated(np.ones(1000), losses, 50, 3).max() > 1e-3


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the limit is one of Linux")
def test_a_job_on_rows_larger_than_the_memory_of_its_process(tmp_path):
    arguments = ["--gigabytes", "0.75", "--limit", "0.65", "--seeds", "2", "--size", "600", "--folder", tmp_path]
    ran = started("out_of_core", *arguments)
    drawn(tmp_path, "out_of_core")
    assert not ran.stderr
    assert "all rows at once: MemoryError, as it should" in ran.stdout
    peak = float(re.search(r"^peak memory of all jobs: ([\d.]+) GB, of 0\.75 GB", ran.stdout, re.MULTILINE)[1])
    assert 0.1 < peak < 0.65
    assert re.search(r"^run: \d+ rows drawn, 5 reads, 3\.[78] GB in ", ran.stdout, re.MULTILINE)


@pytest.mark.adapters
def test_out_of_core_jobs_are_those_of_the_stored_rows(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    module = example("out_of_core")
    monkeypatch.setattr(module, "limited", lambda n_bytes: False)  # this process has more to do
    store = tmp_path / "rows.zarr"
    arguments = ["--gigabytes", "0.05", "--limit", "0.04", "--seeds", "2", "--size", "600", "--store", store]
    result = CliRunner().invoke(
        module.main, [*map(str, arguments), "--folder", str(tmp_path / "pictures")], catch_exceptions=False
    )
    assert result.exit_code == 0
    drawn(tmp_path / "pictures", "out_of_core")
    assert "this system limits no process: memory is only measured here" in result.output
    assert "all rows at once: 0.05 GB were there" in result.output
    assert re.search(r"^run: \d+ rows drawn, 5 reads, 0\.[23] GB in ", result.output, re.MULTILINE)

    X, y = nlis.open_rows(store, X="X", y="y")
    assert X.nbytes + y.nbytes == pytest.approx(0.05e9, rel=1e-4)
    whole = module.rows(module.BLOCK, module.BLOCK)
    np.testing.assert_array_equal(X[module.BLOCK : 2 * module.BLOCK].compute(), whole[0])
    np.testing.assert_array_equal(y[module.BLOCK : 2 * module.BLOCK].compute(), whole[1])
    # The labels are those of the parameters: their loss is that of the noise.
    assert nlis.total_loss(module.PROBLEM, *whole, module.TRUTH) == pytest.approx(0.04 * module.BLOCK, rel=0.03)


@pytest.mark.adapters
@pytest.mark.parametrize(
    ("limit", "said"), [("0.7", "holds all 0.7 GB of rows"), ("0.1", "GB is too little; Python and")]
)
def test_limits_that_hold_all_rows_or_too_little_are_refused(limit, said, tmp_path):
    pytest.importorskip("matplotlib")
    ran = started("out_of_core", "--gigabytes", "0.7", "--limit", limit, "--folder", tmp_path, code=2)
    assert f"--limit {limit} GB" in ran.stderr
    assert said in " ".join(ran.stderr.split())


@pytest.mark.adapters
def test_a_net_of_torch_is_trained_on_drawn_rows_by_seven_ways(tmp_path):
    pytest.importorskip("torch")
    ran = started("torch_model", "--seeds", "2", "--size", "200", "--epochs", "2", "--folder", tmp_path)
    drawn(tmp_path, "torch_model")
    assert not ran.stderr
    module = example("torch_model")
    table = [cells for cells in rows(ran.stdout)]
    assert [cells[0] for cells in table] == [*module.WAYS.values(), "300 uniform rows, the rough net", "all rows"]
    for cells in table[1:7]:
        assert re.fullmatch(r"[012] of 2", cells[4])
        ratio, most = (float(cell.split()[0]) for cell in cells[2:4])
        assert 0.3 < ratio <= most + 0.005
    assert "The paper's claim that nonlinear scores beat uniform rows" in ran.stdout.splitlines()[-1]


@pytest.mark.adapters
def test_scores_of_a_net_are_those_of_its_gradients_and_weights_have_no_scale(rng):
    torch = pytest.importorskip("torch")
    pytest.importorskip("matplotlib")
    module = example("torch_model")
    X, y = rng.normal(size=(300, 8)), rng.normal(size=300)
    net = module.made(0)
    found = module.scored(net, X, y)
    # Influence by the definition, squared error: psi = 2 r J, H = 2 J'J.
    parameters = {name: values.detach() for name, values in net.named_parameters()}

    def predict(parts, row):
        return torch.func.functional_call(net, parts, row[None]).reshape(())

    gradients = torch.func.vmap(torch.func.grad(predict), in_dims=(None, 0))(parameters, torch.tensor(X))
    J = np.concatenate([gradients[name].reshape(300, -1).numpy() for name in parameters], axis=1)
    residual = net(torch.tensor(X)).detach().numpy() - y
    leverage = np.diag(J @ np.linalg.pinv(J, rcond=1e-10))
    np.testing.assert_allclose(
        found["influence"], np.sqrt(2) * np.abs(residual) * np.sqrt(leverage), rtol=1e-5, atol=1e-7
    )
    assert found["leverage"].max() <= 1
    assert (found["norm"] > 0).all()

    weights = rng.uniform(0.5, 2, 300)
    a, b = (module.trained(net, X, y, factor * weights, 20, 0) for factor in (1, 8))
    assert module.error(a, X, y) == pytest.approx(module.error(b, X, y), rel=1e-12)
    assert module.error(a, X, y) < module.error(net, X, y)


@pytest.mark.adapters
@pytest.mark.cluster
def test_a_job_outlives_a_worker_with_the_same_bits(tmp_path):
    ran = started("cluster", "--gigabytes", "0.1", "--size", "600", "--port", "0", "--folder", tmp_path)
    drawn(tmp_path, "cluster")
    assert re.search(r"^dashboard: http://127\.0\.0\.1:\d+/status$", ran.stdout, re.MULTILINE)
    said = re.search(r"one killed in nlis-\S+: [\d.]+ s; (\d+) tasks, (\d+) of them began after that", ran.stdout)
    assert 0 < int(said[2]) < int(said[1])
    assert "cluster against threads: the same in every bit" in ran.stdout
    assert "killed against threads: the same in every bit" in ran.stdout


@pytest.mark.adapters
def test_jobs_that_are_not_the_same_in_every_bit_are_told_apart(tmp_path):
    pytest.importorskip("matplotlib")
    module = example("cluster")
    where = tmp_path / "rows.zarr"
    module.write(where, 3_000)
    a, b, other = (module.job(where, size, tmp_path / f"{k}.zarr").run for k, size in enumerate((600, 600, 601)))
    assert module.differences(a, b) == []
    assert {"sample", "fit"} <= set(module.differences(a, other))


@pytest.mark.adapters
def test_figure_3_counts_where_wrong_images_come_in_the_order_of_every_score(tmp_path):
    ran = started("paper_figure3", "--seeds", "2", "--size", "400", "--data", "digits", "--folder", tmp_path)
    drawn(tmp_path, "paper_figure3")
    module = example("paper_figure3")
    table = {cells[0]: cells[1:] for cells in rows(ran.stdout) if cells[0] in module.KINDS}
    assert list(table) == list(module.KINDS)
    means = {kind: [float(cell.split()[0]) for cell in cells] for kind, cells in table.items()}
    assert all(0 <= value <= 1 for values in means.values() for value in values)
    linear = list(module.SCORES).index("linear")
    assert means["noise"][linear] > 0.99  # without any model
    assert means["blank"][linear] == 0
    assert ran.stdout.splitlines()[-1].startswith("digits: that noisy images come first ")


@pytest.mark.adapters
def test_areas_of_figure_3_are_those_of_one_training_seen_twice(rng):
    pytest.importorskip("matplotlib")
    module = example("paper_figure3")
    X, y = module.load("digits", 300)
    data = module.spoil(X, y, "noise", rng)
    problem = module.network(leak=0)
    early, late = module.trained(problem, data, rng)
    losses = nlis.total_loss(problem, data.X, data.y, np.array([0 * early, early, late]))
    assert losses[0] > losses[1] > losses[2]
    scores = module.scored(problem, data, early, late)
    assert list(scores) == list(module.SCORES)
    again = nlis.dual_matrix(problem, data.X, data.y, theta=late)
    np.testing.assert_allclose(scores["leverage"].sum(), nlis.factorize(again).rank, rtol=1e-9)
    np.testing.assert_allclose(scores["loss"].sum(), losses[2], rtol=1e-12)
