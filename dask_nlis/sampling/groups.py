"""Groups of rows, each drawn from on its own: labels, sizes of the groups, and one Sample of all."""

import os
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import dask.array as da
import numpy as np

from dask_nlis import phase
from dask_nlis.errors import InputError, InputTypeError
from dask_nlis.intake import open_array
from dask_nlis.kernels.exact_sums import exact_total
from dask_nlis.sample import GroupScale, Sample, Scale
from dask_nlis.sampling.arguments import DISTINCT
from dask_nlis.sampling.passes import PAIRS
from dask_nlis.sampling.plan import Plan
from dask_nlis.sampling.summary import Summary, check_enough

Label = Any  # int or str

_REMEDY = "give integers or strings, one label a row"


def open_labels(by: Any, chunks: Sequence[int]) -> da.Array:
    """Labels of the rows as a lazy array of integers or strings in the chunks of the scores."""
    if isinstance(by, np.ma.MaskedArray):
        raise InputTypeError(f"by is a MaskedArray, whose mask would be ignored; {_REMEDY}")
    if isinstance(by, da.Array):
        array = by
    elif not isinstance(by, np.ndarray) and isinstance(getattr(by, "data", None), da.Array):  # a lazy DataArray
        array = by.data
    elif isinstance(by, str | os.PathLike) or type(by).__module__.partition(".")[0] == "zarr":
        array = open_array("by", by, chunks=chunks).array
    else:
        try:
            array = da.from_array(np.asarray(by), chunks=-1)
        except ValueError as cause:
            raise InputTypeError(f"by is a {type(by).__name__} of unequal rows; {_REMEDY}") from cause
    if array.shape != (sum(chunks),):
        raise InputError(f"by has shape {array.shape}, the scores have {(sum(chunks),)}; {_REMEDY}")
    if array.dtype.kind not in "biuUTO":
        raise InputTypeError(f"by has dtype {array.dtype}; {_REMEDY}")
    return array if array.chunks[0] == tuple(chunks) else array.rechunk((tuple(chunks),), method="tasks")


def distinct_labels(labels: da.Array) -> tuple[Label, ...]:
    """All labels, ascending; computes the array once."""
    found: set[Label] = set()
    phase.on_blocks(labels, "nlis-draw", _block_labels, dict.fromkeys(range(labels.numblocks[0]), ()), found.update)
    return tuple(sorted(found))


def _plain(block: np.ndarray) -> np.ndarray:
    """Labels of a block as an array of integers or fixed-length strings."""
    if block.dtype.kind in "TO":
        values = block.tolist()
        wrong = next((value for value in values if not isinstance(value, str)), None)
        if wrong is not None or None in values:
            raise InputTypeError(f"by holds {wrong!r}"[:120] + f"; {_REMEDY}")
        return np.array(values, dtype=np.str_)
    return block.astype(np.int64) if block.dtype.kind == "b" else block


def _block_labels(block: np.ndarray) -> list[Label]:
    return np.unique(_plain(block)).tolist()


def with_groups(scores: da.Array, codes: da.Array) -> da.Array:
    """Scores beside the number of the group of each row."""
    return da.map_blocks(_pairs, scores, codes, dtype=PAIRS, meta=np.empty(0, dtype=PAIRS), token="nlis-draw")  # noqa: S106 (a label of tasks)


def _pairs(scores: np.ndarray, codes: np.ndarray) -> np.ndarray:
    pairs = np.empty(len(scores), dtype=PAIRS)
    pairs["score"], pairs["group"] = scores, codes
    return pairs


def group_numbers(labels: da.Array, known: tuple[Label, ...]) -> da.Array:
    """Position of each row's label among the known ones, as float64 like the scores, beside which it is kept."""
    table = np.array(known, dtype=labels.dtype if labels.dtype.kind in "iu" else None)
    return da.map_blocks(_block_numbers, labels, table=table, dtype=np.float64, meta=np.empty(0), token="nlis-draw")  # noqa: S106 (a label of tasks)


def _block_numbers(block: np.ndarray, table: np.ndarray) -> np.ndarray:
    return np.searchsorted(table, _plain(block)).astype(np.float64)


def named_sizes(size: Mapping[Any, Any], labels: tuple[Label, ...]) -> list[int]:
    """Sizes of the groups from a mapping label -> count, which names every group."""
    for label, count in size.items():
        if isinstance(count, bool) or not isinstance(count, int | np.integer):
            raise InputTypeError(f"size[{label!r}]={count!r} is {type(count).__name__}; give a count")
        if count < 0:
            raise InputError(f"size[{label!r}]={count} is negative; give a count, 0 to leave the group out")
        if label not in labels:
            raise InputError(f"size names the group {label!r}, which by does not hold; leave it out")
    missing = [label for label in labels if label not in size]
    if missing:
        raise InputError(
            f"size names no count for the group {missing[0]!r}"
            f"{f' and {len(missing) - 1:,} more' if len(missing) > 1 else ''}; give one, 0 to leave its rows out"
        )
    if not any(size.values()):
        raise InputError("all counts of size are 0, so no row can be drawn; give a positive one")
    return [int(size[label]) for label in labels]


def shared_sizes(size: int, least: int, mix: float, scheme: str, parts: Sequence[Summary]) -> list[int]:
    """Split `size` in proportion to the scores of the groups, with at least `least` draws in each.

    Exact: size_g = c share_g, but at least `least` and, where rows are drawn once, at most the rows with positive
    scores (the least where a group has fewer); c makes them sum to `size`. Rounded down, then up at the largest
    fractions. With `mix` the shares are those of the blended scores.
    """
    positive = [part.n_positive for part in parts]
    most = [count if scheme in DISTINCT else size for count in positive]
    low = [min(least, top) if count else 0 for top, count in zip(most, positive, strict=True)]
    high = [top if count else 0 for top, count in zip(most, positive, strict=True)]
    if sum(low) > size:
        groups = sum(count > 0 for count in positive)
        raise InputError(
            f"size={size:,} is too small for min_per_group={least:,} in each of {groups:,} groups; "
            f"give size >= {sum(low):,} or a smaller min_per_group"
        )
    if sum(high) < size:
        raise InputError(
            f"size={size:,} exceeds the {sum(high):,} positive scores, and {scheme} draws each row once; "
            f"give size <= {sum(high):,}"
        )
    shares = _shares(parts, mix)
    wished = _clipped(size, shares, low, high)
    sizes = [int(x) for x in wished]
    by_fraction = sorted(range(len(sizes)), key=lambda k: (sizes[k] - wished[k], k))
    for k in by_fraction[: size - sum(sizes)]:
        sizes[k] += 1
    return sizes


def _shares(parts: Sequence[Summary], mix: float) -> list[Fraction]:
    totals = [exact_total(part.sums) for part in parts]
    whole, rows = sum(totals), sum(part.n_positive for part in parts)
    uniform = Fraction(mix)
    return [
        (1 - uniform) * total / whole + uniform * part.n_positive / rows
        for total, part in zip(totals, parts, strict=True)
    ]


def _clipped(size: int, shares: Sequence[Fraction], low: Sequence[int], high: Sequence[int]) -> list[Fraction]:
    """Solve sum of min(max(c share, low), high) = size for c, which is possible; return the summands."""
    # The sum is piecewise linear in c: walk its corners, upwards.
    corners = sorted(
        (edge / share, sign * share)
        for share, bottom, top in zip(shares, low, high, strict=True)
        if share
        for edge, sign in ((Fraction(bottom), 1), (Fraction(top), -1))
    )
    slope, level, factor = Fraction(0), Fraction(sum(low)), Fraction(0)
    for corner, change in corners:
        if slope and level + slope * (corner - factor) >= size:
            break
        level, factor, slope = level + slope * (corner - factor), corner, slope + change
    if slope and level < size:
        factor += (size - level) / slope
    return [min(max(factor * share, Fraction(b)), Fraction(t)) for share, b, t in zip(shares, low, high, strict=True)]


def check_groups(labels: tuple[Label, ...], sizes: Sequence[int], scheme: str, parts: Sequence[Summary]) -> None:
    """Raise when a group has too few positive scores for its size."""
    for label, size, part in zip(labels, sizes, parts, strict=True):
        if size and not part.n_positive:
            raise InputError(f"all scores of the group {label!r} are zero; give size[{label!r}]=0")
        check_enough(part.n_positive, size, scheme, f"size[{label!r}]")


def joined(labels: tuple[Label, ...], plans: Mapping[int, Plan], samples: Mapping[int, Sample], n_rows: int) -> Sample:
    """One sample of the samples of all groups; group k becomes stage k."""
    parts = list(samples.items())
    total = sum(sample.n_draws for _, sample in parts)
    rows = np.concatenate([sample.indices for _, sample in parts])
    order = np.argsort(rows)
    place = np.empty(len(rows), dtype=np.int64)
    place[order] = np.arange(len(rows))
    begins = np.cumsum([0, *(len(sample) for _, sample in parts)])
    first = parts[0][1]
    replacing = first.scheme not in DISTINCT

    def merged(name: str) -> np.ndarray:
        return np.concatenate([getattr(sample, name) for _, sample in parts])[order]

    chances = [s.probabilities * (s.n_draws / total) if replacing else s.probabilities for _, s in parts]
    return Sample(
        indices=rows[order],
        counts=merged("counts"),
        # With replacement the mean over all draws, so that weights = counts / (n_draws probabilities) holds.
        probabilities=np.concatenate(chances)[order],
        weights=merged("weights"),
        variance_weights=merged("variance_weights"),
        draws=np.concatenate([place[begin + s.draws] for begin, (_, s) in zip(begins[:-1], parts, strict=True)]),
        stage=np.concatenate([s.stage + group for group, s in parts]),
        scale=GroupScale(
            labels,
            tuple(plans[k].n_draws if k in plans else 0 for k in range(len(labels))),
            tuple(_scale_of(samples[k]) if k in samples else Scale(first.scheme) for k in range(len(labels))),
        ),
        n_draws=total,
        n_rows=n_rows,
        scheme=first.scheme,
        seed=first.seed,
    )


def _scale_of(sample: Sample) -> Scale:
    assert isinstance(sample.scale, Scale)
    return sample.scale
