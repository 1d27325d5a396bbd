"""Methods that ask for reads, and the reads they get: several matrices of the same rows share theirs."""

from collections.abc import Sequence
from typing import Any

from dask_nlis.checkpoints import NOWHERE, Checkpoints
from dask_nlis.factor.gram import read_gram, read_grams
from dask_nlis.factor.rungs import METHODS, Climb, Found, Read
from dask_nlis.factor.sketch import read_sketch
from dask_nlis.factor.tree import read_tree
from dask_nlis.matrix import TallMatrix
from dask_nlis.matrix.patterns import units_of


def climb(matrices: Sequence[TallMatrix], method: str, saved: Checkpoints = NOWHERE) -> tuple[list[Found], int]:
    """Carry out the method for each of these matrices of the same X, in step; with the reads of X it took in all.

    Gram matrices that are wanted at the same time are made in one read. What reads come to is kept in `saved`, by the
    number of the read: which ones are asked for follows from those before.
    """
    climbs = [METHODS[method](*matrix.shape, units_of(matrix.rule, matrix.has_labels)) for matrix in matrices]
    found: dict[int, Found] = {}
    answers: dict[int, Any] = dict.fromkeys(range(len(climbs)))
    reads = 0
    while answers:
        asked: dict[int, Read] = {}
        for k, answer in answers.items():
            request = _next(climbs[k], answer)
            if isinstance(request, Read):
                asked[k] = request
            else:
                found[k] = request
        together = [k for k, read in asked.items() if read.kind == "gram"]
        answers = {}
        if len(together) > 1:
            wanted = [asked[k] for k in together]
            grams = read_grams(
                [matrices[k] for k in together],
                [read.whitener for read in wanted],
                [read.units for read in wanted],
                saved.below(f"read-{reads}"),
            )
            answers, reads = dict(zip(together, grams, strict=True)), reads + 1
        for k in sorted(asked.keys() - answers.keys()):  # numbered alike whenever the job runs
            answers[k], reads = _read(matrices[k], asked[k], saved.below(f"read-{reads}")), reads + 1
    return [found[k] for k in range(len(climbs))], reads


def _next(climb: Climb, answer: Any) -> Read | Found:
    try:
        return climb.send(answer)
    except StopIteration as end:
        found: Found = end.value
        return found


def _read(matrix: TallMatrix, wanted: Read, saved: Checkpoints) -> Any:
    if wanted.kind == "gram":
        narrow: dict[str, Any] = {} if wanted.units is None else {"narrow": wanted.units}
        return read_gram(matrix, wanted.whitener, saved=saved, **narrow)
    if wanted.kind == "tree":
        return read_tree(matrix, wanted.whitener, wanted.columns, saved)
    return read_sketch(matrix, wanted.copies, wanted.units, saved)
