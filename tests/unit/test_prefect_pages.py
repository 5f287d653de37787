"""What the Prefect UI is given of an iteration: lines of the run's log, and a page whose plot is an image of its
own."""

import base64
import xml.etree.ElementTree as ElementTree

from flows import artifacts
from flows.artifacts import image, look
from r3l.audit.lines import Line
from r3l.config import Config
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
            "iteration": k, "base_reward": k / 10, "retry_reward": 0.2, "evaluation_reward": None,
            "retry_improvement": 0.5, "retry_improvement_failed": None, "entropy": 1.0, "loss": 0.1, "loss_rl": 0.1,
            "loss_sft": 0.0,
        }
        for k in range(5)
    ]  # fmt: skip
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
