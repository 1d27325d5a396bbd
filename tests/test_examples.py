"""The examples run, say what they promise, and are listed with the sources of their data."""

import re
import subprocess
import sys
from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner
from scripts import EXAMPLES, example

import dask_nlis as nlis
from dask_nlis.datasets.california import FEATURES


def _run(pictures, *arguments):
    arguments = [*arguments, "--size", "100", "--seeds", "2", "--folder", pictures, "--overwrite"]
    return CliRunner().invoke(example("california").main, [*map(str, arguments)], catch_exceptions=False)


def _drawn(folder, name, output):
    """The picture of an example where there is matplotlib, and a line that says there is none elsewhere."""
    if find_spec("matplotlib") is None:
        assert "no picture: it needs matplotlib; pip install 'dask-nlis[plot]'" in output.splitlines()
        assert not list(folder.iterdir())
    else:
        assert f"drawn: {folder / name}" in output.splitlines()
        assert (folder / name).read_bytes().startswith(b"\x89PNG")


def test_california_prints_run_fit_excess_loss_ten_rows_and_how_other_designs_do(tmp_path):
    result = _run(tmp_path)
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[0].startswith("Run(n_rows=20_640")
    assert lines[1].startswith("quadratic forms of all 10 directions are kept within ")
    assert [line.split()[0] for line in lines[2:11]] == [*FEATURES, "intercept"]
    # A sample of 100 rows loses a few per cent against all rows; exp(-1) would be more than a third.
    assert float(re.search(r"log excess loss.*: (-?\d+\.\d+)$", result.output, re.MULTILINE)[1]) < -1
    assert len(lines) == 22 + 3
    _drawn(tmp_path, "california.png", result.output)
    medians = {name: float(m) for name, m in re.findall(r"[:;] ([a-z ]+) (-?[\d.]+) ±", lines[-2].replace("s.e.", ""))}
    assert list(medians) == ["uniform rows", "linear leverage", "nonlinear leverage at the best fit", "run"]
    assert max(medians["run"], medians["linear leverage"]) < medians["uniform rows"]
    assert lines[-1].startswith("the paper's claim, nonlinear leverage at the best fit (an oracle) less ")
    assert lines[12].startswith("row 19006, leverage 0.")
    assert "'AveOccup': 119.4" in lines[12]


def test_california_keeps_its_run_in_a_folder_and_overwrites_none(tmp_path):
    result = _run(tmp_path / "pictures", tmp_path / "kept")
    made = nlis.open_run(tmp_path / "kept" / "run.zarr")
    assert f"drawn={len(made.sample)}" in result.output
    with pytest.raises(FileExistsError):
        _run(tmp_path / "pictures", tmp_path / "kept")
    assert nlis.open_run(tmp_path / "kept" / "run.zarr") == made


def test_accuracy_prints_a_table_and_fails_when_a_method_is_behind(monkeypatch):
    accuracy = example("benchmarks/accuracy")
    arguments = ["--rows", "200", "--columns", "8", "--seeds", "2"]
    result = CliRunner().invoke(accuracy.main, arguments, catch_exceptions=False)
    header, columns, *table, verdict = result.output.splitlines()
    assert result.exit_code == 0
    assert header.startswith("largest relative error of a leverage; 200 x 8, 2 matrices each")
    assert columns.split()[:4] == ["kappa", "auto", "tsqr", "sketch"]
    errors = {line.split()[0]: [float(v) for v in line.split()[1:8]] for line in table}
    assert list(errors) == [f"{10.0**k:.0e}" for k in range(13)]
    assert max(errors["1e+08"][:3]) <= 1e-6 < errors["1e+08"][6]  # where the Gram matrix has no digit left
    assert verdict.startswith("dask_nlis is nowhere more than 3 times worse")

    ours = accuracy.ours
    monkeypatch.setattr(
        accuracy, "ours", lambda name: ours(name) if name != "tsqr" else lambda F: (accuracy.gram_pinv(F), name)
    )
    result = CliRunner().invoke(accuracy.main, arguments, catch_exceptions=False)
    assert result.exit_code == 1
    assert re.search(r"^tsqr at 1e\+06: .* allowed", result.output, re.MULTILINE)
    assert re.search(r"^tsqr at 1e8: .* is above 1e-6$", result.output, re.MULTILINE)


def test_gpu_says_in_a_line_that_there_is_none(monkeypatch):
    gpu = example("benchmarks/gpu")
    monkeypatch.setattr(gpu, "probe", lambda: "CuPy finds no GPU")
    result = CliRunner().invoke(gpu.main, [], catch_exceptions=False)
    assert (result.exit_code, result.output) == (0, "no GPU found (CuPy finds no GPU), so nothing was measured\n")


@pytest.mark.slow
def test_gpu_prints_a_table_of_rates_and_the_share_of_the_ceiling(monkeypatch):
    """With NumPy in the place of CuPy, whose names are the same, and both paths on the CPU."""
    gpu = example("benchmarks/gpu")
    stream = SimpleNamespace(synchronize=lambda: None)
    properties = SimpleNamespace(getDeviceProperties=lambda number: {"name": b"a card that is none"})
    cuda = SimpleNamespace(get_current_stream=lambda: stream, Device=lambda: SimpleNamespace(id=0), runtime=properties)
    fake = SimpleNamespace(asarray=np.array, eye=np.eye, float64=np.float64, cuda=cuda, __version__="0")
    monkeypatch.setattr(gpu, "probe", lambda: fake)
    monkeypatch.setitem(sys.modules, "cupy.cublas", SimpleNamespace(syrk=lambda how, a: a.T @ a))
    monkeypatch.setitem(sys.modules, "cupy", fake)
    monkeypatch.setitem(sys.modules, "cupyx", SimpleNamespace(empty_like_pinned=np.empty_like))
    passes = gpu.passes
    monkeypatch.setattr(gpu, "passes", lambda where, *rest: passes("cpu", *rest))
    result = CliRunner().invoke(gpu.main, ["--quick"], catch_exceptions=False)
    assert result.exit_code == 0
    head, _, _, names, rule, *table = result.output.splitlines()
    assert head.startswith("a card that is none; ")
    assert names.count("|") == rule.count("|") == len(gpu.COLUMNS) + 1
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in table if row.startswith("|")]
    pairs = [(dtype, str(d)) for dtype in ("float32", "float64") for d in (20, 100, 500)]
    assert [row[:3] for row in rows] == [[*pair, name] for pair in pairs for name in ("Gram", "scores")]
    assert all(float(cell) > 0 for row in rows for cell in row[3:9])
    assert re.search(
        r"^at d = 500 between \d+% and \d+% of the binding ceiling; target 70%$", result.output, re.MULTILINE
    )
    assert "scores of GPU and CPU are at most 0.0e+00 apart" in result.output


@pytest.mark.slow
def test_patterns_prints_ratios_and_errors_of_two_networks(monkeypatch):
    patterns = example("benchmarks/patterns")
    result = CliRunner().invoke(patterns.main, ["--quick"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert re.search(r"^random network: 6,000 x 85, 16 patterns, kappa [\d.]+$", result.output, re.MULTILINE)
    assert re.search(
        r"^auto: method patterns, 1 read\(s\), rank 81, error \d\.\de-1[5-8]$", result.output, re.MULTILINE
    )
    assert re.search(r"^\| both passes \| [\d.]+ \| [\d.]+ \| [\d.]+ \|$", result.output, re.MULTILINE)
    assert "trained network: 1,200 x 1,011" in result.output

    exact = patterns.exact
    monkeypatch.setattr(patterns, "exact", lambda A: (exact(A)[0] + 1e-11, 1.0))
    monkeypatch.setattr(patterns, "THETA", patterns.IMAGES.parent / "none")
    result = CliRunner().invoke(patterns.main, ["--quick"], catch_exceptions=False)
    assert result.exit_code == 1
    assert "the error 1.0e-11 is above 1e-12" in result.output


def test_patterns_prints_the_blend_of_two_matrices(monkeypatch):
    patterns = example("benchmarks/patterns")
    result = CliRunner().invoke(patterns.main, ["--quick", "--blend"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert re.search(r"^relative error of the mixture \d\.\de-1[3-6]$", result.output, re.MULTILINE)
    for line in ("pass 1, two factors", "pass 2, the mixture", "both passes", "pass 2, influence alone"):
        assert re.search(rf"^\| {line} \| [\d.]+ \| [\d.]+ \| [\d.]+ \|$", result.output, re.MULTILINE)

    defined = patterns.defined
    monkeypatch.setattr(patterns, "defined", lambda T: defined(T) * (1 + 1e-9))
    result = CliRunner().invoke(patterns.main, ["--quick", "--blend"], catch_exceptions=False)
    assert result.exit_code == 1
    assert "is above 1e-12" in result.output


def test_fused_shows_a_read_less_a_stage_and_the_same_sample():
    result = CliRunner().invoke(example("benchmarks/fused").main, ["--quick", "--blocks", "5"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in result.output.splitlines() if "|" in line]
    reads = {(line[0], line[1]): line[2] for line in lines[2:]}
    assert reads["leverage at theta", "run"] == "3.00"
    assert reads["two stages", "run"] == "5.00"
    assert reads["leverage at theta", "score, draw, take"] == "4.00"
    assert reads["two stages", "score, draw, take"] == "7.00"
    assert result.output.splitlines()[-1] == "the same samples, rows and fits in every bit"


def _benchmark(name, *arguments):
    result = CliRunner().invoke(example(f"benchmarks/{name}").main, [*arguments], catch_exceptions=False)
    lines = [line.split("|")[1:-1] for line in result.output.splitlines() if line.startswith("|") and "-:" not in line]
    return result.exit_code, [[entry.strip() for entry in line] for line in lines], result.output.splitlines()


def test_leverage_benchmark_times_every_rival_and_fails_where_scores_differ(monkeypatch):
    code, lines, output = _benchmark("leverage", "--quick")
    assert code == 0
    assert "one BLAS thread" in output[0]
    assert lines[0][4:10] == [
        "public / ceiling",
        "kernels / ceiling",
        "dask tsqr",
        "numpy qr",
        "numpy pinv",
        "statsmodels",
    ]
    assert all(float(entry) > 0 for entry in lines[1])
    assert float(lines[1][-1]) < 1e-11
    assert [line[1] for line in lines[3:]] == ["uncompressed", "default"]
    monkeypatch.setattr(example("benchmarks/leverage"), "ceiling", lambda F, whitener: np.zeros(len(F)))
    code, _, output = _benchmark("leverage", "--quick")
    assert code == 1
    assert re.search(r"^d=20: scores are \S+ apart$", "\n".join(output), re.MULTILINE)


def test_norms_benchmark_gives_the_norms_of_formed_rows(monkeypatch):
    norms = example("benchmarks/norms")
    monkeypatch.setattr(norms, "torch", None)  # which comes with an extra
    code, (columns, line), _ = _benchmark("norms", "--quick")
    assert code == 0
    assert columns[3:9] == ["scores", "public", "forward", "scores / forward", "rows", "torch"]
    assert line[:3] == ["100", "10", "1011"]
    assert line[8] == ""
    assert float(line[9]) < 1e-11
    real = norms.norm_block
    monkeypatch.setattr(norms, "norm_block", lambda *given, **known: real(*given, **known) * (1 + 1e-10))
    assert _benchmark("norms", "--quick")[0] == 1


def test_adjoint_benchmark_finds_ours_exact_and_the_riemann_sum_as_good_as_its_steps(monkeypatch):
    code, (columns, *lines), _ = _benchmark("adjoint", "--quick")
    assert code == 0
    assert columns[-2:] == ["error", "error of Riemann"]
    assert [line[0] for line in lines] == ["logistic", "logistic, far", "swish", "ReLU network"]
    assert all(float(line[6]) < 1e-11 and 1e-4 < float(line[7]) < 1e-1 for line in lines)

    def exact(gradient, theta, X, steps):
        nodes, weights = np.polynomial.legendre.leggauss(64)
        return sum(weight / 2 * gradient((t + 1) / 2 * theta, X) for t, weight in zip(nodes, weights, strict=True))

    monkeypatch.setattr(example("benchmarks/adjoint"), "riemann", exact)
    code, _, output = _benchmark("adjoint", "--quick")
    assert code == 1  # ours is no better than that
    assert output[-4].startswith("logistic: ")


def test_draws_are_measured_against_numpy_and_dask():
    result = CliRunner().invoke(example("benchmarks/draw").main, ["--quick", "--rounds", "1"], catch_exceptions=False)
    assert result.exit_code == 0
    names = [line.strip("│ ").split("│")[0].strip() for line in result.output.splitlines() if line.startswith("│")]
    assert names == ["multinomial", "stratified", "poisson", "systematic", "numpy Generator.choice", "da.random.choice"]


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("scaling", ["1e4", "1e5", "1e4", "1e5"]),
        ("overhead", ["norm"] * 4 + ["leverage"] * 4),
        ("memory", ["factor, leverage, draw, take", "run"] * 2),
    ],
)
def test_benchmarks_of_clusters_print_a_table(name, rows):
    ran = subprocess.run(
        [sys.executable, EXAMPLES / "benchmarks" / f"{name}.py", "--quick"], capture_output=True, text=True, check=True
    )
    lines = [line.strip("│ ").split("│") for line in ran.stdout.splitlines() if line.startswith("│")]
    assert [cells[0].strip() for cells in lines] == rows
    for cells in lines:
        assert float(re.findall(r"[\d.]+", cells[3])[0]) > 0


def test_coverage_prints_a_line_for_each_model_and_design(tmp_path):
    arguments = ["--samples", "3", "--data", "synthetic", "--folder", str(tmp_path)]
    result = CliRunner().invoke(example("coverage").main, arguments, catch_exceptions=False, env={"COLUMNS": "100"})
    assert result.exit_code == 0
    lines = [line for line in result.output.splitlines() if " % " in line and "│" in line]
    assert len(lines) == 12
    assert sum("uniform" in line for line in lines) == 2
    _drawn(tmp_path, "coverage.png", result.output)
    least = min(float(re.findall(r"([\d.]+) %", line)[-1]) for line in lines if "single index │ uniform" in line)
    assert f"uniform rows, where the worst coefficient has {least} %; logistic: " in result.output.splitlines()[-1]


def test_detection_prints_areas_and_fails_where_a_score_does_not_find_what_it_should(monkeypatch, tmp_path):
    detection = example("detection")
    arguments = ["--seeds", "1", "--size", "500", "--data", "digits", "--folder", str(tmp_path), "--overwrite"]
    result = CliRunner().invoke(detection.main, arguments, catch_exceptions=False)
    lines = result.output.splitlines()
    assert "digits, 500 images: area under the ROC curve" in lines[0]
    table = [line.strip("│ ").split("│") for line in lines if line.startswith("│")]
    assert [cells[0].strip() for cells in table] == ["flipped labels", *detection.WAYS]
    assert all(0 <= float(cell.split()[0]) <= 1 for cells in table for cell in cells[1:])
    _drawn(tmp_path, "detection.png", result.output)
    assert lines[-4].startswith(
        "digits, the paper's claim that the highest leverage tells mislabelled and noisy images: noise "
    )
    verdicts = lines[-3:]
    assert [line.partition(":")[0] for line in verdicts] == [
        "flipped labels by loss", "noise by leverage", "shuffled by leverage",
    ]  # fmt: skip
    assert result.exit_code == int(any("NOT above" in line for line in verdicts))
    assert float(re.search(r": ([\d.]+),", verdicts[0])[1]) > 0.8

    monkeypatch.setattr(detection, "BARS", {("digits", "blank", "leverage"): 0.5})
    result = CliRunner().invoke(detection.main, arguments, catch_exceptions=False)
    assert result.exit_code == 1
    assert result.output.splitlines()[-1] == "blank by leverage: 0.000, NOT above 0.5"


def test_sklearn_pipeline_prints_errors_by_three_ways_and_their_ratios(tmp_path):
    pipelines = example("sklearn_pipeline")
    arguments = ["--seeds", "2", "--size", "200", "--estimator", "logistic", "--estimator", "least squares"]
    arguments += ["--folder", str(tmp_path)]
    result = CliRunner().invoke(pipelines.main, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    table = [line.strip("│ ").split("│") for line in result.output.splitlines() if line.startswith("│")]
    assert [cells[0].strip() for cells in table] == ["logistic", "least squares"]
    assert "200 of 15,480 rows, 2 splits" in result.output
    _drawn(tmp_path, "sklearn_pipeline.png", result.output)
    assert result.output.splitlines()[-1].startswith("The paper's claim that rows by leverage leave a smaller error")
    for name, cells in zip(("logistic", "least squares"), table, strict=True):
        drawn, uniform, of_all = (float(cell.split()[0]) for cell in cells[2:])
        said = re.search(
            rf"^{name}: ([\d.]+) times \(at most ([\d.]+)\) .* by leverage, ([\d.]+) times", result.output, re.MULTILINE
        )
        ratio, most, by_chance = map(float, said.groups())
        # Medians of ratios and ratios of medians of two splits, which differ by a little.
        assert ratio == pytest.approx(drawn / of_all, rel=0.05)
        assert 0.9 < ratio < 1.5
        assert most >= ratio - 0.005
        assert by_chance == pytest.approx(uniform / of_all, rel=0.05)


def test_every_example_and_data_file_is_listed_in_the_readme():
    readme = (EXAMPLES / "README.md").read_text("utf-8")
    for script in EXAMPLES.rglob("*.py"):
        if "__main__" not in script.read_text("utf-8"):  # what scripts share
            continue
        assert f"python examples/{script.relative_to(EXAMPLES)}" in readme
    for data in (EXAMPLES / "data").iterdir():
        assert f"`data/{data.name}`" in readme
    for named in re.findall(r"`data/([^`]+)`", readme):
        assert (EXAMPLES / "data" / named).is_file()


@pytest.mark.adapters
def test_two_stage_prints_a_table_and_how_the_default_does_against_every_column(tmp_path):
    pytest.importorskip("pandas")
    two_stage = example("two_stage")
    arguments = ["--seeds", "3", "--data", "insurance", "--variant", "stratified", "--variant", "free"]
    arguments += ["--folder", str(tmp_path)]
    ran = subprocess.run([sys.executable, two_stage.__file__, *arguments], capture_output=True, text=True, check=True)
    rows = [line for line in ran.stdout.splitlines() if "insurance" in line and "│" in line]
    assert len(rows) == 2 * 4
    for row in rows:
        values = [float(cell.split()[0]) for cell in row.strip("│ ").split("│")[2:]]
        assert len(values) == len(two_stage.COLUMNS)
        assert values[-1] in values[-3:-1]  # the default has the shares of one of the columns before it
    verdicts = [line for line in ran.stdout.splitlines() if line.startswith("default less ")]
    assert len(verdicts) == 2 * (len(two_stage.COLUMNS) - 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["two_stage_free.png", "two_stage_stratified.png"]
    assert ran.stdout.splitlines()[-1].startswith(
        "The paper's claim, nonlinear leverage at the fit on all rows (an oracle)"
    )


@pytest.mark.adapters
def test_the_paper_s_figure_is_drawn_and_its_medians_are_printed(tmp_path):
    plt = pytest.importorskip("matplotlib.pyplot")
    figure = example("paper_figure1")
    arguments = ["--seeds", "2", "--data", "insurance", "--folder", str(tmp_path)]
    ran = subprocess.run([sys.executable, figure.__file__, *arguments], capture_output=True, text=True, check=True)
    assert [path.name for path in tmp_path.iterdir()] == ["figure1_insurance.png"]
    pixels = plt.imread(tmp_path / "figure1_insurance.png")
    assert pixels.shape == (960, 1200, 4)
    assert len(np.unique(pixels.reshape(-1, 4), axis=0)) > 100  # five colours and their bands
    assert [word for word in ran.stdout.split() if word in figure.SCORES] == list(figure.SCORES)
    assert re.search(
        r"^insurance, log excess loss .* against linear leverage: below at \d of 7 sizes, ", ran.stdout, re.MULTILINE
    )


@pytest.mark.adapters
@pytest.mark.parametrize(
    ("name", "data", "shape"),
    [("active_learning", "diamonds", (600, 768, 4)), ("transfer", "rich districts", (624, 768, 4))],
)
def test_active_learning_and_transfer_print_a_table_and_draw_a_picture(name, data, shape, tmp_path):
    plt = pytest.importorskip("matplotlib.pyplot")
    pytest.importorskip("pandas")
    arguments = ["--seeds", "2", "--data", data, "--folder", str(tmp_path)]
    ran = subprocess.run(
        [sys.executable, EXAMPLES / f"{name}.py", *arguments], capture_output=True, text=True, check=True
    )
    assert not ran.stderr
    assert f"{data}: excess loss" in ran.stdout
    assert re.search(r"\(log [+-]\d+\.\d\d, s\.e\. \d+\.\d\d\)", ran.stdout)
    assert [path.name for path in tmp_path.iterdir()] == [f"{name}.png"]
    pixels = plt.imread(tmp_path / f"{name}.png")
    assert pixels.shape == shape
    assert len(np.unique(pixels.reshape(-1, 4), axis=0)) > 100  # lines of five or six colours, and their bands
