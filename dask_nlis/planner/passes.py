"""Steps -> passes with numbers: reads, tasks, bytes, operations."""

import math
from collections.abc import Sequence

from dask_nlis.blocks import STACK, group_blocks
from dask_nlis.planner.layout import Layout
from dask_nlis.planner.noun import Pass
from dask_nlis.planner.steps import DRAW_PASSES, READS, Step

#: Reads of X by a method at conditions up to 100; a higher one takes more, as `factorize` says.
METHODS = {"auto": 1, "gram": 1, "tsqr": 1, "sketch": 2, "sketch-only": 1}


def passes_of(steps: Sequence[Step], layout: Layout, size: int, scheme: str, method: str) -> tuple[Pass, ...]:
    """Put numbers to each step of drawing `size` rows."""
    return tuple(_pass(step, layout, size, scheme, method) for step in steps)


def _pass(step: Step, layout: Layout, size: int, scheme: str, method: str) -> Pass:
    n, blocks = layout.n_rows, layout.blocks
    if step.kind in READS:
        reads = METHODS[method] if step.kind == "factor" else 1
        tasks = blocks + step.more if step.kind != "factor" else reads * _factor_tasks(step, layout, method)
        exact = not step.more
        if step.kind == "factor" and method in ("tsqr", "auto"):
            exact = method == "auto" and _tall(step, layout)
        return Pass(step.label, step.kind, reads, blocks, tasks, exact, reads * layout.n_bytes, _flops(step, layout))
    if step.kind == "draw":
        # Each pass looks at blocks with positive scores; stages that are joined look at the drawn rows of all.
        looks = 1 + DRAW_PASSES[scheme] + (step.earlier + 1 if step.earlier else 0)
        return Pass(step.label, step.kind, 0, blocks, looks * blocks, False, 0, float(looks * n))
    if step.kind == "rows":
        drawn = step.share * size
        touched = min(blocks, math.ceil(drawn + 4 * math.sqrt(drawn)))
        n_bytes = min(layout.n_bytes, touched * layout.block_bytes)
        return Pass(step.label, step.kind, 0, touched, touched * layout.lazy_arrays, False, n_bytes, 0.0)
    p = max(layout.widths.values())
    # On drawn rows alone: their scores, for an estimate of the scale; their rows and scores, for the certificate.
    tasks = 1 + step.more if step.kind == "estimate" else 2
    return Pass(step.label, step.kind, 0, 1, tasks, False, 0, float(size * p * p))


def _tall(step: Step, layout: Layout) -> bool:
    return all(layout.n_rows >= layout.widths[name] for name in step.matrices)


def _factor_tasks(step: Step, layout: Layout, method: str) -> int:
    """Tasks of one read: one a block, one for 16 neighbours, one for the sums of a group; and the merges of a QR tree."""
    blocks = layout.blocks
    size = group_blocks(math.ceil(math.hypot(*(layout.widths[name] for name in step.matrices))))
    full, rest = divmod(blocks, size)
    tasks = full * _group_tasks(size) + (_group_tasks(rest) if rest else 0)
    if method == "tsqr" or (method == "auto" and not _tall(step, layout)):
        tasks += math.ceil(0.4 * blocks) + 8
    return tasks


def _group_tasks(blocks: int) -> int:
    stacks, alone = -(-blocks // STACK), blocks % STACK == 1  # a stack of one block is fused into it
    return blocks + stacks - alone + (stacks > 1)


def _flops(step: Step, layout: Layout) -> float:
    """Floating-point operations to leading order: a symmetric product and a triangular one take n p^2 each."""
    n, p = layout.n_rows, layout.widths["dual"]
    if step.kind == "loss" or step.matrices == ("norm",):
        return 4.0 * n * p
    return float(sum(n * layout.widths[name] ** 2 + 4 * n * p for name in step.matrices))
