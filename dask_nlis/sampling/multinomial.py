"""Independent draws with replacement: the scheme of the theory."""

from dataclasses import replace

import numpy as np

from dask_nlis.kernels import draw as kernel, wide
from dask_nlis.sample import Sample, Scale
from dask_nlis.sampling.passes import Design, Part, Pass
from dask_nlis.sampling.plan import Plan


def multinomial(plan: Plan) -> Design[Sample]:
    """Draw in two passes: totals of the blocks, then the rows in which uniform targets below their sum fall."""
    scale, blocks = plan.scale(), plan.summary.blocks
    totals: dict[int, int] = {}
    yield Pass(_block_total, plan.blocks, totals.__setitem__, (scale,))
    edges = [0]
    for block in blocks:
        edges.append(edges[-1] + totals[block])
    scale = replace(scale, total=edges[-1])
    targets = kernel.uniform_targets(edges[-1], plan.n_draws, plan.key)
    order = wide.in_order(targets)
    targets = targets[order]
    bases = wide.from_whole(edges)
    cuts = wide.search(targets, bases, side="left")
    wanted = {
        block: wide.minus(targets[cuts[k] : cuts[k + 1]], bases[k : k + 1])
        for k, block in enumerate(blocks)
        if cuts[k + 1] > cuts[k]
    }
    found: list[tuple[np.ndarray, np.ndarray]] = []
    yield Pass(_block_rows, wanted, lambda _, answer: found.append(answer), (scale,))
    rows = np.empty(plan.n_draws, dtype=np.int64)
    scores = np.empty(plan.n_draws)
    rows[order] = np.concatenate([part[0] for part in found])
    scores[order] = np.concatenate([part[1] for part in found])
    return plan.with_replacement(scale, rows, scores)


def _block_total(part: Part, scale: Scale) -> int:
    return sum(kernel.limb_sum(scale.whole(piece.scores).astype(np.uint64)) for _, piece in part.pieces())


def _block_rows(part: Part, scale: Scale, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    chosen, _ = kernel.locate_targets(part.whole(scale), targets)
    return part.rows(chosen), part.scores[chosen]
