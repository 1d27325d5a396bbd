"""How a run came about, as pairs of words and values: all that is needed to make it again, and no secrets."""

from typing import TYPE_CHECKING, Any

from dask_nlis.report.words import cut

if TYPE_CHECKING:
    from dask_nlis.pipeline import Run

#: What the page tells elsewhere, or that is of use to the machine alone.
_ELSEWHERE = {
    "data", "fingerprint", "theta", "format", "state", "reads", "versions", "total_loss", "why_one_stage", "stale", "n_dropped",
    "problem", "way",
}  # fmt: skip


def manifest_of(run: "Run") -> list[tuple[str, str]]:
    """Lines of the manifest."""
    told, data = run.manifest, run.manifest["data"]
    reads = ", ".join(f"{name} {count}" for name, count in run.reads.items())
    blocks = f", in {data['n_blocks']:,} blocks of up to {data['block_rows']:,} rows" if "n_blocks" in data else ""
    out = [
        ("store", str(run.path) if run.path is not None else "none, in memory"),
        ("data", f"{data['n_rows']:,} rows of {data.get('n_columns', '?'):,} columns, {data.get('dtype', '')}{blocks}"),
        ("model", repr(run.problem.model)),
        ("loss", repr(run.problem.loss)),
        ("constraint", "none" if run.problem.constraint is None else repr(run.problem.constraint)),
        ("reads of X", f"{sum(run.reads.values())}: {reads}"),
        *(
            (name.replace("_", " "), moment(value) if name in ("started", "finished") else _text(value))
            for name, value in told.items()
            if name not in _ELSEWHERE and value is not None
        ),
        ("versions", _text(told.get("versions", {}))),
        ("content of the data", str(data.get("token", "-"))),
    ]
    return [(name, cut(value)) for name, value in out]


def moment(value: Any) -> str:
    """A time of a manifest, to the second.

    Examples
    --------
    >>> moment("2026-11-29T09:07:45.283+00:00")
    '2026-11-29 09:07:45 UTC'
    """
    text = str(value)
    return f"{text[:19].replace('T', ' ')} UTC" if text.endswith("+00:00") else text


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_text(each)}" for name, each in value.items()) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
