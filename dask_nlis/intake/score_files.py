"""Scores in a Zarr array: each task writes whole chunks of its own, and a record of each is kept."""

import tempfile
import uuid
import zlib
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import dask.array as da
import numpy as np
import zarr
from dask.layers import ArrayValuesDep
from zarr.codecs import Crc32cCodec, ZstdCodec
from zarr.storage import LocalStore

from dask_nlis import phase
from dask_nlis.blocks import is_regular, starts
from dask_nlis.checkpoints import NOWHERE, Checkpoints, kinds_of, with_kept
from dask_nlis.errors import InputError
from dask_nlis.failures import writing
from dask_nlis.intake.reader import Reader, write_unit
from dask_nlis.intake.scratch import scratch_folder


def create_scores(store: Any, name: str, chunks: Sequence[int]) -> "zarr.Array[Any]":
    """Create a float64 score array, NaN-filled, one chunk a task, with a checksum in every chunk; or open it again.

    `chunks` are the row chunks of the scores; they must be regular, for a task must write whole chunks:
    misaligned writes lose rows silently.
    """
    if not is_regular(chunks):
        raise InputError(f"scores come in irregular chunks {tuple(chunks[:4])}...; rechunk them before writing")
    with suppress(FileNotFoundError):
        found = zarr.open_array(store, path=name, mode="r+")
        if found.shape == (sum(chunks),) and found.chunks == (chunks[0],):
            return found
        raise InputError(f"{name} is there already, in other chunks; give a new path")
    with writing("the metadata of the scores"):
        return zarr.create_array(
            store,
            name=name,
            shape=(sum(chunks),),
            chunks=(chunks[0],),
            dtype="float64",
            fill_value=float("nan"),
            compressors=[ZstdCodec(level=3), Crc32cCodec()],
            config={"write_empty_chunks": True},
        )


class ScoreRecord(NamedTuple):
    """What is known of one written score chunk."""

    start: int
    rows: int
    checksum: int  # CRC-32 of the little-endian float64 bytes
    smallest: float
    largest: float
    total: float


def write_scores(scores: da.Array, target: "zarr.Array[Any]", label: str, saved: Checkpoints = NOWHERE) -> da.Array:
    """Return a lazy array of one ScoreRecord a block; computing it writes the scores to `target`.

    Each task writes whole chunks of its own, so a repeated task rewrites the same bytes, and then keeps the record.
    """
    unit = write_unit(target)
    if not is_regular(scores.chunks[0]) or (scores.numblocks[0] > 1 and scores.chunks[0][0] % unit):
        shown = ", ".join(map(str, scores.chunks[0][:3]))
        raise InputError(
            f"scores come in blocks of {shown}, ... rows, but are stored by {unit:,}; rechunk them to a multiple of that"
        )
    written: da.Array = da.blockwise(
        _write_block,
        "i",
        scores,
        "i",
        ArrayValuesDep(scores.chunks, starts(scores.chunks[0])),
        "i",
        target=target,
        saved=saved,
        adjust_chunks={"i": 1},
        dtype=object,
        meta=np.empty((0,), dtype=object),
        token=label,
        align_arrays=False,
    )
    return written


def _write_block(block: np.ndarray, start: int, target: "zarr.Array[Any]", saved: Checkpoints) -> np.ndarray:
    record = write_block(block, int(start), target)
    saved.save(block_name(record.start, record.rows), record)
    return _boxed(record)


def _boxed(record: ScoreRecord | None) -> np.ndarray:
    out = np.empty(1, dtype=object)
    out[0] = record
    return out


def block_name(start: int, rows: int) -> str:
    """Name under which a block is kept: an empty block begins where the next one does."""
    return f"{start}-{rows}"


def written_scores(
    scores: da.Array, target: "zarr.Array[Any]", label: str, saved: Checkpoints = NOWHERE, n_bytes: int = 0
) -> list[ScoreRecord]:
    """Compute lazy scores (n,) into `target`, and return the record of each chunk; chunks that are kept are not made again."""
    lazy = write_scores(scores, target, label, saved)
    names = [block_name(*pair) for pair in zip(starts(scores.chunks[0]).tolist(), scores.chunks[0], strict=True)]
    known = saved.names()
    kept = {k: (saved, name, target) for k, name in enumerate(names) if name in known}
    blocks = phase.blocks_of(with_kept(lazy, _kept_block, kept), label, n_rows=scores.shape[0], n_bytes=n_bytes)
    records: list[ScoreRecord] = [block[0] for block in blocks]
    lost = [k for k, record in enumerate(records) if record is None]
    if lost:
        waiting = iter(lost)
        phase.each_block(lazy, label, lambda block: records.__setitem__(next(waiting), block[0]), only=lost)
    return records


def _kept_block(saved: Checkpoints, name: str, target: "zarr.Array[Any]") -> np.ndarray:
    record = saved.load(name, kinds_of(ScoreRecord))
    return _boxed(record if record is not None and is_written(record, target) else None)


def is_written(record: ScoreRecord, target: "zarr.Array[Any]") -> bool:
    """Whether the chunk that a record describes is there, whole."""
    try:
        block = np.asarray(target[record.start : record.start + record.rows])
    except (OSError, RuntimeError, ValueError):  # a chunk that is cut short, or whose checksum is wrong
        return False
    return score_record(block, record.start)[:3] == record[:3]


def write_block(block: np.ndarray, start: int, target: "zarr.Array[Any]") -> ScoreRecord:
    """Write a block of scores, which are whole chunks, and describe it."""
    with writing(f"{block.nbytes:,} bytes of scores, rows {start:,} to {start + len(block) - 1:,},"):
        target[start : start + len(block)] = block
    return score_record(block, start)


def score_record(block: np.ndarray, start: int) -> ScoreRecord:
    """Describe a block of scores: place, checksum, extremes and total."""
    checksum = zlib.crc32(np.ascontiguousarray(block, dtype="<f8").tobytes())
    smallest, largest = float(block.min(initial=np.inf)), float(block.max(initial=0.0))
    return ScoreRecord(start, len(block), checksum, smallest, largest, float(block.sum()))


def regular(scores: da.Array) -> da.Array:
    """Rechunk 1-D scores to one regular chunk length where they are irregular; X itself is never rechunked."""
    chunks = scores.chunks[0]
    if is_regular(chunks):
        return scores
    return scores.rechunk((max(chunks),), method="tasks")


def scratch_scores(scores: da.Array, label: str) -> tuple[da.Array, da.Array, tempfile.TemporaryDirectory[str]]:
    """Prepare a temporary Zarr array for scores that do not fit in memory.

    Returns the lazy write (one task a block), the lazy read of the same scores, and the folder, whose
    life ends with the object.
    """
    folder = scratch_folder("nlis-scores-")
    scores = regular(scores)
    target = create_scores(LocalStore(folder.name), "scores", scores.chunks[0])
    read = Reader(target, uuid.uuid4().hex).to_dask(scores.chunks)
    return write_scores(scores, target, label), read, folder
