"""The run store on disk: what is where, written in which order, and what happens when it is damaged."""

import json
import os
import shutil
import zlib

import dask.array as da
import numpy as np
import pytest
import zarr
from counting import cut, rows_of, same_bits

import dask_nlis as nlis

PROBLEM = nlis.Problem(nlis.SingleIndex(nlis.Tanh()), constraint=nlis.Ball(5.0))
CHUNKS = cut(500, (60, 90, 30))  # irregular: the store writes regular chunks of 90 rows


def _make(store, problem=PROBLEM, **options):
    values, y = rows_of(0, 500, 3)
    return nlis.run(problem, da.from_array(values, chunks=(CHUNKS, (3,))), y, size=80, seed=0, store=store, **options)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run, not to be touched."""
    return _make(tmp_path_factory.mktemp("store") / "run.zarr")


@pytest.fixture
def store(finished, tmp_path):
    """A copy of its store, to be damaged."""
    return shutil.copytree(finished.path, tmp_path / "run.zarr")


def _files(store):
    return {path.relative_to(store).as_posix() for path in store.rglob("*") if path.is_file()}


def _strict_json(path):
    def refuse(constant):
        raise AssertionError(f"{path} holds {constant}, which is no JSON")

    return json.loads(path.read_text("utf-8"), parse_constant=refuse)


def _edit(path, change):
    found = json.loads(path.read_text("utf-8"))
    change(found)
    path.write_text(json.dumps(found), "utf-8")


def test_the_layout_is_the_documented_one(store, tmp_path):
    assert {path.name for path in store.iterdir()} == {
        "zarr.json", "complete.json", "factor", "sample", "fit", "pilot", "certificate", "scores", "blocks", "data",
    }  # fmt: skip
    _make(tmp_path / "norm.zarr", theta=np.ones(4), scores="norm")
    assert {path.name for path in store.iterdir()} - {path.name for path in (tmp_path / "norm.zarr").iterdir()} == {
        "factor", "pilot", "certificate",
    }  # fmt: skip


def test_every_array_is_zarr_3_with_a_checksum_and_without_pickle(store):
    nodes = {path: _strict_json(path) for path in store.rglob("zarr.json")}
    arrays = {path: node for path, node in nodes.items() if node["node_type"] == "array"}
    assert len(arrays) > 15
    assert {node["zarr_format"] for node in nodes.values()} == {3}
    for path, node in arrays.items():
        assert [codec["name"] for codec in node["codecs"]] == ["bytes", "zstd", "crc32c"], path
        assert node["data_type"] in ("float64", "int64", "uint32"), path


def test_scores_are_float64_filled_with_nan_in_regular_chunks_of_one_task_each(store):
    array = zarr.open_array(store / "scores", mode="r")
    assert (array.shape, array.dtype, array.chunks) == ((500,), np.float64, (90,))
    assert np.isnan(array.fill_value)
    assert {path.name for path in (store / "scores" / "c").iterdir()} == {"0", "1", "2", "3", "4", "5"}
    assert nlis.open_run(store).scores.chunks == ((90, 90, 90, 90, 90, 50),)


def test_the_manifest_is_strict_json_and_says_what_was_done(finished, store):
    manifest = _strict_json(store / "zarr.json")["attributes"]["manifest"]
    assert manifest["state"] == "complete"
    assert manifest["size"] == 80
    assert manifest["seed"] == 0
    assert manifest["data"]["n_rows"] == 500
    assert manifest["theta"] == finished.pilot.theta.tolist()
    assert manifest["versions"]["dask-nlis"] == nlis.__version__
    assert manifest["reads"] == finished.reads
    marker = _strict_json(store / "complete.json")
    assert (marker["format"], marker["n_blocks"]) == (manifest["format"], 6)
    for name in ("factor", "sample", "fit", "pilot"):
        _strict_json(store / name / "zarr.json")


@pytest.mark.parametrize("scores", ["leverage", "norm"])
def test_the_records_describe_the_score_chunks(tmp_path, scores):
    made = _make(tmp_path / "run.zarr", scores=scores)
    values = made.scores.compute()
    records = zarr.open_group(tmp_path / "run.zarr" / "blocks", mode="r")
    found = {name: records[name][...] for name in ("start", "rows", "checksum", "smallest", "largest", "total")}
    assert found["start"].tolist() == [0, 90, 180, 270, 360, 450]
    assert found["rows"].tolist() == [90] * 5 + [50]
    for k, (start, rows) in enumerate(zip(found["start"], found["rows"], strict=True)):
        block = values[start : start + rows]
        assert found["checksum"][k] == zlib.crc32(block.astype("<f8").tobytes())
        assert (found["smallest"][k], found["largest"][k]) == (block.min(), block.max())
        assert found["total"][k] == pytest.approx(block.sum(), rel=1e-14)


def test_the_marker_is_written_last_and_synced(tmp_path, monkeypatch):
    steps = []
    link, fsync = os.link, os.fsync

    def linked(source, target):
        if os.path.basename(target) == "complete.json":  # the lock is created like this too
            there = {name for name in _files(tmp_path / "run.zarr") if not name.startswith("work/")}
            steps.append(("complete", there - {os.path.basename(source), "lock.json"}))
        link(source, target)

    monkeypatch.setattr(os, "link", linked)
    monkeypatch.setattr(os, "fsync", lambda number: (steps.append(("synced", None)), fsync(number)))
    _make(tmp_path / "run.zarr")
    # The marker's content, the marker's name, the folder that holds the name.
    assert [what for what, _ in steps] == ["synced", "complete", "synced"]
    assert steps[1][1] == _files(tmp_path / "run.zarr") - {"complete.json"}


def test_a_run_cut_off_just_before_its_marker_cannot_be_opened(tmp_path, monkeypatch):
    link = os.link

    def cut_off(source, target):
        if os.path.basename(target) == "complete.json":
            raise OSError("no space left")
        link(source, target)

    monkeypatch.setattr(os, "link", cut_off)
    with pytest.raises(OSError, match="no space left"):
        _make(tmp_path / "run.zarr")
    monkeypatch.undo()
    with pytest.raises(nlis.IncompleteRunError, match="never finished"):
        nlis.open_run(tmp_path / "run.zarr")


@pytest.mark.parametrize(
    "problem",
    [
        nlis.Problem(nlis.Linear()),  # no set at all
        nlis.Problem(nlis.Linear(intercept=False), constraint=nlis.Box(-1.0, np.inf)),  # scalar and open bounds
        nlis.Problem(nlis.SingleIndex(nlis.Logistic()), constraint=nlis.Box([-1, -2, -np.inf, -1], 3.0)),
        nlis.Problem(nlis.SingleIndex(nlis.Swish(0.5, 3, 2)), constraint=nlis.Ball(2.0, center=[1, 0, 0, 0])),
    ],
    ids=["free", "scalar box", "box", "ball off the origin"],
)
def test_every_problem_comes_back_from_the_store(tmp_path, problem):
    made = _make(tmp_path / "run.zarr", problem)
    opened = nlis.open_run(tmp_path / "run.zarr")
    assert opened.problem == problem
    assert (opened.fit, opened.pilot, opened.factor) == (made.fit, made.pilot, made.factor)


def test_reading_a_run_writes_nothing(store):
    before = {path: path.stat().st_mtime_ns for path in [store, *store.rglob("*")]}
    opened = nlis.open_run(store)
    nlis.draw(opened.scores, 20, seed=0)
    nlis.top_rows(opened.scores, k=3)
    assert {path: path.stat().st_mtime_ns for path in [store, *store.rglob("*")]} == before


def test_stored_scores_serve_as_a_path(finished):
    by_path = nlis.draw(os.path.join(finished.path, "scores"), 50, seed=4)
    by_run = nlis.draw(finished.scores, 50, seed=4)
    assert (by_path.indices.tolist(), by_path.weights.tolist()) == (by_run.indices.tolist(), by_run.weights.tolist())


STORED = ["scores", "sample/indices", "sample/weights", "fit/theta", "pilot/theta", "factor/r", "data/X", "data/y"]


@pytest.mark.parametrize("name", STORED)
def test_a_flipped_byte_in_a_stored_array_raises(store, name):
    chunk = next(path for path in sorted((store / name / "c").rglob("*")) if path.is_file())
    content = bytearray(chunk.read_bytes())
    content[len(content) // 2] ^= 1
    chunk.write_bytes(content)
    with pytest.raises(ValueError, match="checksum"):
        nlis.open_run(store).scores.compute()


def test_a_lost_score_chunk_raises(store):
    (store / "scores" / "c" / "2").unlink()
    with pytest.raises(nlis.MissingDataError, match="1 of 6 chunks is missing, the first holds rows 180 to 269"):
        nlis.open_run(store)


def _remove(name):
    return lambda store: shutil.rmtree(store / name) if (store / name).is_dir() else (store / name).unlink()


def _attributes(name, change):
    return lambda store: _edit(store / name / "zarr.json", lambda found: change(found["attributes"]))


DAMAGED = {
    "no marker": (_remove("complete.json"), nlis.IncompleteRunError, "never finished"),
    "no manifest": (_attributes("", lambda found: found.clear()), nlis.MissingDataError, "manifest"),
    "root is no JSON": (lambda store: (store / "zarr.json").write_text("{"), nlis.MissingDataError, "no run store"),
    "a manifest of another kind": (_attributes("", lambda found: found.update(manifest=[1])), nlis.InputError, "format"),
    "another format": (_attributes("", lambda found: found["manifest"].update(format=99)), nlis.InputError, "format"),
    "a manifest cut short": (_attributes("", lambda found: found["manifest"].pop("total_loss")), nlis.InputError, "total"),
    "no fit": (_remove("fit"), nlis.InputError, "fit"),
    "no sample": (_remove("sample"), nlis.InputError, "sample"),
    "no scores": (_remove("scores"), nlis.InputError, "scores"),
    "no drawn rows": (_remove("data"), nlis.InputError, "data"),
    "an array of the sample missing": (_remove("sample/weights"), nlis.InputError, "weights"),
    "a group without its noun": (_attributes("fit", lambda found: found.clear()), nlis.InputError, "fit"),
    "a fit that is no JSON": (lambda store: (store / "fit" / "zarr.json").write_text("{"), nlis.InputError, "fit"),
    "a noun of another kind": (_attributes("fit", lambda found: found.update(noun=[1])), nlis.InputError, "fit"),
    "an unknown noun": (_attributes("sample", lambda found: found["noun"].update(noun="Evil")), nlis.InputError, "'Evil'"),
    "an unknown noun inside": (
        _attributes("fit", lambda found: found["noun"]["problem"]["model"].update(noun="__import__('os').mkdir('x')")),
        nlis.InputError,
        "__import__",
    ),
    "a known noun in a wrong place": (
        _attributes("sample", lambda found: found["noun"].update(noun="Fit")),
        nlis.InputError,
        "Fit",
    ),
    "a field too many": (_attributes("fit", lambda found: found["noun"].update(extra=1)), nlis.InputError, "extra"),
    "a field missing": (_attributes("fit", lambda found: found["noun"].pop("ok")), nlis.InputError, "ok"),
    "an array outside the store": (
        _attributes("fit", lambda found: found["noun"].update(theta={"array": "../../scores"})),
        nlis.InputError,
        "scores",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_store_is_refused_in_one_line(store, tmp_path, monkeypatch, case):
    damage, error, word = DAMAGED[case]
    damage(store)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=word) as refused:
        nlis.open_run(store)
    assert "\n" not in str(refused.value)
    assert os.listdir(tmp_path) == ["run.zarr"]


def _foreign(kind):
    def made(path):
        if kind == "a file":
            path.write_text("mine")
        elif kind == "an empty folder":
            path.mkdir()
        elif kind == "a foreign array":
            zarr.create_array(path, shape=(3,), dtype="float64")
        elif kind.startswith("a foreign group"):
            group = zarr.create_group(path, zarr_format=2 if kind.endswith("2") else 3)
            group.create_array("scores", shape=(3,), dtype="float64")

    return made


@pytest.mark.parametrize(
    "kind", ["nothing", "a file", "an empty folder", "a foreign array", "a foreign group", "a foreign group, version 2"]
)
def test_what_is_no_run_is_refused_naming_the_path(tmp_path, kind):
    _foreign(kind)(tmp_path / "other")
    with pytest.raises(nlis.MissingDataError, match="other") as refused:
        nlis.open_run(tmp_path / "other")
    assert isinstance(refused.value, FileNotFoundError)
    assert "\n" not in str(refused.value)


def test_a_copied_store_opens_as_the_same_run(finished, store):
    opened = nlis.open_run(store)
    assert same_bits(opened.scores, finished.scores)
    for name in ("problem", "factor", "sample", "fit", "pilot", "total_loss"):
        assert getattr(opened, name) == getattr(finished, name), name
