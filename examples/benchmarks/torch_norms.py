"""Norm scores of a torch net with biases against gradients of every row by torch.func: the same, in how much memory?

\b
python examples/benchmarks/torch_norms.py            minutes, 1 GB
python examples/benchmarks/torch_norms.py --quick    seconds; shows that it runs

A rectified net of three dense layers. Its adjoint is an integral of gradients along the ray from 0 to theta. One side is
`norm_scores`; the other forms the gradients of all rows by `torch.func.vmap(grad)` at the same points of the ray, adds
them up and takes norms. Each runs in a process of its own; its peak is the high-water mark of resident memory as the
kernel keeps it, less what the process held before the work. One thread for each. Needs the extra torch.

The command fails where scores differ by more than 1e-8, or `norm_scores` takes more than a tenth of the memory.
"""

import json
import subprocess
import sys
import time
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

AGREE, SHARE = 1e-8, 0.1


def made(rows: int, width: int) -> tuple[Any, np.ndarray]:
    """A net of 100 features and two hidden layers, and rows."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    linear = torch.nn.Linear
    net = torch.nn.Sequential(
        linear(100, width), torch.nn.ReLU(), linear(width, width), torch.nn.ReLU(), linear(width, 1)
    )
    return net.double(), np.random.default_rng(0).standard_normal((rows, 100))


def ours(net: Any, X: np.ndarray) -> np.ndarray:
    """Norm scores without labels."""
    import dask_nlis as nlis

    model = nlis.from_torch(net)
    A = nlis.dual_matrix(nlis.Problem(model), X, theta=model.theta)
    return np.asarray(nlis.norm_scores(A))


def by_rows(net: Any, X: np.ndarray) -> np.ndarray:
    """The same from gradients of all rows at every point: two nodes in each piece between kinks are exact here."""
    import torch

    import dask_nlis as nlis
    from dask_nlis.kernels import stack

    model = nlis.from_torch(net)
    parameters = {name: values.detach() for name, values in net.named_parameters()}
    nodes, weights = np.polynomial.legendre.leggauss(2)
    points = stack.points(stack.kinks(model.layers(model.theta, X), X), (nodes + 1) / 2, weights / 2)

    def one(moved: dict[str, Any], row: Any) -> Any:
        return torch.func.functional_call(net, moved, (row[None],)).reshape(())

    def at(t: Any, row: Any) -> Any:
        return torch.func.grad(one)({name: t * values for name, values in parameters.items()}, row)

    rows, total = torch.tensor(X), 0.0
    for t, weight in zip(points.t.T, points.weight.T, strict=True):
        found = torch.func.vmap(at)(torch.tensor(t.copy()), rows)
        flat = torch.cat([part.reshape(len(X), -1) for part in found.values()], dim=1)
        total = total + torch.tensor(weight.copy())[:, None] * flat
    squares = (total**2).sum(dim=1).numpy()
    return squares + model.at_zero(X) ** 2


SIDES = {"norm_scores": ours, "gradients of all rows": by_rows}


def resident(field: str) -> float:
    """MiB of this process; Linux."""
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


def alone(side: str, rows: int, width: int) -> None:
    """One side on a few rows and then on all, as JSON: what it took besides, its time, and its scores."""
    net, X = made(rows, width)
    SIDES[side](net, X[:2])
    before, begun = resident("VmRSS"), time.perf_counter()
    scores = SIDES[side](net, X)
    taken = time.perf_counter() - begun
    print(json.dumps({"peak": resident("VmHWM") - before, "seconds": taken, "scores": scores.tolist()}))


def in_a_process(side: str, rows: int, width: int) -> dict[str, Any]:
    """What `alone` printed in a process of its own."""
    code = f"import runpy; runpy.run_path({__file__!r})['alone']({side!r}, {rows}, {width})"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603 (this script itself)
    result: dict[str, Any] = json.loads(found.stdout.splitlines()[-1])
    return result


@click.command(help=__doc__)
@click.option("--quick", is_flag=True, help="A small net, and nothing that has to hold.")
def main(quick: bool) -> None:
    rows, width = (50, 16) if quick else (300, 256)
    found = {side: in_a_process(side, rows, width) for side in SIDES}
    console = Console()
    table = Table("side", "peak, MiB", "seconds", title=f"{rows:,} rows, 100 - {width} - {width} - 1, biases, float64")
    for side, result in found.items():
        table.add_row(side, f"{result['peak']:,.0f}", f"{result['seconds']:.1f}")
    console.print(table)
    one, other = (np.array(result["scores"]) for result in found.values())
    worst = float(np.abs(one / other - 1).max())
    share = found["norm_scores"]["peak"] / found["gradients of all rows"]["peak"]
    console.print(f"scores agree to {worst:.1e}; memory is {share:.3f} of that of gradients")
    if worst > AGREE or (share > SHARE and not quick):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
