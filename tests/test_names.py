import dask_nlis as nlis


def test_public_names_are_listed_sorted_and_there():
    assert nlis.__all__ == sorted(nlis.__all__)
    public = {name for name in dir(nlis) if not name.startswith("_") and _ours(getattr(nlis, name))}
    assert public == set(nlis.__all__)


def _ours(value: object) -> bool:
    # Sub-packages appear as attributes once imported; the public ones are cluster, datasets and plots.
    return value in (nlis.cluster, nlis.datasets, nlis.plots) or (
        getattr(value, "__module__", "").startswith("dask_nlis") and not isinstance(value, type(nlis))
    )
