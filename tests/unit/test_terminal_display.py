"""The live panel and the figures after an iteration: means without bias, changes, sparklines, time by the clock."""

import io
import logging

import pytest

from flows.cli.screen.console import CleanConsole
from flows.cli.screen.display import Display, clock, print_changes, row
from flows.cli.screen.figures import result, trend
from r3l.exploration.progress import Progress, mean_reward
from r3l.pipeline.summary import HEADLINE, change, headline, history, in_short, sparkline, summarise, trends
from r3l.pipeline.update.local import line_counter
from r3l.store.metrics import METRICS
from r3l.store.stage import Store
from tests.support.store_iteration import commit_iteration


def console():
    return CleanConsole(file=io.StringIO(), width=120)


def said(screen) -> str:
    return screen.file.getvalue()


def test_a_mean_over_attempts_that_go_on_has_bounds():
    # 4 of 16 attempts have ended, all of them won: the others may come to anything
    assert mean_reward({"planned": 16, "done": 4, "reward": 4.0}) == "0.25–1.00"
    assert mean_reward({"planned": 16, "done": 12, "reward": 6.0}) == "0.38–0.62"
    assert mean_reward({"planned": 16, "done": 16, "reward": 6.0}) == "0.38"
    assert mean_reward({"planned": 16}) == mean_reward({"done": 2, "tokens": 9}) == mean_reward({}) == ""


def test_the_update_tells_its_micro_batches(caplog, monkeypatch):
    logger = logging.getLogger("r3l.pipeline")  # as Prefect leaves it, where a flow ran before in this process
    monkeypatch.setattr(logger, "propagate", True)
    monkeypatch.setattr(logger, "disabled", False)
    progress = Progress()
    display = Display(console(), "title", progress)
    display.phase = "running"
    hear = line_counter(progress)
    assert display.now() == "running"
    with caplog.at_level(logging.INFO, logger="r3l.pipeline"):
        hear({"event": "part", "part": "load"})
        assert display.now() == "the update loads the policy"
        hear({"event": "start", "rows": 12, "groups": 2, "trie_tokens": 900})
        for index in range(3):
            hear({"event": "micro_batch", "index": index, "of": 10, "tokens": 50})
    assert row("updates", progress.snapshot()["updates"], 2)[2:4] == ["3/10", ""]
    assert progress.snapshot()["updates"]["tokens"] == 150
    assert caplog.messages == [
        "updates: 12 rows of 2 groups, 900 tokens where they share prefixes",
        "updates: micro-batch 3 of 10",
    ]
    hear({"event": "out_of_memory", "limits": "smaller"})  # the passes begin again
    hear({"event": "micro_batch", "index": 0, "of": 20, "tokens": 50})
    assert row("updates", progress.snapshot()["updates"], 2)[2] == "1/20"
    progress.finish("updates")
    assert display.now() == "running"


def test_without_a_terminal_a_line_is_printed_on_change():
    screen = console()
    display = Display(screen, "title", Progress())
    display.phase = "waiting"
    happens = iter([lambda: None, lambda: None, lambda: display.progress.add("base", planned=4, done=1), lambda: None])

    def over(_: float) -> bool:
        return (happening := next(happens, None)) is None or happening() is not None

    print_changes(display, over)
    assert [line.split("] ")[1] for line in said(screen).splitlines()] == ["waiting", "waiting: base 1/4"]


def test_seconds_are_shown_as_a_clock():
    assert [clock(5), clock(65.9), clock(3605)] == ["0:05", "1:05", "1:00:05"]


def test_a_change_has_its_sign_and_unit():
    assert change(0.5, 0.44, "{:.1%}") == "+6.0 points"
    assert change(0.031, 0.0405, "{:.4f}") == "-0.0095"
    assert change(7, 4, "{:d}") == "+3"
    assert change(7, None, "{:d}") == change(float("nan"), 1.0, "{:.1f}") == ""


def test_the_headline_in_one_line():
    summary = {"base_success": 0.54, "evaluation_success": 0.31, "loss": 0.031, "retry_improvement": None}
    assert in_short(summary) == "base 54 % · held-out 31 % · loss 0.031"
    assert in_short({}) == ""


def test_a_sparkline_goes_from_least_to_greatest():
    assert sparkline([0.0, None, 0.5, 1.0]) == "▁ ▅█"
    assert sparkline([None, float("nan")]) == ""
    assert sparkline([2.0, 2.0]) == "▁▁"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    made = Store.open(str(tmp_path_factory.mktemp("store")))
    for iteration in range(2):
        commit_iteration(made, iteration=iteration)
    return made


def test_eight_figures_with_their_change_and_all_on_request(store):
    summary = summarise(store, "demo", "", 1) | {"store": store.root}
    names = {metric.column: metric.name for metric in METRICS}
    assert [name for name, _, _ in headline(summary)] == [names[column] for column in HEADLINE]
    assert set(summary["before"]) == {*HEADLINE, "evaluated"}
    rates = {"evaluation_success": 0.5, "evaluated": 32, "before": {"evaluation_success": 0.31, "evaluated": 32}}
    assert headline({"run": "demo"} | rates)[1][2] == "+19.0 points [-5 to +40]"
    assert summarise(store, "demo", "", 0)["before"] == {}
    assert all(seconds >= 0 for seconds in summary["stages"].values())
    short, whole = console(), console()
    result(short, summary, ask=False)
    result(whole, summary, ask=False, verbose=True)
    assert "+0.0 points" in said(short)
    assert "gradient norm" not in said(short)
    assert all(metric.name in said(whole) for metric in METRICS if metric.shown and metric.source != "evaluations")


def test_the_trend_of_a_run_is_a_sparkline(store):
    past = history(store, "demo", "")
    assert ("base success", "▁▁", "25.0%", "25.0%") in trends(past)
    screen = console()
    trend(screen, "demo", past)
    assert "demo, iterations 0 to 1" in said(screen)
    assert "▁▁" in said(screen)
