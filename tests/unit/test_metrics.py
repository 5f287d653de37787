"""One line in the table of metrics shows in the view, the terminal, the artifacts, the audit pages and the trackers."""

import pytest

from r3l.audit.charts.iterations import CHARTS, charts_of
from r3l.audit.figures import in_format
from r3l.audit.lines import Line, iterations
from r3l.audit.reader import Reader
from r3l.pipeline import summary
from r3l.pipeline.tracking import writers
from r3l.store import catalog, metrics
from r3l.store.catalog import connect
from r3l.store.metrics import FOLLOWED, METRICS, Metric
from r3l.store.stage import Store
from tests.support.store_iteration import commit_iteration, commit_stage, iteration_tables


@pytest.fixture
def store(tmp_path):
    made = Store.open(str(tmp_path / "store"))
    commit_iteration(made, iteration=0)
    return made


def test_the_view_has_every_metric_and_nothing_else_but_what_is_no_figure(store):
    columns = connect(store).sql("FROM lines.iterations").columns
    assert set(columns) - {metric.column for metric in METRICS} == {
        "run", "branch", "iteration", "first_commit", "last_commit", "step", "stepped", "policy", "no_step",
    }  # fmt: skip
    assert [one.column for one in METRICS if one.column not in columns] == ["mixed_share"]
    assert len({metric.column for metric in METRICS}) == len(METRICS)


def test_a_new_metric_is_one_line(store, monkeypatch):
    new = Metric("longest", "base", "max(turns)", "longest base", "{:d}", "turns")
    monkeypatch.setattr(metrics, "METRICS", (*METRICS, new))
    monkeypatch.setattr(summary, "METRICS", (*METRICS, new))
    assert "max(turns) AS longest" in catalog.view_sql("iterations")
    found = summary.summarise(store, "demo", "", 0)
    longest = connect(store).execute("SELECT max(turns) FROM base").fetchall()[0][0]
    assert found["longest"] == longest > 0
    assert summary.figure_rows(found)[-1] == ("longest base", str(longest))
    chart = charts_of((*FOLLOWED, new))[-1]
    assert (chart.title, chart.unit, chart.lines) == ("Longest base", "turns", {"longest": ""})
    assert charts_of(FOLLOWED) == CHARTS


def test_an_update_of_two_steps_drifted_as_far_as_its_last_one(tmp_path):
    store = Store.open(str(tmp_path))
    tables = iteration_tables(0)["updates"]
    first = tables["updates"][0] | {"step": 1, "drift": 0.3, "step_share": 0.25}
    tables["updates"] = [first | {"step": 2, "drift": 0.1, "step_share": 0.5}, first]
    commit_stage(store, "updates", tables, [], "demo", 0)
    assert connect(store).sql("SELECT drift, step_share FROM iterations").fetchall() == [(0.1, 0.25)]


def test_trackers_get_the_figures_of_an_iteration_without_a_step(store):
    (row,) = iterations(Reader(store, ["demo"]), Line("demo"))
    _, _, tracked = writers.point(row | {"no_step": "no step taken: 0 of 2 groups have mixed rewards", "loss": None})
    assert tracked["base_reward"] == 0.25
    assert not {"no_step", "loss", "step"} & set(tracked)


def test_pages_write_a_metric_by_its_format():
    assert [in_format(0.5, form) for form in ("{:.1%}", "{:+.3f}", "{:.2f}", "{:.4f}")] == [
        "50.0 %",
        "+0.500",
        "0.50",
        "0.5000",
    ]
    assert [in_format(1234, form) for form in ("{:d}", "{:,d}")] == ["1,234", "1,234"]
    assert in_format(0.00002, "{:.2e}") == "2.0e−5"
    assert in_format(None, "{:.3f}") == "–"
