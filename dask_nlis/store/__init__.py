"""The run store: what a run writes, keeps on its way, and is opened from."""

from dask_nlis.store.buckets import Bucket
from dask_nlis.store.check import check_store
from dask_nlis.store.fingerprint import check_same
from dask_nlis.store.lock import Owner, lives, read_owner
from dask_nlis.store.nouns import read_noun, stored_array, write_array, write_noun
from dask_nlis.store.place import Place
from dask_nlis.store.places import Folder
from dask_nlis.store.records import FORMAT
from dask_nlis.store.run_store import Group, RunStore, clear_leftovers, open_complete, under_way
from dask_nlis.store.state import begun_seed, is_complete, place_of, progress, read_manifest, state_of

__all__ = [
    "FORMAT",
    "Bucket",
    "Folder",
    "Group",
    "Owner",
    "Place",
    "RunStore",
    "begun_seed",
    "check_same",
    "check_store",
    "clear_leftovers",
    "is_complete",
    "lives",
    "open_complete",
    "place_of",
    "progress",
    "read_manifest",
    "read_noun",
    "read_owner",
    "state_of",
    "stored_array",
    "under_way",
    "write_array",
    "write_noun",
]
