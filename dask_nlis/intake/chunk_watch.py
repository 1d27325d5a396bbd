"""Zarr reads a chunk that is not there as fill values, and does not say so: here every read tells which were not there.

The store of an array is wrapped, at no further request: of a chunk that the store does not have, and of an inner chunk
that the index of its shard leaves out, the rows are noted. So are two kinds of damage that decoding lets pass: a shard of
no bytes, which Zarr takes for an empty one, and a Blosc chunk that is cut short, of which Blosc makes other numbers.
"""

import math
import re
from typing import Any, NamedTuple

import numpy as np
import zarr
from zarr.abc.store import ByteRequest, Store
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, ShardingCodec
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.core.metadata.v3 import ArrayV3Metadata
from zarr.storage import StorePath, WrapperStore


class Absent(NamedTuple):
    """Chunks that are not there: how many, of how many, and the rows of the first."""

    n: int
    total: int
    first: int
    last: int
    inside: str  # "" or where these chunks are counted: " of shard c/0/0"

    def told(self, name: str) -> str:
        """What is missing, in the words of the error and of the warning."""
        chunks = f"{self.n:,} of {self.total:,} chunks{self.inside}"
        verb = "is" if self.n == 1 else "are"
        return f"{name}: {chunks} {verb} missing, the first holds rows {self.first} to {self.last}"


def grid_of(array: "zarr.Array[Any]") -> tuple[int, ...]:
    """Stored objects along each dimension: shards, or chunks where there are no shards."""
    unit = array.shards or array.chunks
    return tuple(-(-length // size) for length, size in zip(array.shape, unit, strict=True))


def rows_at(array: "zarr.Array[Any]", place: int) -> tuple[int, int]:
    """First and last row of the stored objects at a place along the rows."""
    unit = (array.shards or array.chunks)[0]
    return place * unit, min((place + 1) * unit, array.shape[0]) - 1


class Watched(WrapperStore[Store]):
    """The store of an array, for one read: notes the chunks asked for that it does not have."""

    def __init__(self, array: "zarr.Array[Any]") -> None:
        super().__init__(array.store)
        self.array = array
        self.gone: set[tuple[int, ...]] = set()  # places in the grid of stored objects
        self.inner: list[Absent] = []
        self.cut: dict[tuple[int, ...], str] = {}  # what is wrong with stored objects
        self._index = _Index.of(array)
        # The codec that was applied last. In shards, the checksum of the index notices.
        last = array.compressors[-1] if array.compressors and array.shards is None else None
        self._blosc = isinstance(last, BloscCodec) or getattr(last, "codec_id", "") == "blosc"

    def view(self) -> "zarr.Array[Any]":
        """The same array, read through this store; its metadata are not read again."""
        asynchronous = self.array.async_array
        where = StorePath(self, self.array.path)
        return zarr.Array(type(asynchronous)(asynchronous.metadata, where, asynchronous.config))

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        """Get bytes as the store does, and note what is not there."""
        found = await self._store.get(key, prototype, byte_range)
        if found is None:
            self.gone.add(self._place(key))
        elif byte_range is None and (wrong := self._cut_short(found)):
            self.cut[self._place(key)] = wrong
        elif self._index is not None:
            self._note_inner(key, found, self._index, whole=byte_range is None)
        return found

    def _place(self, key: str) -> tuple[int, ...]:
        # Behind the path come the numbers of the chunk, in the way of either version: c/3/0, 3.0, 3/0.
        return tuple(map(int, re.findall(r"\d+", key[len(self.array.path) :])[-len(self.array.shape) :]))

    def _cut_short(self, found: Buffer) -> str:
        size = len(found)
        if not size:
            return "it has no bytes"
        if not self._blosc:
            return ""
        # Bytes 12 to 15 of the header of a Blosc buffer are the length of all of it.
        wanted = int.from_bytes(found[:16].as_numpy_array()[12:].tobytes(), "little") if size >= 16 else 16
        return "" if size == wanted else f"it has {size:,} bytes of {wanted:,}"

    def _note_inner(self, key: str, found: Buffer, index: "_Index", whole: bool) -> None:
        data = found.as_numpy_array()
        if whole and len(data) >= index.size:
            data = data[: index.size] if index.at_start else data[-index.size :]
        if len(data) != index.size:
            return  # an inner chunk by itself, or a shard cut short, which Zarr refuses
        table = np.frombuffer(data.tobytes(), dtype="<u8", count=2 * math.prod(index.inner)).reshape(*index.inner, 2)
        corner = np.array(self._place(key)) * index.inner
        places = np.moveaxis(np.indices(index.inner), 0, -1) + corner
        # The last shards reach beyond the array, where nothing is stored.
        within = (places * self.array.chunks < self.array.shape).all(axis=-1)
        gone = (table == 2**64 - 1).all(axis=-1) & within
        if not gone.any():
            return
        first = int(places[gone][:, 0].min()) * self.array.chunks[0]
        last = min(first + self.array.chunks[0], self.array.shape[0]) - 1
        name = key[len(self.array.path) :].lstrip("/")
        self.inner.append(Absent(int(gone.sum()), int(within.sum()), first, last, f" of shard {name}"))

    def absent(self) -> Absent | None:
        """What was not there among the chunks read; they are counted in the whole array, by one listing."""
        if not self.gone:
            return min(self.inner, key=lambda each: each.first, default=None)
        total, unit = math.prod(grid_of(self.array)), self.array.shards or self.array.chunks
        per_object = math.prod(-(-length // size) for length, size in zip(unit, self.array.chunks, strict=True))
        count = max(len(self.gone), total - self.array.nchunks_initialized // per_object)
        return Absent(count, total, *rows_at(self.array, min(place[0] for place in self.gone)), "")


class _Index(NamedTuple):
    """How the index of the shards of an array is stored."""

    inner: tuple[int, ...]  # chunks of a shard in each dimension
    size: int  # bytes
    at_start: bool

    @classmethod
    def of(cls, array: "zarr.Array[Any]") -> "_Index | None":
        """None where there are no shards, or the index is encoded in a way of its own."""
        metadata = array.metadata
        if array.shards is None or not isinstance(metadata, ArrayV3Metadata):
            return None
        codec = metadata.codecs[0]
        if not isinstance(codec, ShardingCodec):
            return None
        first, *rest = codec.index_codecs
        endian = getattr(getattr(first, "endian", None), "value", None)
        if not isinstance(first, BytesCodec) or endian != "little":
            return None
        if len(rest) > 1 or not all(isinstance(each, Crc32cCodec) for each in rest):
            return None
        inner = tuple(whole // part for whole, part in zip(array.shards, array.chunks, strict=True))
        return cls(inner, 16 * math.prod(inner) + 4 * len(rest), codec.index_location.value == "start")
