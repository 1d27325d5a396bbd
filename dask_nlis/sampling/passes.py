"""Passes over the held scores: what a scheme asks of each block, and how the answers come back.

A scheme is a generator that yields one `Pass` after another. It names a function to run on some blocks and
where each answer goes; answers arrive in the order of the blocks and are not kept besides, so that the client holds
what the scheme makes of them and no more. Groups of rows are drawn in step: their passes share the tasks.
"""

from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import dask.array as da
import numpy as np

from dask_nlis import phase
from dask_nlis.blocks import starts
from dask_nlis.kernels.draw import PIECE, row_uniforms
from dask_nlis.sample import Scale

T = TypeVar("T")

#: A block of scores with the group of each row.
PAIRS = np.dtype([("score", np.float64), ("group", np.uint32)])

#: A block of scores with the chance that earlier stages missed the row.
BESIDE = np.dtype([("score", np.float64), ("missed", np.float64)])


class Part(NamedTuple):
    """The rows of a block that a draw is made from: all of them, or those of one group."""

    scores: np.ndarray  # (m,)
    start: int  # global row where the block begins
    length: int  # rows of the block
    inside: np.ndarray | None  # positions of the rows in the block, ascending; None for all
    missed: np.ndarray | None = None  # (m,), chance that earlier stages missed the row; None where there are none
    coins: np.ndarray | None = None  # (m,), uniform numbers of the rows, where they are known

    def pieces(self) -> Iterator[tuple[int, "Part"]]:
        """The rows in pieces that stay in the cache of a core, each with the position where it begins."""
        if any(beside is not None for beside in self[3:]):
            yield 0, self
            return
        for k in range(0, len(self.scores), PIECE):
            scores = self.scores[k : k + PIECE]
            yield k, self._replace(scores=scores, start=self.start + k, length=len(scores))

    def whole(self, scale: Scale) -> np.ndarray:
        """The whole numbers q that the scores count as, (m,) uint64."""
        q = np.empty(len(self.scores), dtype=np.uint64)
        for k, piece in self.pieces():
            q[k : k + len(piece.scores)] = scale.whole(piece.scores)
        return q

    def rows(self, chosen: np.ndarray) -> np.ndarray:
        """Global rows at these positions of the part."""
        return self.start + (chosen if self.inside is None else self.inside[chosen]).astype(np.int64)

    def uniforms(self, key: np.ndarray) -> np.ndarray:
        """The uniform number of every row, which depends on its global row alone."""
        if self.coins is not None:
            return self.coins
        whole = row_uniforms(key, self.start, self.length)
        return whole if self.inside is None else whole[self.inside]


class Pass(NamedTuple):
    """A function to run on some blocks, `task(part, *common)`, and where each answer goes.

    A block whose value in `blocks` is not None hands it to the task as the last argument.
    """

    task: Callable[..., Any]
    blocks: Mapping[int, Any]
    collect: Callable[[int, Any], None]
    common: tuple[Any, ...] = ()

    def asked(self, block: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """The task with its arguments for this block."""
        own = self.blocks[block]
        return self.task, self.common if own is None else (*self.common, own)


Design = Generator[Pass, None, T]


def carry_out(held: da.Array, designs: Mapping[int, Design[T]]) -> dict[int, T]:
    """Run the designs of all groups in step on held scores (or on `PAIRS`) and return what each comes to."""
    first = starts(held.chunks[0])
    waiting: dict[int, Pass] = {}
    done: dict[int, T] = {}
    moving = list(designs)
    while moving:
        for group in moving:
            waiting.pop(group, None)
            try:
                waiting[group] = next(designs[group])
            except StopIteration as end:
                done[group] = end.value
        _ask(held, first, waiting)
        moving = list(waiting)
    return {group: done[group] for group in designs}


def _ask(held: da.Array, first: np.ndarray, waiting: Mapping[int, Pass]) -> None:
    """Carry out a pass of each group, all of them in the same tasks."""
    blocks = sorted(set().union(*(wanted.blocks for wanted in waiting.values())))
    asked = {
        block: [(group, *wanted.asked(block)) for group, wanted in waiting.items() if block in wanted.blocks]
        for block in blocks
    }
    answered = iter(blocks)

    def collect(answers: list[Any]) -> None:
        block = next(answered)
        for (group, *_), answer in zip(asked[block], answers, strict=True):
            waiting[group].collect(block, answer)

    tasks = {block: (int(first[block]), asked[block]) for block in blocks}
    phase.on_blocks(held, "nlis-draw", _answers, tasks, collect)


def carry_out_on(part: Part, design: Design[T]) -> T:
    """Run one design on rows in memory in place of all blocks, which are block 0 to it, and return what it comes to."""
    try:
        while True:
            wanted = next(design)
            for block in wanted.blocks:
                task, arguments = wanted.asked(block)
                wanted.collect(block, task(part, *arguments))
    except StopIteration as end:
        found: T = end.value
        return found


def _answers(block: np.ndarray, start: int, asked: list[tuple[int, Callable[..., Any], tuple[Any, ...]]]) -> list[Any]:
    if block.dtype.names is None:
        part = Part(block, start, len(block), None)
        return [task(part, *arguments) for _, task, arguments in asked]
    if block.dtype == BESIDE:
        part = Part(np.ascontiguousarray(block["score"]), start, len(block), None, block["missed"])
        return [task(part, *arguments) for _, task, arguments in asked]
    order = np.argsort(block["group"], kind="stable")
    groups = block["group"][order]
    answers = []
    for group, task, arguments in asked:
        inside = order[np.searchsorted(groups, group, side="left") : np.searchsorted(groups, group, side="right")]
        answers.append(task(Part(block["score"][inside], start, len(block), inside), *arguments))
    return answers
