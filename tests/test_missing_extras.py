"""Without a library that only an extra brings, one line names that extra, before anything is read or started."""

import pickle
import re
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from counting import no_compute, rows_of

import dask_nlis as nlis
from dask_nlis import plots

EXTRAS = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8"))["project"][
    "optional-dependencies"
]
X, Y = rows_of(0, 40, 2)
SAMPLE = nlis.draw(np.ones(40), 10, seed=0)


@pytest.fixture(scope="module")
def job():
    return nlis.run(nlis.Problem(nlis.Linear()), X, Y, size=20, seed=0)


def _file(folder, name):
    (folder / name).write_bytes(b"x0,y\n1,2\n")
    return folder / name


#: Each call that needs a library beyond those of the package: the module, the extra, and the call.
CALLS = {
    "a DataFrame of rows": ("pandas", "dataframe", lambda job, folder: nlis.top_rows(X[:, 0], 3).to_frame()),
    "a DataFrame of a drift": (
        "pandas",
        "dataframe",
        lambda job, folder: nlis.drift(job.problem, X, Y, np.ones((2, 3))).to_frame(),
    ),
    "a DataFrame of a comparison": (
        "pandas",
        "dataframe",
        lambda job, folder: nlis.compare(job.problem, X, Y, {"all": np.ones(40)}, sizes=[20], seeds=1).to_frame(),
    ),
    "a CSV file": ("pandas", "dataframe", lambda job, folder: nlis.open_rows(_file(folder, "t.csv"), X=["x0"], y="y")),
    "a Parquet file": (
        "pyarrow",
        "dataframe",
        lambda job, folder: nlis.open_rows(_file(folder, "t.parquet"), X=["x0"], y="y"),
    ),
    "an HDF5 file": ("h5py", "hdf5", lambda job, folder: nlis.open_rows(_file(folder, "t.h5"), X="X", y="y")),
    "a sample as Parquet": ("pyarrow", "dataframe", lambda job, folder: SAMPLE.save(folder / "s.parquet")),
    "a plot": ("matplotlib", "plot", lambda job, folder: plots.scores(X[:, 0])),
    "a report": ("matplotlib", "plot", lambda job, folder: job.report(folder / "r.html")),
    "an estimator": ("sklearn", "sklearn", lambda job, folder: nlis.refit_with(None, X[:10], Y[:10], np.ones(10))),
    "a fitted estimator": ("sklearn", "sklearn", lambda job, folder: nlis.from_sklearn(None)),
    "a torch module": ("torch", "torch", lambda job, folder: nlis.from_torch(None)),
    "a function of JAX": ("jax", "jax", lambda job, folder: nlis.from_jax(None, [1.0])),
    "a Dataset": ("xarray", "xarray", lambda job, folder: nlis.from_xarray(None)),
}


@pytest.mark.parametrize(("module", "extra", "call"), CALLS.values(), ids=CALLS)
def test_the_extra_is_named_before_anything_is_written(module, extra, call, job, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    for name in [name for name in sys.modules if name.startswith(f"{module}.")]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(nlis.MissingExtraError, match=rf"pip install 'dask-nlis\[{extra}\]'") as caught:
        call(job, tmp_path)
    assert re.search(module.replace("sklearn", "scikit-learn"), str(caught.value), re.IGNORECASE)
    assert "\n" not in str(caught.value)
    assert any(need.lower().startswith(module.replace("sklearn", "scikit-learn")) for need in EXTRAS[extra])
    assert not [path for path in tmp_path.iterdir() if path.suffix in (".html", ".parquet") and path.stem != "t"]


def test_it_is_an_import_error_and_one_of_ours_with_its_message():
    error = nlis.MissingExtraError("plots need matplotlib")
    assert isinstance(error, ImportError)
    assert isinstance(error, nlis.InputError)
    assert str(error) == str(pickle.loads(pickle.dumps(error))) == "plots need matplotlib"


def test_lazy_data_are_not_read_in_vain(monkeypatch):
    import dask.array as da

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with no_compute(), pytest.raises(nlis.MissingExtraError):
        plots.scores(da.from_array(X[:, 0], 10))
