"""The noun Sample: drawn rows, how often, with what weight."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from dask_nlis.errors import InputError, InputTypeError
from dask_nlis.intake import read_table, write_table
from dask_nlis.kernels.numbers import is_lazy, real_array
from dask_nlis.kernels.weights import effective_sample_size
from dask_nlis.nouns import from_dict, noun, to_dict
from dask_nlis.sample.files import from_lines, to_lines
from dask_nlis.sample.given import given_design, given_names
from dask_nlis.sample.scale import GroupScale, Scale
from dask_nlis.sample.stored import check_sample
from dask_nlis.sample.take import MAX_TAKE_BYTES, take_rows


@noun
class Sample:
    """Drawn rows with their weights; a weighted sum over them estimates the sum over all rows without bias.

    Attributes
    ----------
    indices : ndarray of shape (m,), int64
        Distinct rows, ascending.
    counts : ndarray of shape (m,), int64
        How often each was drawn; 1 without replacement.
    probabilities : ndarray of shape (m,)
        Selection probability a draw with replacement (multinomial, stratified; the mean over the draws), else
        inclusion probability.
    weights : ndarray of shape (m,)
        counts / (n_draws probabilities) with replacement, 1 / probabilities without.
    variance_weights : ndarray of shape (m,)
        Terms of the design variance: w^2 / count (multinomial), the sum over the row's draws of
        (1 - its share of the slice) / (s p)^2 (stratified), w (w - 1) (poisson, systematic).
    draws : ndarray of shape (k,), int64
        Position in `indices` of each draw, in the order of the draws: of the slices for stratified and systematic
        (certain rows after them), of the rows for poisson.
    stage : ndarray of shape (k,), int64
        Stage of each draw: draws of different stages are independent, and each group of rows is a stage of its own.
    scale : Scale or GroupScale
        How scores became probabilities.
    n_draws : int
        Draws made with replacement, else the expected number of rows, which is their number for systematic.
    n_rows : int
        Rows that could be drawn from.
    scheme : str
        "multinomial" (independent draws with replacement), "stratified" (one draw in each of equal slices),
        "poisson" (each row in or out by its own coin), "systematic" (a fixed number of distinct rows), or "pooled"
        (samples joined by `pool`, or by `concat` where they have several schemes).
    seed : int or None
        Seed of the draw; None for a design of one's own.
    feature_names : tuple of str
        Names of the features behind the scores, for the fit; empty where they are not known.
    stage_schemes : tuple of str
        Scheme of each stage where `scheme` is "pooled"; empty otherwise.

    Examples
    --------
    >>> import numpy as np, dask_nlis as nlis
    >>> sample = nlis.draw(np.array([1.0, 0.0, 3.0, 0.0]), 4, seed=0)
    >>> sample.indices, int(sample.counts.sum()), len(sample)
    (array([0, 2]), 4, 2)
    >>> round(sample.effective_size, 3), round(sample.design_effect, 3)
    (3.0, 1.333)
    """

    indices: np.ndarray
    counts: np.ndarray
    probabilities: np.ndarray
    weights: np.ndarray
    variance_weights: np.ndarray
    draws: np.ndarray
    stage: np.ndarray
    scale: Scale | GroupScale
    n_draws: int
    n_rows: int
    scheme: str
    seed: int | None
    feature_names: tuple[str, ...] = ()
    stage_schemes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("indices", "counts", "probabilities", "weights", "variance_weights", "draws", "stage"):
            getattr(self, name).setflags(write=False)

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def effective_size(self) -> float:
        """Kish's effective sample size, (sum w)^2 / sum w^2 over draws: a pessimistic diagnostic, no error bar."""
        return effective_sample_size(self.weights, self.counts) if len(self) else 0.0

    @property
    def design_effect(self) -> float:
        """Kish's design effect per draw: number of draws over effective size; 1 for uniform scores."""
        return float(self.counts.sum()) / self.effective_size if len(self) else float("nan")

    def expected_count(self, scores: Any, *, by: Any = None) -> np.ndarray:
        """Expected number of times a row with this score is in the sample, array in, array out.

        Parameters
        ----------
        scores : array_like of shape (...)
            Scores in the unit of those the sample was drawn by.
        by : array_like of shape (...), optional
            The label of each of these rows, where the sample was drawn by groups.

        Returns
        -------
        ndarray of shape (...), float64
            Of the shape of `scores`.

        Raises
        ------
        InputError, InputTypeError
            If scores are no finite numbers >= 0, labels are missing or not known, or the design was given by its
            probabilities, which scores do not tell.

        Examples
        --------
        >>> import numpy as np, dask_nlis as nlis
        >>> nlis.draw(np.array([1.0, 3.0, 4.0]), 2, seed=0).expected_count(np.array([1.0, 4.0]))
        array([0.25, 1.  ])
        """
        known = np.asarray(scores) if is_lazy(scores) else scores
        values = real_array("scores", known, "scores such as those the sample was drawn by")
        if not (np.isfinite(values) & (values >= 0)).all():
            raise InputError("scores are no finite numbers >= 0; give scores such as those the sample was drawn by")
        return self.scale.expected_count(values, self.n_draws, by)

    @staticmethod
    def from_probabilities(
        indices: Any,
        probabilities: Any,
        *,
        n_rows: int,
        scheme: str = "multinomial",
        n_draws: int | None = None,
        seed: int | None = None,
        feature_names: tuple[str, ...] = (),
    ) -> "Sample":
        """Make a sample of rows drawn by a design of one's own: indices (k,), probabilities (k,) -> Sample.

        Parameters
        ----------
        indices : array_like of shape (k,), int
            The row of each draw, in the order of the draws; distinct for poisson and systematic.
        probabilities : array_like of shape (k,)
            In (0, 1], of the row of each draw: its selection probability a draw (multinomial, stratified) or its
            inclusion probability (poisson, systematic). Equal rows have equal probabilities.
        n_rows : int
            Rows that could be drawn from.
        scheme : {"multinomial", "stratified", "poisson", "systematic"}
            The scheme the design is most like: decides weights and variance. "multinomial" for independent draws
            with replacement, "poisson" for rows that are in or out independently. For "stratified" the shares of
            the rows in their slices are taken for 0, which overstates the variance.
        n_draws : int, optional
            Draws made with replacement, which is k; else the expected number of rows, k by default.
        seed : int, optional
            The seed the rows were drawn with, for the record.
        feature_names : tuple of str, optional
            Names of the features, for the fit.

        Returns
        -------
        Sample
            `expected_count` is refused, for scores do not tell the probabilities.

        Raises
        ------
        InputError
            If rows lie outside [0, n_rows), repeat without replacement, have differing or impossible probabilities,
            or n_draws is not the number of draws with replacement.
        InputTypeError
            If indices or probabilities are no integers or numbers.

        Examples
        --------
        >>> import dask_nlis as nlis
        >>> sample = nlis.Sample.from_probabilities([7, 2, 7], [0.5, 0.25, 0.5], n_rows=10)
        >>> sample.indices, sample.counts, sample.weights
        (array([2, 7]), array([1, 2]), array([1.33333333, 1.33333333]))
        """
        fields = given_design(indices, probabilities, n_rows, scheme, n_draws, seed)
        return Sample(**fields, feature_names=given_names(feature_names))

    def take(self, *arrays: Any, max_bytes: int = MAX_TAKE_BYTES) -> Any:
        """Take the drawn rows out of arrays; reads only the blocks that hold drawn rows.

        Parameters
        ----------
        *arrays : array_like of shape (n, ...)
            NumPy, Dask, Zarr, a path, pandas or xarray, with any trailing shape.
        max_bytes : int, default 4 GiB
            More than this is refused before anything is read.

        Returns
        -------
        array of shape (m, ...), or tuple of arrays
            One array for one argument, else a tuple, each in its dtype: pandas for pandas, DataArray for xarray, NumPy for
            the rest; row k belongs to `indices[k]` and `weights[k]`.

        Raises
        ------
        InputError, InputTypeError
            If an array has too few rows, or the rows would not fit in `max_bytes`;
            or if an argument is of another type.
        MissingDataError
            If a path was given and nothing is stored there.

        Examples
        --------
        >>> import numpy as np, dask_nlis as nlis
        >>> sample = nlis.draw(np.array([1.0, 0.0, 3.0, 0.0]), 4, seed=0)
        >>> sample.take(np.array([10, 20, 30, 40]))
        array([10, 30])
        """
        if not arrays:
            raise InputTypeError("take got no array; give X, or X and y")
        taken = tuple(
            take_rows(f"array {k}", array, self.indices, self.n_rows, max_bytes) for k, array in enumerate(arrays)
        )
        return taken[0] if len(taken) == 1 else taken

    def to_dict(self) -> dict[str, Any]:
        """Return the sample as JSON values and arrays.

        Returns
        -------
        dict
            What `from_dict` takes.
        """
        return to_dict(self)

    @staticmethod
    def from_dict(found: Mapping[str, Any]) -> "Sample":
        """Rebuild a sample from `to_dict`.

        Parameters
        ----------
        found : mapping
            What `to_dict` returned, its arrays as arrays or as the lists that JSON makes of them.

        Returns
        -------
        Sample
            Equal to the one that was stored.

        Raises
        ------
        InputError, InputTypeError
            If it is no sample, or its fields do not fit together.

        Examples
        --------
        >>> import numpy as np, dask_nlis as nlis
        >>> sample = nlis.draw(np.array([1.0, 0.0, 3.0, 0.0]), 4, seed=0)
        >>> nlis.Sample.from_dict(sample.to_dict()) == sample
        True
        """
        sample = from_dict(found, {"Sample": Sample, "Scale": Scale, "GroupScale": GroupScale}, typed=True)
        if not isinstance(sample, Sample):
            raise InputError(f"noun={found['noun']!r} is no Sample; give what Sample.to_dict() returned")
        check_sample(sample)
        return sample

    def save(self, path: Any, *, overwrite: bool = False) -> None:
        """Write the sample to a file, a line for each draw in the order of the draws; all or nothing.

        Parameters
        ----------
        path : path-like
            Ends in .zarr, .parquet (needs pyarrow, the extra `dataframe`) or .csv.
        overwrite : bool, default False
            Whether a file of this name may be replaced.

        Raises
        ------
        FileExistsError
            If the path exists and may not be replaced.
        InputError, InputTypeError
            If the path does not end in a format, or is no path.

        Examples
        --------
        >>> import numpy as np, dask_nlis as nlis, tempfile
        >>> sample = nlis.draw(np.array([1.0, 0.0, 3.0, 0.0]), 4, seed=0)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     sample.save(f"{folder}/sample.csv")
        ...     nlis.Sample.load(f"{folder}/sample.csv") == sample
        True
        """
        write_table(path, *to_lines(self.to_dict()), overwrite=overwrite)

    @staticmethod
    def load(path: Any) -> "Sample":
        """Read a sample that `save` wrote, equal to the one that was saved in every bit.

        Parameters
        ----------
        path : path-like
            Ends in .zarr, .parquet or .csv.

        Returns
        -------
        Sample
            With its weights.

        Raises
        ------
        FileNotFoundError
            If nothing is there.
        InputError, InputTypeError
            If it holds no sample; or if an argument is of another type.
        """
        return Sample.from_dict(from_lines(*read_table(path)))

    def _summary(self) -> dict[str, Any]:
        return {
            "rows": len(self),
            "n_draws": self.n_draws,
            "scheme": self.scheme,
            "n_rows": self.n_rows,
            "effective_size": round(self.effective_size, 1),
            "seed": self.seed,
        }
