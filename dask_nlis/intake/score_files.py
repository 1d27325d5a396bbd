"""Scores in a Zarr array: each task writes whole chunks of its own, and a record of each is kept."""

import tempfile
import uuid
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import dask.array as da
import numpy as np
import zarr
from dask.layers import ArrayValuesDep
from zarr.codecs import Crc32cCodec, ZstdCodec
from zarr.storage import LocalStore

from dask_nlis.blocks import is_regular, starts
from dask_nlis.errors import InputError
from dask_nlis.intake.reader import Reader, write_unit
from dask_nlis.intake.scratch import scratch_folder


def create_scores(store: Any, name: str, chunks: Sequence[int]) -> "zarr.Array[Any]":
    """Create a float64 score array, NaN-filled, one chunk a task, with a checksum in every chunk.

    `chunks` are the row chunks of the scores; they must be regular, for a task must write whole chunks:
    misaligned writes lose rows silently.
    """
    if not is_regular(chunks):
        raise InputError(f"scores come in irregular chunks {tuple(chunks[:4])}...; rechunk them before writing")
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


def write_scores(scores: da.Array, target: "zarr.Array[Any]", label: str) -> da.Array:
    """Return a lazy array of one ScoreRecord a block; computing it writes the scores to `target`.

    Each task writes whole chunks of its own, so a repeated task rewrites the same bytes.
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
        adjust_chunks={"i": 1},
        dtype=object,
        meta=np.empty((0,), dtype=object),
        token=label,
        align_arrays=False,
    )
    return written


def _write_block(block: np.ndarray, start: int, target: "zarr.Array[Any]") -> np.ndarray:
    out = np.empty(1, dtype=object)
    out[0] = write_block(block, int(start), target)
    return out


def write_block(block: np.ndarray, start: int, target: "zarr.Array[Any]") -> ScoreRecord:
    """Write a block of scores, which are whole chunks, and describe it."""
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
