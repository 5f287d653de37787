"""What the Prefect UI is given of an iteration: lines of the run's log, and a page whose plot is an image of its
own."""

import base64
import xml.etree.ElementTree as ElementTree

import httpx

from flows import artifacts, progress_artifact
from flows.artifacts import look
from flows.progress_artifact import how_far
from flows.trend_image import image
from r3l.audit.lines import Line
from r3l.config import Config
from r3l.exploration.progress import Progress
from r3l.pipeline.logs import log_line
from r3l.pipeline.summary import summarise
from r3l.records import Event
from r3l.store.stage import Store
from tests.support.store_iteration import commit_iteration, iteration_tables

SVG = "{http://www.w3.org/2000/svg}"


def test_a_line_of_the_log_tells_counts_and_reasons():
    tables = iteration_tables(0)
    assert log_line("base", tables["base"]).startswith("base: 4 trajectories, 12 turns; mean reward 0.250; 4 completed")
    assert "3 parsed, 1 " in log_line("reflections", tables["reflections"])
    dropped = [Event(0, "credit", "x", "dropped", "all rewards equal")] * 2 + [
        Event(0, "credit", "y", "skipped", "no reward")
    ]
    assert (
        log_line("credit", {"credit": [], "events": dropped})
        == "credit: no rows; 2 dropped: all rewards equal, 1 skipped: no reward"
    )


def test_the_plot_is_one_small_image_with_a_line_for_each_figure():
    past = [
        {
            "iteration": k,
            "base_reward": k / 10,
            "retry_reward": 0.2,
            "evaluation_reward": None,
            "retry_improvement": 0.5,
            "retry_improvement_failed": None,
            "entropy": 1.0,
            "loss": 0.1,
            "loss_rl": 0.1,
            "loss_sft": 0.0,
        }
        for k in range(5)
    ]
    markdown = image(Line("demo"), past)
    assert markdown.startswith("![trend of demo](data:image/svg+xml;base64,")
    assert len(markdown) < 20_000
    drawing = ElementTree.fromstring(base64.b64decode(markdown.split("base64,")[1].removesuffix(")")))
    assert [title.text for title in drawing.findall(f"{SVG}text[@class='head']")] == [
        "Reward",
        "Improvement rate",
        "Entropy",
        "Loss",
    ]
    lines = [len(chart.findall(f"{SVG}path")) for chart in drawing.findall(f"{SVG}svg")]
    assert lines == [2, 1, 1, 3]  # the evaluation and the failed bases have no values
    assert not drawing.findall(f".//{SVG}script")


def test_the_page_leads_to_the_audit_app(monkeypatch):
    assert "(http://127.0.0.1:4300/run/demo/groups?branch=bold&iteration=3)" in look(
        Line("demo", "bold"), 3, "data/runs"
    )
    monkeypatch.setenv("R3L_AUDIT_URL", "https://audit.example/")
    assert "(https://audit.example/run/demo/groups?iteration=3)" in look(Line("demo"), 3, "data/runs")


def test_the_form_names_its_sections_plainly():
    titles = {section["title"] for section in Config.model_json_schema()["$defs"].values()}
    assert {"Policy", "Rollout", "Training", "Tracking", "R3L", "ALFWorld"} <= titles
    assert not [title for title in titles if title.endswith("Settings")]


def test_how_far_an_iteration_is_by_its_finished_shards():
    assert how_far({}) == (0.0, "begins")
    counts = {
        "shards": {"planned": 4.0},
        "tasks": {"shards": 1.0},
        "base": {"shards": 3.0, "planned": 16.0, "done": 12.0, "reward": 3.0},
        "reflections": {"shards": 1.0},
    }
    share, words = how_far(counts)
    assert share == 5 / (1 + 6 * 4 + 1)  # tasks and update once, six stages of four shards
    assert words == "base 3 of 4 shards, mean reward 0.19–0.44 · reflections 1 of 4 shards"


def test_progress_is_told_seldom_and_a_silent_server_stops_nothing(monkeypatch):
    told = []

    def update(artifact, percent, description):
        told.append((artifact, percent, description))
        if len(told) == 2:
            raise httpx.ConnectError("the server is away")

    monkeypatch.setattr(progress_artifact, "create_progress_artifact", lambda **fields: fields["key"])
    monkeypatch.setattr(progress_artifact, "update_progress_artifact", update)
    now = iter([0.0, 1.0, 10.0, 10.0, 20.0, 20.0, 30.0])
    monkeypatch.setattr(progress_artifact.time, "monotonic", lambda: next(now))
    shown = progress_artifact.Live("key", 0, Progress())
    shown.tell()  # a second after it was made
    assert told == []
    shown.tell()
    shown.tell()
    shown.end("base 54 %")
    assert [percent for _, percent, _ in told] == [0.0, 0.0, 100.0]
    assert told[-1] == ("key", 100.0, "base 54 % · iteration 0")


def test_the_page_has_the_headline_its_change_and_the_evaluation(tmp_path):
    store = Store.open(str(tmp_path))
    for iteration in range(2):
        commit_iteration(store, iteration=iteration)
    summary = summarise(store, "demo", "", 1)
    score = {
        "posed": "heldout",
        "sample": "4 of 9 tasks",
        "rate": 0.5,
        "table": [{"task type": "all", "rate": "50.0%"}],
    }
    text = artifacts.page(store, Line("demo"), summary, score)
    assert "| base success | 25.0% | +0.0 points |" in text
    assert "## Evaluation: heldout; 4 of 9 tasks\n\n| task type | rate |\n|---|---|\n| all | 50.0% |" in text
    assert "## Evaluation" not in artifacts.page(store, Line("demo"), summary)
    line = artifacts.closing_line(summary | {"store": store.root})
    assert line.startswith("demo, iteration 1: base 25 % · ")
    assert f"policy {summary['policy']}; look at it with" in line
    assert line.endswith(f" audit {store.root}`")
