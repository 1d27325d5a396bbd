"""deploy/prometheus: well-formed, and every metric it names is one that Dask serves after a job of ours."""

import json
import re
import urllib.request
from pathlib import Path

import dask.array as da
import pytest
import yaml
from counting import rows_of
from distributed import Client, LocalCluster

import dask_nlis as nlis

FOLDER = Path(__file__).parents[1] / "deploy" / "prometheus"
BOARD = json.loads((FOLDER / "nlis-dashboard.json").read_text("utf-8"))
CONFIG = yaml.safe_load((FOLDER / "prometheus.yml").read_text("utf-8"))
README = (FOLDER / "README.md").read_text("utf-8")
QUERIES = [target["expr"] for panel in BOARD["panels"] for target in panel["targets"]]
TABLE = re.findall(r"^\| `(dask_\w+)` \| (.*?) \|", README, re.MULTILINE)

_NAME = re.compile(r"\bdask_\w+")
_SELECTED = re.compile(r"(dask_\w+)\{([^}]*)\}")
_LABEL = re.compile(r'(\w+)(=~|!~|!=|=)"((?:[^"\\]|\\.)*)"')


def test_the_dashboard_is_one_that_grafana_imports():
    assert BOARD["schemaVersion"] >= 36
    assert (BOARD["title"], BOARD["uid"]) == ("dask-nlis", "dask-nlis")
    (variable,) = BOARD["templating"]["list"]
    assert (variable["name"], variable["type"], variable["query"]) == ("datasource", "datasource", "prometheus")
    panels = BOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len({panel["title"] for panel in panels}) == len(panels) >= 10
    for panel in panels:
        assert panel["type"] in ("stat", "timeseries")
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert panel["description"].endswith(".")
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"]) >= 1
        for target in panel["targets"]:
            assert target["datasource"] == panel["datasource"]
            assert target["legendFormat"]


def test_panels_lie_beside_one_another_without_overlap():
    taken = set()
    for panel in BOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {(place["x"] + across, place["y"] + down) for across in range(place["w"]) for down in range(place["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells


def test_queries_are_closed_and_select_by_labels_that_are_written_right():
    for query in QUERIES:
        for opening, closing in ("()", "{}", "[]"):
            assert query.count(opening) == query.count(closing)
        selected = _SELECTED.findall(query)
        assert len(selected) == len(_NAME.findall(query)) >= 1, query  # each names its job at least
        for _, labels in selected:
            rest = _LABEL.sub("", labels)
            assert set(rest) <= {","}, labels


def test_the_configuration_scrapes_the_jobs_that_the_dashboard_asks_for():
    jobs = {job["job_name"] for job in CONFIG["scrape_configs"]}
    asked = {value for query in QUERIES for name, _, value in _LABEL.findall(query) if name == "job"}
    assert jobs == asked == {"dask-scheduler", "dask-worker"}
    scheduler, worker = CONFIG["scrape_configs"]
    assert scheduler["static_configs"] == [{"targets": ["scheduler:8787"]}]
    assert worker["dns_sd_configs"][0]["port"] == 8788


def test_the_readme_lists_every_metric_of_the_dashboard():
    asked = {name for query in QUERIES for name in _NAME.findall(query)}
    assert asked <= {name for name, _ in TABLE}


def served(port):
    """Metrics of an HTTP port: name -> label values by label name."""
    parser = pytest.importorskip("prometheus_client.parser")
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        families = list(parser.text_string_to_metric_families(answer.read().decode()))
    found = {}
    for family in families:
        labels = found.setdefault(f"{family.name}_total" if family.type == "counter" else family.name, {})
        for sample in family.samples:
            for name, value in sample.labels.items():
                labels.setdefault(name, set()).add(value)
    return found


def broken(theta, x):
    raise ValueError("on purpose")


def test_every_metric_named_is_served_with_its_labels():
    pytest.importorskip("prometheus_client", reason="prometheus_client is not installed")
    values, y = rows_of(82, 1000, 3)
    lazy = da.from_array(values, chunks=(100, 3))
    with (
        LocalCluster(
            n_workers=1,
            threads_per_worker=1,
            processes=False,
            dashboard_address="127.0.0.1:0",
            worker_dashboard_address="127.0.0.1:0",
            silence_logs=50,
        ) as cluster,
        Client(cluster),
    ):
        A = nlis.dual_matrix(nlis.Problem(nlis.Linear()), lazy, y, theta=[1.0, 0.0, 0.0, 0.0])
        factor = nlis.factorize(A, method="tsqr")
        nlis.draw(nlis.leverage_scores(A, factor), 30, seed=0).take(lazy, y)
        with pytest.raises(ValueError, match="on purpose"):
            nlis.total_loss(nlis.Problem(nlis.Numerical(broken, broken, n_params=1)), lazy, y, [1.0])
        (worker,) = cluster.workers.values()
        found = served(cluster.scheduler.http_server.port) | served(worker.http_server.port)
    for name, labels in TABLE:
        assert name in found, name
        # The activities of spilling appear once there is some.
        assert set(re.findall(r"`(\w+)`", labels)) == set(found[name]), name
    for query in QUERIES:
        for name, labels in _SELECTED.findall(query):
            assert {label for label, _, _ in _LABEL.findall(labels)} - {"job"} <= set(found[name]), query
            for label, sign, value in _LABEL.findall(labels):
                if label in ("state", "type") and sign in ("=", "!="):
                    assert value in found[name][label], query
    ours = found["dask_scheduler_prefix_state_totals_total"]["task_prefix_name"]
    assert {"nlis-factor", "nlis-score", "nlis-draw", "nlis-gather", "qr", "stack"} <= ours
    pattern = re.compile(
        next(value for query in QUERIES for label, _, value in _LABEL.findall(query) if label == "task_prefix_name")
    )
    assert {name for name in ours if not pattern.fullmatch(name)} == {"array"}  # the rows in memory, as Dask calls them
