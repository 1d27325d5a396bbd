"""Files made to do harm are refused by an error of ours: nothing they say is run, and what they ask for is not made (R6.2).

Each hostile file would make a canary file where it had its way; each huge one is opened under a limit of memory.
"""

import csv
import io
import json
import os
import pickle
import resource
import struct
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr
from counting import rows_of

import dask_nlis as nlis
from dask_nlis.cli.problems import problem_from
from dask_nlis.documents import MOST_BYTES
from dask_nlis.errors import NlisError
from dask_nlis.intake import left_array, limits, tables

X, Y = rows_of(62, 60, 3)
PROBLEM = nlis.Problem(nlis.Linear())
SAMPLE = nlis.draw(np.linspace(1, 2, 60), 20, seed=0, mix=0.1)


class Evil:
    """What makes a file where it is unpickled."""

    def __init__(self, canary):
        self.canary = canary

    def __reduce__(self):
        return os.mkdir, (os.fspath(self.canary),)


@pytest.fixture
def canary(tmp_path):
    """A path that must not exist at the end; that a pickle of it makes it is seen first."""
    for name in ("proof", "canary"):
        path = tmp_path / name
        if name == "proof":
            pickle.loads(pickle.dumps(Evil(path)))
            assert path.exists()
    yield path
    assert not path.exists()


@pytest.fixture
def little_memory():
    """At most two gigabytes of addresses more than there are now: what a header asks for cannot be had."""
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (size + 2**31, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def computed(path, name="X"):
    x, _ = nlis.open_rows(path, X=name)
    return x.compute(scheduler="sync")


def refused(call, match=None):
    with pytest.raises(NlisError, match=match) as caught:
        call()
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) <= 300
    return caught.value


# --- NPY and NPZ -----------------------------------------------------------------------------------------------------


def npy(path, header, data=b"", version=(1, 0)):
    text = header.encode("latin1") + b" " * (-(len(header) + 11) % 64) + b"\n"
    size = struct.pack("<H" if version == (1, 0) else "<I", len(text))
    path.write_bytes(b"\x93NUMPY" + bytes(version) + size + text + data)
    return path


HEADERS = {
    "object entries": "{'descr': '|O', 'fortran_order': False, 'shape': (4, 2), }",
    "objects in a record": "{'descr': [('a', '|O')], 'fortran_order': False, 'shape': (4, 2), }",
    "huge shape": "{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000, 2), }",
    "shape beyond 64 bits": f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({10**40}, 2), }}",
    "many dimensions": f"{{'descr': '<f8', 'fortran_order': False, 'shape': {(1,) * 60}, }}",
    "negative shape": "{'descr': '<f8', 'fortran_order': False, 'shape': (-4, -2), }",
    "huge entries": "{'descr': '|V2000000000', 'fortran_order': False, 'shape': (4, 2), }",
    "a call": "{'descr': __import__('os').mkdir('canary'), 'fortran_order': False, 'shape': (4, 2), }",
    "an expression": "{'descr': '<f8', 'fortran_order': False, 'shape': (9**9**9, 2), }",
    "deep literals": "{'descr': '<f8', 'fortran_order': False, 'shape': " + "(" * 3000 + ")" * 3000 + "}",
    "deep lists": "[" * 9000,
    "deep signs": "{'descr': '<f8', 'fortran_order': False, 'shape': (" + "-" * 8000 + "1,), }",
    "keys of two types": "{'descr': '<f8', 'fortran_order': False, 'shape': (4, 2), 1: 2, }",
    "shape of bools": "{'descr': '<f8', 'fortran_order': False, 'shape': (True, 'a'), }",
    "no mapping": "{1, 2}",
    "zero bytes": "\0" * 40,
}


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0), (9, 9)])
@pytest.mark.parametrize("name", HEADERS)
def test_headers_of_npy_files_make_and_run_nothing(name, version, tmp_path, canary, little_memory, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = npy(tmp_path / "x.npy", HEADERS[name], pickle.dumps(Evil(canary)), version)
    refused(lambda: nlis.reference_matrix(PROBLEM, path))
    refused(lambda: SAMPLE.take(path))


@pytest.mark.parametrize("kind", ["objects", "bomb", "many members"])
def test_npz_files_are_not_opened_at_all(kind, tmp_path, canary, little_memory):
    path = tmp_path / "x.npz"
    if kind == "objects":
        np.savez(path, X=np.array([[Evil(canary)]], dtype=object))
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as file:
        if kind == "bomb":
            with file.open("X.npy", "w", force_zip64=True) as member:
                for _ in range(64):
                    member.write(bytes(2**22))
        for k in range(20_000 if kind == "many members" else 0):
            file.writestr(f"{k}.npy", b"")
    refused(lambda: nlis.reference_matrix(PROBLEM, path))
    refused(lambda: nlis.open_rows(path, X="X"))
    refused(lambda: nlis.Sample.load(path))


def test_arrays_left_in_scratch_files_are_not_unpickled(tmp_path, canary):
    np.save(tmp_path / "x.npy", np.array([Evil(canary)], dtype=object))
    with pytest.raises(
        ValueError, match="allow_pickle=False"
    ):  # a file of our own process; whoever replaces it is told so
        left_array(os.fspath(tmp_path / "x.npy"))


# --- Zarr ------------------------------------------------------------------------------------------------------------

VERSION_2 = {"zarr_format": 2, "shape": [60, 3], "chunks": [60, 3], "dtype": "<f8", "compressor": None, "fill_value": 0}
VERSION_2 |= {"order": "C", "filters": None}
VERSION_3 = {
    "zarr_format": 3, "node_type": "array", "shape": [60, 3], "data_type": "float64", "fill_value": 0.0, "attributes": {},
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [60, 3]}},
    "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
    "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
}  # fmt: skip


def zarr_group(folder, metadata, chunk=b""):
    """A group with an array X of this metadata and one chunk file."""
    old = isinstance(metadata, dict) and metadata.get("zarr_format") == 2
    text = metadata if isinstance(metadata, str) else json.dumps(metadata)
    array = folder / "X"
    array.mkdir(parents=True)
    if old:
        (folder / ".zgroup").write_text('{"zarr_format": 2}')
        (array / ".zarray").write_text(text)
        (array / "0.0").write_bytes(chunk)
    else:
        (folder / "zarr.json").write_text('{"zarr_format": 3, "node_type": "group", "attributes": {}}')
        (array / "zarr.json").write_text(text)
        (array / "c" / "0").mkdir(parents=True)
        (array / "c" / "0" / "0").write_bytes(chunk)
    return folder


def grid(shape, chunk):
    return {"shape": shape, "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}}}


METADATA = {
    "pickle as compressor": VERSION_2 | {"compressor": {"id": "pickle"}},
    "pickle as filter": VERSION_2 | {"filters": [{"id": "pickle"}]},
    "pickle after another filter": VERSION_2 | {"filters": [{"id": "delta", "dtype": "<f8"}, {"id": "pickle", "protocol": 5}]},
    "objects by pickle": VERSION_2 | {"dtype": "|O", "filters": [{"id": "pickle"}], "fill_value": None},
    "objects by JSON": VERSION_2 | {"dtype": "|O", "filters": [{"id": "json2"}], "fill_value": None},
    "objects": VERSION_2 | {"dtype": "|O", "fill_value": None},
    "records with objects": VERSION_2 | {"dtype": [["a", "|O"]], "fill_value": None},
    "a codec by path": VERSION_2 | {"compressor": {"id": "os.system", "command": "mkdir canary"}},
    "huge entries": VERSION_2 | {"dtype": "|V2000000000", "fill_value": None},
    "huge shape": VERSION_2 | {"shape": [10**15, 3], "chunks": [1, 3]},
    "huge rows": VERSION_2 | {"shape": [60, 2**60], "chunks": [60, 1]},
    "shape beyond 64 bits": VERSION_2 | {"shape": [10**30, 3]},
    "huge chunks": VERSION_2 | {"shape": [10**12, 3], "chunks": [10**12, 3]},
    "chunks larger than the array": VERSION_2 | {"chunks": [10**12, 10**12]},
    "no chunks": VERSION_2 | {"chunks": [0, 3]},
    "negative shape": VERSION_2 | {"shape": [-60, 3]},
    "many dimensions": VERSION_2 | {"shape": [1] * 60, "chunks": [1] * 60},
    "deep": '{"zarr_format": 3, "attributes": ' + "[" * 100_000,
    "deep attributes": json.dumps(VERSION_3)[:-1] + ', "a": ' + '{"a":' * 50_000 + "1" + "}" * 50_000 + "}",
    "large": " " * MOST_BYTES + json.dumps(VERSION_3),
    "3: pickle": VERSION_3 | {"codecs": [*VERSION_3["codecs"], {"name": "numcodecs.pickle", "configuration": {}}]},
    "3: unknown codec": VERSION_3 | {"codecs": [{"name": "os.system", "configuration": {"command": "mkdir canary"}}]},
    "3: huge shape": VERSION_3 | grid([10**15, 3], [1, 3]),
    "3: huge chunks": VERSION_3 | grid([10**12, 3], [10**12, 3]),
    "3: no chunks": VERSION_3 | grid([60, 3], [0, 3]),
    "3: a shard of shards": VERSION_3
    | grid([2**40, 3], [2**40, 3])
    | {"codecs": [{"name": "sharding_indexed", "configuration": {"chunk_shape": [1, 3], "codecs": VERSION_3["codecs"],
                                                                 "index_codecs": VERSION_3["codecs"]}}]},
    "3: text": VERSION_3 | {"data_type": "string", "fill_value": "", "codecs": [{"name": "vlen-utf8"}]},
    "3: no such type": VERSION_3 | {"data_type": "__import__('os')"},
}  # fmt: skip


@pytest.mark.parametrize("name", METADATA)
@pytest.mark.filterwarnings("ignore::zarr.errors.ZarrUserWarning", "ignore::zarr.errors.UnstableSpecificationWarning")
def test_metadata_of_zarr_runs_nothing_and_makes_nothing_it_asks_for(
    name, tmp_path, canary, little_memory, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    folder = zarr_group(tmp_path / "x.zarr", METADATA[name], pickle.dumps(Evil(canary)))
    refused(lambda: nlis.reference_matrix(PROBLEM, nlis.open_rows(folder, X="X")[0]))
    refused(lambda: nlis.reference_matrix(PROBLEM, folder / "X"))


def test_a_pickle_codec_is_refused_also_where_zarr_takes_it(tmp_path, monkeypatch):
    """The installed Zarr takes none; of the codecs it takes all are looked at, those inside shards too."""
    array = zarr.create_array(tmp_path / "x.zarr", shape=(60, 3), chunks=(10, 3), shards=(30, 3), dtype="f8")
    assert {"sharding_indexed", "bytes", "zstd", "crc32c"} <= set(limits.codec_names(array))
    monkeypatch.setattr(limits, "codec_names", lambda array: ["bytes", "numcodecs.pickle"])
    refused(lambda: nlis.reference_matrix(PROBLEM, array), "runs what the file says")


def test_the_metadata_that_these_are_made_of_open(tmp_path):
    for k, metadata in enumerate((VERSION_2, VERSION_3)):
        assert np.array_equal(computed(zarr_group(tmp_path / f"{k}.zarr", metadata, X.tobytes())), X)


@pytest.mark.parametrize(
    "name", ["..", "../x.zarr/X", "X/../X", "./X", "X/..", "/etc", "", "a\\..\\X", "X\0", "Y" * 5000]
)
def test_names_lead_nowhere_but_to_arrays_of_the_group(name, tmp_path):
    folder = zarr_group(tmp_path / "x.zarr", VERSION_3, X.tobytes())
    refused(lambda: nlis.open_rows(folder, X=name))
    refused(lambda: nlis.open_rows(folder, X="X", y=name))


# --- links -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["array", "chunk folder", "folder in it", "chunk", "chunk of version 2"])
def test_links_that_lead_out_of_a_zarr_folder_are_refused(what, tmp_path):
    outside = zarr_group(tmp_path / "private.zarr", VERSION_3, X.tobytes())
    old = what == "chunk of version 2"
    folder = zarr_group(tmp_path / "x.zarr", VERSION_2 if old else VERSION_3, X.tobytes())
    places = {"array": "X", "chunk folder": "X/c", "folder in it": "X/c/0", "chunk": "X/c/0/0"}
    place = places.get(what, "X/0.0")
    (folder / place).rename(tmp_path / "aside")
    (folder / place).symlink_to(outside / places.get(what, "X/c/0/0"))
    refused(lambda: nlis.open_rows(folder, X="X"), "link out of")
    (folder / place).unlink()
    (folder / "kept").mkdir()
    (tmp_path / "aside").rename(folder / "kept" / "aside")
    (folder / place).symlink_to(folder / "kept" / "aside")  # inside it is the owner's own arrangement
    assert np.array_equal(computed(folder), X)


def test_the_path_that_is_given_may_be_a_link_itself(tmp_path):
    zarr_group(tmp_path / "x.zarr", VERSION_3, X.tobytes())
    (tmp_path / "link").symlink_to(tmp_path / "x.zarr")
    assert np.array_equal(computed(tmp_path / "link"), X)


@pytest.mark.parametrize("suffix", [".csv", ".zarr", ".parquet"])
@pytest.mark.parametrize("target", ["file", "folder", "nothing"])
def test_no_output_is_written_through_a_link(suffix, target, tmp_path):
    pytest.importorskip("pyarrow")
    victim, link = tmp_path / "victim", tmp_path / f"sample{suffix}"
    if target == "file":
        victim.write_text("kept")
    elif target == "folder":
        victim.mkdir()
    link.symlink_to(victim)
    for overwrite in (False, True):
        refused(lambda overwrite=overwrite: SAMPLE.save(link, overwrite=overwrite), "symbolic link")
    refused(lambda: nlis.run(PROBLEM, X, Y, size=20, seed=0, store=link))
    assert victim.exists() == (target != "nothing")
    assert target != "file" or victim.read_text() == "kept"
    assert target != "folder" or not list(victim.iterdir())
    assert {path.name for path in tmp_path.iterdir()} == {link.name, *([] if target == "nothing" else ["victim"])}


def test_files_that_are_written_are_no_ones_else_before_they_are_whole(tmp_path, monkeypatch):
    seen = []
    real = os.replace
    monkeypatch.setattr(
        os, "replace", lambda a, b: (seen.append(os.stat(os.path.dirname(a)).st_mode & 0o777), real(a, b))
    )
    SAMPLE.save(tmp_path / "sample.csv")
    assert seen == [0o700]


# --- HDF5 ------------------------------------------------------------------------------------------------------------


def test_hdf5_links_and_sources_outside_are_refused_by_name(tmp_path):
    (tmp_path / "data").mkdir()
    with h5py.File(tmp_path / "private.h5", "w") as file:
        file["X"] = X
    (tmp_path / "raw").write_bytes(X.tobytes())
    virtual = h5py.VirtualLayout(shape=X.shape, dtype="f8")
    virtual[:] = h5py.VirtualSource("../private.h5", "X", shape=X.shape)
    path = tmp_path / "data" / "x.h5"
    with h5py.File(path, "w") as file:
        file["good"] = X
        file["soft"] = h5py.SoftLink("/good")
        file["group/inner"] = X
        file["outer"] = h5py.SoftLink("/group")
        file["external"] = h5py.ExternalLink("../private.h5", "/X")
        file["absolute"] = h5py.ExternalLink(os.fspath(tmp_path / "private.h5"), "/")
        file["through"] = h5py.SoftLink("/absolute/X")
        file["loop"] = h5py.SoftLink("/loop")
        file["nothing"] = h5py.SoftLink("/nowhere")
        file.create_virtual_dataset("virtual", virtual)
        file.create_dataset("raw", X.shape, "f8", external=[("../raw", 0, X.nbytes)])
        file.create_dataset("passwords", (4, 2), "u1", external=[("/etc/passwd", 0, 8)])
    for name in ("good", "soft", "group/inner", "outer/inner", "/good"):
        assert np.array_equal(computed(path, name), X)
    for name, says in {
        "external": "private.h5", "absolute": "no array|private.h5", "absolute/X": "private.h5", "through": "private.h5",
        "virtual": "private.h5", "raw": "raw", "passwords": "/etc/passwd", "loop": "leads to itself", "nothing": "no array",
        "../good": "no array", "good/..": "no array", "good\0": "no array", "": "no array", "group": "no array",
    }.items():  # fmt: skip
        refused(lambda name=name: nlis.open_rows(path, X=name), says)
    with h5py.File(path) as file:  # an open dataset is looked at in the same way
        refused(lambda: nlis.reference_matrix(PROBLEM, file["virtual"]), "outside the folder")


def test_a_file_that_is_replaced_by_one_with_links_after_it_was_opened_is_refused_in_the_task(tmp_path):
    with h5py.File(tmp_path / "private.h5", "w") as file:
        file["X"] = X
    (tmp_path / "data").mkdir()
    path = tmp_path / "data" / "x.h5"
    with h5py.File(path, "w") as file:
        file["X"] = X
    x, _ = nlis.open_rows(path, X="X")
    path.unlink()
    with h5py.File(path, "w") as file:
        file["X"] = h5py.ExternalLink("../private.h5", "/X")
    refused(lambda: x.compute(scheduler="sync"))


# --- documents -------------------------------------------------------------------------------------------------------

DEEP = 100_000
DOCUMENTS = {
    "code as a model.toml": "model = {noun = \"__import__('os').mkdir('canary')\"}",
    "module as a model.toml": 'noun = "os.system"\nmodel = "mkdir canary"',
    "method as a model.toml": 'model = {noun = "Problem.__class__"}',
    "function as an activation.json": '{"model": {"noun": "SingleIndex", "activation": "os.mkdir"}}',
    "callable.json": '{"model": {"noun": "Homogeneous", "value": "os.mkdir", "gradient": "os.mkdir", "degree": 1, "n_params": 2}}',
    "deep.json": "[" * DEEP,
    "deep tables.json": '{"model":' * DEEP + "1" + "}" * DEEP,
    "deep.toml": "model = " + "[" * DEEP + "]" * DEEP,
    "deep keys.toml": "a." * 5000 + "b = 1",
    "forty levels.json": '{"model":' * 40 + "1" + "}" * 40,
    "large.json": '{"model": "' + " " * MOST_BYTES + '"}',
    "large.toml": "#" * (MOST_BYTES + 1),
    "digits.json": '{"model": {"noun": "ReluNetwork", "n_hidden": ' + "9" * 5000 + "}}",
    "beyond floats.json": '{"model": {"noun": "Linear"}, "constraint": {"noun": "Ball", "radius": ' + "9" * 400 + "}}",
    "no number.json": '{"model": {"noun": "Linear"}, "constraint": {"noun": "Ball", "radius": NaN}}',
    "date.toml": 'model = {noun = "Linear"}\nconstraint = {noun = "Ball", radius = 1979-05-27}',
    "list.json": "[1, 2]",
    "not UTF-8.json": b'{"model": "\xff\xfe"}',
    "surrogate.json": '{"model": {"noun": "\\ud800"}}',
    "unhashable.json": '{"model": {"noun": ["Linear"]}}',
    "dunder.json": '{"model": {"noun": "Linear", "__class__": "x"}}',
    "zero.json": "\0",
    "empty.toml": "",
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_problem_files_name_no_code_and_are_read_up_to_a_size_and_depth(
    name, tmp_path, canary, little_memory, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    content = DOCUMENTS[name]
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    says = "bytes, above" if name.startswith("large") else None
    refused(lambda: problem_from(tmp_path / name, None, None, None, None), says)


def test_names_on_the_command_line_are_looked_up_and_not_run(tmp_path, canary, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for spec in (
        "__import__('os').mkdir('canary')",
        "os.mkdir:path=canary",
        "Problem",
        "linear:__class__=x",
        "linear:intercept=exec",
    ):
        refused(lambda spec=spec: problem_from(None, spec, None, None, None))
        refused(lambda spec=spec: problem_from(None, "single-index", spec, None, None))


@pytest.mark.parametrize("noun", ["Sample", "Factor", "Fit", "Problem", "Certificate"])
def test_dictionaries_deeper_than_any_noun_are_refused(noun):
    deep = 1
    for _ in range(DEEP // 10):
        deep = {"noun": noun, "problem": deep, "model": deep} if noun in ("Fit", "Problem") else [deep]
    cls = getattr(nlis, noun, None) or getattr(nlis.diagnostics, noun)
    refused(lambda: cls.from_dict({"noun": noun, "problem": deep, "model": deep, "loss": deep, "constraint": None}))


# --- tables ----------------------------------------------------------------------------------------------------------


def test_a_saved_table_declares_no_more_than_it_has(tmp_path, little_memory):
    SAMPLE.save(tmp_path / "s.zarr")
    for metadata in sorted((tmp_path / "s.zarr").glob("*/zarr.json")):
        text = metadata.read_text()
        found = json.loads(text)
        for rows, chunk in ((10**12, 10**12), (10**12, 20), (2**29, 2**29), (2**40, 2**20), (10**7, 20)):
            metadata.write_text(json.dumps(found | grid([rows], [chunk])))
            refused(lambda: nlis.Sample.load(tmp_path / "s.zarr"))
        metadata.write_text(text)
    assert nlis.Sample.load(tmp_path / "s.zarr") == SAMPLE
    for chunk in (tmp_path / "s.zarr").glob("*/c/0"):
        chunk.rename(tmp_path / "aside")
        refused(lambda: nlis.Sample.load(tmp_path / "s.zarr"))  # not read as zeros
        (tmp_path / "aside").rename(chunk)


def test_headers_of_tables_are_held_to_the_size_and_depth_of_documents(tmp_path, canary, little_memory):
    SAMPLE.save(tmp_path / "s.csv")
    _, rest = (tmp_path / "s.csv").read_text().split("\n", 1)
    for header in (
        "[" * DEEP,
        '{"noun": "Sample"' + " " * MOST_BYTES + "}",
        '{"noun": "os.system"}',
        "[]",
        "1",
        "NaN",
        "",
    ):
        (tmp_path / "s.csv").write_text(f"# {header}\n{rest}")
        refused(lambda: nlis.Sample.load(tmp_path / "s.csv"))


def test_a_parquet_file_of_objects_or_of_more_than_fits_is_refused(tmp_path, canary, little_memory, monkeypatch):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    SAMPLE.save(tmp_path / "s.parquet")
    table = pq.read_table(tmp_path / "s.parquet")
    for column in (pa.array([pickle.dumps(Evil(canary))] * 20), pa.array(["=1+1"] * 20), pa.array([[1.0]] * 20)):
        pq.write_table(table.set_column(0, "row", column), tmp_path / "t.parquet")
        refused(lambda: nlis.Sample.load(tmp_path / "t.parquet"))
    zeros = {name: np.zeros(2**20, table[name].to_numpy().dtype) for name in table.column_names}
    pq.write_table(
        pa.table(zeros).cast(table.schema).replace_schema_metadata(table.schema.metadata), tmp_path / "bomb.parquet"
    )
    assert (tmp_path / "bomb.parquet").stat().st_size < 10**5  # 42 MB of numbers
    monkeypatch.setattr(tables, "MOST_BYTES", 2**25)
    refused(lambda: nlis.Sample.load(tmp_path / "bomb.parquet"), "take more than")


def test_no_cell_of_a_csv_file_is_a_formula_and_numbers_stay_numbers(tmp_path):
    names = ("=1+1", "a,=cmd|' /C calc'!A0", "b;@sum(1)", "-2+3", "+4", "\t=5", 'q",=6', "\n=7", "plain")
    sample = nlis.Sample.from_probabilities([3, 1], [0.25, 0.5], n_rows=4, seed=7, feature_names=names)
    sample.save(tmp_path / "s.csv")
    assert nlis.Sample.load(tmp_path / "s.csv") == sample
    text = (tmp_path / "s.csv").read_text()
    for delimiter in ",;\t|":
        for row in csv.reader(io.StringIO(text), delimiter=delimiter):
            for cell in row:
                inner = cell.strip().lstrip("'\"[ ")
                if inner[:1] in ("=", "+", "-", "@"):
                    float(inner)  # a number, as it stands
    assert "0.25" in text
    factor = nlis.draw(np.array([1e-300, 1.0]), 2, seed=0)  # a negative exponent in the header stays one
    factor.save(tmp_path / "t.csv")
    assert (
        json.loads((tmp_path / "t.csv").read_text().splitlines()[0][2:])["scale"]["exponent"] == factor.scale.exponent
    )


def test_a_zarr_group_that_a_user_opened_is_held_to_the_same(tmp_path, little_memory):
    folder = zarr_group(tmp_path / "x.zarr", METADATA["3: huge shape"])
    refused(lambda: nlis.reference_matrix(PROBLEM, zarr.open_group(folder, mode="r")["X"]))
