"""The adjoint as an integral: Gauss-Legendre nodes until it holds, against a Riemann sum of 5,000 steps.

\b
python examples/benchmarks/adjoint.py            a minute
python examples/benchmarks/adjoint.py --quick    seconds; the Riemann sum has 500 steps

The adjoint of a row is the integral of the gradient at t theta over t in [0, 1]. Ours: rows of a dual matrix of a
Numerical model, which is told a function and its gradient and nothing else, and chooses the nodes. The rival adds up the
same gradient, of all rows at once in NumPy, at the right ends of equal steps, as reference code does for each row.
Errors are the largest of any entry, over the largest entry of its column, against the closed form of the same models.
"mean |u|" tells how far the index goes along the ray. Process CPU time, one BLAS thread, medians of repeats in turn.

The command fails when ours is not at least 1,000 times as accurate on each line, or (not with --quick) not 10 times as
fast.
"""

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import click
import dask
import numpy as np
from threadpoolctl import threadpool_limits
from turns import in_turn, machine, markdown

import dask_nlis as nlis

D, UNITS = 20, 5
NET = nlis.ReluNetwork(UNITS, nlis.Logistic())
SWISH = nlis.SingleIndex(nlis.Swish(c1=0, c2=1), intercept=False)
LOGISTIC = nlis.SingleIndex(nlis.Logistic(), intercept=False)


# Functions of a module, so that they could travel to a worker.


def logistic(theta: Any, x: Any) -> Any:
    return LOGISTIC.predict(theta, x)


def logistic_gradient(theta: Any, x: Any) -> Any:
    return LOGISTIC.jacobian(theta, x)


def swish(theta: Any, x: Any) -> Any:
    return SWISH.predict(theta, x)


def swish_gradient(theta: Any, x: Any) -> Any:
    return SWISH.jacobian(theta, x)


def net(theta: Any, x: Any) -> Any:
    return NET.predict(theta, x)


def net_gradient(theta: Any, x: Any) -> Any:
    return NET.jacobian(theta, x)


class Case(NamedTuple):
    """A model with a closed form, and the same as functions alone."""

    closed: nlis.SingleIndex | nlis.ReluNetwork
    value: Callable[[Any, Any], Any]
    gradient: Callable[[Any, Any], Any]
    spread: float  # of the index, over the rows


CASES = {
    "logistic": Case(LOGISTIC, logistic, logistic_gradient, 2.0),
    "logistic, far": Case(LOGISTIC, logistic, logistic_gradient, 20.0),
    "swish": Case(SWISH, swish, swish_gradient, 5.0),
    "ReLU network": Case(NET, net, net_gradient, 5.0),
}


def riemann(gradient: Callable[[Any, Any], Any], theta: np.ndarray, X: np.ndarray, steps: int) -> np.ndarray:
    total = np.zeros((len(X), len(theta)))
    for k in range(1, steps + 1):
        total += gradient(k / steps * theta, X)
    return total / steps


def measured(case: Case, rows: int, steps: int, repeats: int) -> tuple[dict[str, float], dict[str, float], int, float]:
    """Median seconds and largest errors of both, the nodes that ours took, and the mean size of the index."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, D))
    theta = rng.normal(size=case.closed.n_parameters(D))
    u = case.closed.index(theta, X)
    theta *= (case.spread / u.std()) ** (1 / case.closed.degree)
    numerical = nlis.Numerical(case.value, case.gradient, len(theta))

    def rows_of(model: Any) -> np.ndarray:
        A = nlis.dual_matrix(nlis.Problem(model), X, theta=theta, device="cpu")
        return A.to_dask_array().compute()[:, :-1]

    works: dict[str, Callable[[], np.ndarray]] = {
        "ours": lambda: rows_of(numerical),
        "Riemann": lambda: riemann(case.gradient, theta, X, steps),
    }
    exact = rows_of(case.closed)
    sizes = np.abs(exact).max(axis=0)
    errors = {name: float((np.abs(work() - exact).max(axis=0) / sizes).max()) for name, work in works.items()}
    nodes = nlis.factorize(nlis.dual_matrix(nlis.Problem(numerical), X, theta=theta, device="cpu")).nodes
    return in_turn(works, repeats), errors, nodes, float(np.abs(case.closed.index(theta, X)).mean())


@click.command(help=__doc__)
@click.option("--quick", is_flag=True, help="Few rows, 500 steps, one repeat, no demand on the time.")
@click.option("--rows", default=2_000, show_default=True, help="Rows of the matrix.")
@click.option("--steps", default=5_000, show_default=True, help="Steps of the Riemann sum.")
@click.option("--repeats", default=3, show_default=True, help="Repeats, of which the median counts.")
def main(quick: bool, rows: int, steps: int, repeats: int) -> None:
    rows, steps, repeats = (200, 500, 1) if quick else (rows, steps, repeats)
    lines, bad = [], []
    with threadpool_limits(1, user_api="blas"), dask.config.set(scheduler="synchronous"):
        for name, case in CASES.items():
            seconds, errors, nodes, size = measured(case, rows, steps, repeats)
            times = seconds["Riemann"] / seconds["ours"]
            micro = [f"{1e6 * seconds[which] / rows:.3g}" for which in ("ours", "Riemann")]
            exact = [f"{errors[which]:.0e}" for which in ("ours", "Riemann")]
            lines.append([name, f"{size:.1f}", str(nodes), *micro, f"{times:.0f}", *exact])
            if errors["ours"] * 1e3 > errors["Riemann"] or (times < 10 and not quick):
                bad.append(
                    f"{name}: {times:.1f} times as fast, errors {errors['ours']:.1e} and {errors['Riemann']:.1e}"
                )
        print(f"{rows} rows, {D} features, {steps} steps, medians of {repeats}; {machine()}; one BLAS thread\n")
    print("CPU microseconds a row; times as fast; largest error of an entry\n")
    columns = ["model", "mean |u|", "nodes", "ours", "Riemann", "times as fast", "error", "error of Riemann"]
    print(markdown(columns, lines), "\n")
    print(
        "\n".join(bad)
        or ("too small to judge the time by" if quick else "ours is faster and more accurate on each line")
    )
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
