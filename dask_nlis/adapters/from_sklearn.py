"""Fitted estimators of scikit-learn as models of this library, with their parameters and their loss."""

from typing import Any

import numpy as np

from dask_nlis.activations import Activation, Identity, Logistic, Relu, Tanh
from dask_nlis.errors import InputError, InputTypeError, MissingExtraError
from dask_nlis.fitted import FittedModel
from dask_nlis.losses import LogisticLoss, Loss, PoissonDeviance, SoftmaxLoss, SquaredError
from dask_nlis.models import Linear, MultilayerPerceptron

_ALLOWED = "LinearRegression, LogisticRegression, PoissonRegressor, MLPRegressor and MLPClassifier"

_UNITS: dict[str, Activation] = {"identity": Identity(), "logistic": Logistic(), "tanh": Tanh(), "relu": Relu()}


def from_sklearn(estimator: Any) -> FittedModel:
    """Take a fitted estimator of scikit-learn over: its model, its parameters theta (p,) and its loss; reads nothing.

    Nothing of scikit-learn runs afterwards: workers do not need it, GPUs are used, and problems can be stored.

    Parameters
    ----------
    estimator : estimator
        Fitted LinearRegression, LogisticRegression, PoissonRegressor, MLPRegressor or MLPClassifier, or a subclass of one;
        of one output or several, of two classes or more, of several labels a row.

    Returns
    -------
    FittedModel
        `Linear` or `MultilayerPerceptron`, without hidden layers where a linear one has several outputs; a `Problem` of it has the estimator's loss where none is given. Penalties
        (C, alpha) are no part of it; `refit(ridge=)` has one of its own.

    Raises
    ------
    InputTypeError
        If it is no such estimator.
    InputError
        If it is not fitted, or has classes each fitted by itself or for several outputs.
    MissingExtraError
        If scikit-learn is not installed.

    Notes
    -----
    Predictions are of the link inside the loss: log odds of the second class, of each class up to a constant where there
    are more (`SoftmaxLoss`), logarithms of means. Layers of perceptrons
    are (units, inputs) here, the transposed `coefs_`. The adjoint of rectified perceptrons is exact (see
    `MultilayerPerceptron`); of others `Factor.identity_residual` says what the integral left.

    Examples
    --------
    >>> import numpy as np, dask_nlis as nlis
    >>> from sklearn.linear_model import LogisticRegression
    >>> X = np.arange(8.0).reshape(-1, 1)
    >>> fitted = nlis.from_sklearn(LogisticRegression().fit(X, list("aababbbb")))
    >>> A = nlis.dual_matrix(nlis.Problem(fitted), X, fitted.labels(list("aababbbb")), theta=fitted.theta)
    >>> A.problem
    Problem(model=Linear(intercept=True), loss=LogisticLoss(labels=(0, 1)), constraint=None)
    """
    kinds = _kinds()
    kind = next((name for name, cls in kinds.items() if isinstance(estimator, cls)), None)
    if kind is None:
        if isinstance(estimator, type):
            raise InputTypeError(f"estimator is the class {estimator.__name__}; give a fitted instance")
        raise InputTypeError(f"estimator is {type(estimator).__name__}; allowed are {_ALLOWED}, fitted")
    if not hasattr(estimator, "coefs_" if kind.startswith("MLP") else "coef_"):
        raise InputError(f"estimator {type(estimator).__name__} is not fitted; call its fit(X, y) first")
    classes = getattr(estimator, "classes_", None)
    if classes is not None:
        _check_classes(estimator, classes)
    if getattr(estimator, "out_activation_", None) == "logistic" and estimator.n_outputs_ > 1:
        classes = None  # several labels a row, 0 or 1 each
    names = getattr(estimator, "feature_names_in_", None)
    model, parts = (_perceptron if kind.startswith("MLP") else _linear)(estimator)
    return FittedModel(
        model,
        model.pack(**parts),
        _loss(kind, estimator, classes),
        None if classes is None else tuple(classes.tolist()),
        None if names is None else tuple(map(str, names)),
    )


def _kinds() -> dict[str, type]:
    try:
        from sklearn.linear_model import LinearRegression, LogisticRegression, PoissonRegressor
        from sklearn.neural_network import MLPClassifier, MLPRegressor
    except ImportError as cause:
        raise MissingExtraError("from_sklearn needs scikit-learn; pip install 'dask-nlis[sklearn]'") from cause
    return {
        cls.__name__: cls
        for cls in (LinearRegression, LogisticRegression, PoissonRegressor, MLPRegressor, MLPClassifier)
    }


def _check_classes(estimator: Any, classes: Any) -> None:
    if isinstance(classes, list) or len(classes) < 2:
        raise InputError(
            f"estimator {type(estimator).__name__} has classes for several outputs, or fewer than 2; fit one estimator an output"
        )
    # Both before scikit-learn 1.8 only.
    apart = getattr(estimator, "multi_class", None) == "ovr" or getattr(estimator, "solver", None) == "liblinear"
    if len(classes) > 2 and apart:
        raise InputError(
            "estimator LogisticRegression has each class fitted against the rest, which is no one problem; fit with "
            "solver='lbfgs', or one estimator a class"
        )
    if len(classes) == 2 and getattr(estimator, "multi_class", None) == "multinomial":
        raise InputError(
            "estimator LogisticRegression has multi_class='multinomial', with which coef_ is half of the log odds of two "
            "classes; leave it out and fit again"
        )


def _linear(estimator: Any) -> tuple[Linear | MultilayerPerceptron, dict[str, Any]]:
    coef = np.atleast_2d(np.asarray(estimator.coef_, dtype=np.float64))
    if len(coef) != 1:
        model = MultilayerPerceptron((), bias=bool(estimator.fit_intercept), n_outputs=len(coef))
        both = {"W1": coef, "b1": np.broadcast_to(estimator.intercept_, len(coef))}
        return model, both if model.bias else {"W1": coef}
    if not estimator.fit_intercept:
        return Linear(intercept=False), {"coef": coef[0]}
    return Linear(), {"coef": coef[0], "intercept": np.ravel(estimator.intercept_)[0]}


def _perceptron(estimator: Any) -> tuple[MultilayerPerceptron, dict[str, Any]]:
    widths = [len(b) for b in estimator.intercepts_[:-1]]
    parts: dict[str, Any] = {}
    for k, (w, b) in enumerate(zip(estimator.coefs_, estimator.intercepts_, strict=True), start=1):
        parts |= {f"W{k}": w.T, f"b{k}": b}
    unit = _UNITS[estimator.activation]
    return MultilayerPerceptron(tuple(widths), unit=unit, n_outputs=int(estimator.n_outputs_)), parts


def _loss(kind: str, estimator: Any, classes: Any) -> Loss | SoftmaxLoss:
    if classes is not None and len(classes) > 2:
        return SoftmaxLoss(len(classes))
    if kind in ("LogisticRegression", "MLPClassifier"):
        return LogisticLoss()
    if kind == "PoissonRegressor" or getattr(estimator, "loss", None) == "poisson":
        return PoissonDeviance()
    return SquaredError()
