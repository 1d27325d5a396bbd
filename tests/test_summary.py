"""Intervals and the table of a fit: what is printed is what was computed, for every name and every level."""

import numpy as np
import pytest
from scipy.stats import norm

import dask_nlis as nlis


@pytest.fixture
def fit(rng):
    X, y = rng.normal(size=(60, 2)), rng.normal(size=60)
    sample = nlis.draw(np.ones(60), 30, scheme="poisson", seed=1)
    return nlis.refit(nlis.Problem(nlis.Linear()), *sample.take(X, y), sample)


def named(names, rng):
    pd = pytest.importorskip("pandas")
    X = pd.DataFrame(rng.normal(size=(40, len(names))), columns=names)
    return nlis.refit(nlis.Problem(nlis.Linear()), X, rng.normal(size=40), np.ones(40))


@pytest.mark.parametrize("target", ["full_data", "population"])
@pytest.mark.parametrize("level", [0.5, 0.95, 1 - 1e-9, np.float32(0.75)])
def test_an_interval_is_the_estimate_and_a_normal_quantile_of_its_error(level, target, fit):
    low, high = fit.confidence_interval(level, target=target)
    covariance = fit.covariance + (fit.population_covariance if target == "population" else 0)
    np.testing.assert_allclose(high - fit.theta, norm.ppf(0.5 + float(level) / 2) * np.sqrt(np.diagonal(covariance)))
    np.testing.assert_allclose(fit.theta - low, high - fit.theta)
    np.testing.assert_array_equal(fit.standard_errors, np.sqrt(np.diagonal(fit.covariance)))
    found = fit.confidence_interval(level, target=target)
    np.testing.assert_array_equal(found.low, low)
    np.testing.assert_array_equal(found.high, high)


def test_a_fit_keeps_its_covariance_as_it_was(fit):
    for array in (fit.covariance, fit.population_covariance):
        with pytest.raises(ValueError, match="read-only"):
            array[0, 0] = 1.0
    assert nlis.Fit.from_dict(fit.to_dict()) == fit


def test_a_summary_says_names_numbers_design_and_target(fit):
    summary = fit.summary(0.9, target="population")
    heading, columns, rule, *lines, note = str(summary).splitlines()
    assert heading == f"{fit.n_rows} rows (poisson sample), loss {fit.loss:.5g}, ok"
    assert columns.split() == ["parameter", "estimate", "standard", "error", "90", "%", "from", "to"]
    assert set(rule) == {"─"}
    assert [line.split()[0] for line in lines] == ["x0", "x1", "intercept"]
    assert {len(line) for line in (columns, rule, *lines)} == {len(columns)}  # columns stand below one another
    low, high = fit.confidence_interval(0.9, target="population")
    errors = np.sqrt(np.diagonal(fit.covariance + fit.population_covariance))
    for k, line in enumerate(lines):
        values = [float(cell) for cell in line.split()[1:]]
        np.testing.assert_allclose(values, [fit.theta[k], errors[k], low[k], high[k]], rtol=1e-4)
    assert note == "errors: around the population's parameters"
    assert repr(summary) == str(summary)
    assert str(fit.summary()).splitlines()[-1] == "errors: around the fit to all rows"
    assert "99.5 % from" in str(fit.summary(0.995))


def test_weights_of_ones_own_are_named_as_what_they_are_taken_for(rng):
    X, y = rng.normal(size=(20, 1)), rng.normal(size=20)
    fit = nlis.refit(nlis.Problem(nlis.Linear()), X, y, np.ones(20))
    assert str(fit.summary()).startswith("20 rows (one independent draw a row), loss ")


def test_what_is_withheld_is_a_dash_and_a_sentence(rng):
    X, y = rng.normal(size=(20, 2)), rng.normal(size=20)
    fit = nlis.refit(nlis.Problem(nlis.Linear(), constraint=nlis.Ball(1e-3)), X, y, np.ones(20))
    *lines, note = str(fit.summary()).splitlines()
    assert note == "no standard errors: a constraint is active (ball of radius 0.001)"
    assert [line.split()[2:] for line in lines[-3:]] == [["-", "-", "-"]] * 3
    assert "nan" not in str(fit.summary()) + fit.summary()._repr_html_()
    assert note in fit.summary()._repr_html_()


@pytest.mark.adapters
@pytest.mark.parametrize(
    ("name", "shown"),
    [("[bold]rooms[/bold]", "[bold]rooms[/bold]"), (":smile:", ":smile:"), ("a\nb", "a\\nb"), ("\x1b[31mred", "\\x1b[31mred"),
     ("Größe in m²", "Größe in m²"), ("n" * 300, "n" * 300)],
)  # fmt: skip
def test_names_are_shown_in_full_on_one_line_and_mean_nothing(name, shown, rng):
    fit = named([name, "plain"], rng)
    _, columns, _, *lines, _ = str(fit.summary()).splitlines()
    assert lines[0].startswith(shown + " ")
    assert len(lines) == 3
    assert len(lines[0].removeprefix(shown).split()) == 4
    assert len(lines[0]) == len(columns)


@pytest.mark.adapters
def test_wide_characters_do_not_push_numbers_out_of_the_table(rng):
    lines = str(named(["中文列名" * 10, "b"], rng).summary()).splitlines()
    assert len(lines[3].split()) == 5
    assert "…" not in "".join(lines)


@pytest.mark.adapters
def test_a_page_escapes_names_and_puts_numbers_to_the_right(rng):
    fit = named(["<script>", "a & b"], rng)
    page = fit.summary()._repr_html_()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "a &amp; b" in page
    assert page.count("<tr>") == 4
    assert page.count("text-align:right") == 4 * 4
    for value in fit.theta:
        assert f">{value:.5g}<" in page


@pytest.mark.parametrize(
    ("arguments", "error"),
    [({"confidence_level": 95}, nlis.InputError), ({"confidence_level": 0.0}, nlis.InputError),
     ({"confidence_level": 1.0}, nlis.InputError), ({"confidence_level": float("nan")}, nlis.InputError),
     ({"confidence_level": "0.9"}, nlis.InputTypeError), ({"confidence_level": True}, nlis.InputTypeError),
     ({"confidence_level": np.complex128(0.5)}, nlis.InputTypeError), ({"target": "data"}, nlis.InputError),
     ({"target": None}, nlis.InputError)],
)  # fmt: skip
def test_levels_and_targets_that_do_not_exist_are_refused(arguments, error, fit):
    for verb in (fit.confidence_interval, fit.summary):
        with pytest.raises(error, match=next(iter(arguments))) as e:
            verb(**arguments)
        assert "\n" not in str(e.value)
        assert len(str(e.value)) <= 300
