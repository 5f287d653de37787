"""`r3l train --until` ends a training once a held-out evaluation reaches its goal; the terminal shows the way there."""

import io

import pytest
from rich.console import Console

from flows import train
from flows.cli.screen.figures import curve
from flows.cli.terminal import OnTerminal
from r3l.config import compose
from r3l.errors import ConfigError
from r3l.evaluation.score import Goal

EVERY = compose(assignments=["evaluation.every=2"], environment="household")


def scores(rate: float, low: float = 0.0) -> dict:
    return {"rate": rate, "low": low}


def test_a_goal_is_a_figure_and_its_bound():
    assert Goal.of("", EVERY) is None
    assert Goal.of("success>=0.6", EVERY) == ("success", 0.6)
    low = Goal.of(" low >= .6 ", EVERY)
    assert [low.is_reached(scores(0.9, 0.59)), low.is_reached(scores(0.9, 0.6))] == [False, True]
    for wrong in ("0.6", "success>0.6", "success>=6", "success>=60%", "loss>=0.1"):
        with pytest.raises(ConfigError, match="expected success>=SHARE or low>=SHARE"):
            Goal.of(wrong, EVERY)
    with pytest.raises(ConfigError, match="give --evaluate-every N"):
        Goal.of("success>=0.6", compose(environment="household"))


@pytest.mark.parametrize(("until", "played"), [("", 8), ("success>=0.5", 6), ("success>=0.4", 4), ("success>=0.9", 8)])
def test_a_training_ends_after_the_evaluation_that_reaches_it(until, played, monkeypatch):
    rates = iter([0.2, 0.4, 0.5, 0.6])
    iterations = iter(range(100))
    monkeypatch.setattr(
        train.iteration_flow,
        "with_watcher",
        lambda *given: lambda config: {"iteration": next(iterations), "alarms": []},
    )
    monkeypatch.setattr(train.evaluation_flow, "with_watcher", lambda *given: lambda config: scores(next(rates)))
    monkeypatch.setattr(train, "standing_alarms", lambda *place: [])
    summaries = train.iterations_of(EVERY, 8, until=until)
    assert len(summaries) == played
    assert "evaluation" in summaries[-1]


def test_the_terminal_shows_the_held_out_curve():
    out = io.StringIO()
    past = [{"iteration": 4, "evaluation_success": 0.25}, {"iteration": 5}, {"iteration": 9, "evaluation_success": 0.5}]
    curve(Console(file=out, width=100), past[:2])
    assert out.getvalue() == ""
    curve(Console(file=out, width=100), past)
    assert out.getvalue() == "held-out success ▁█  25.0% after 4, 50.0% after 9\n"


def test_the_terminal_shows_the_time_left(monkeypatch):
    counts = []
    monkeypatch.setattr("flows.cli.terminal.next_iteration", lambda display, config, count: counts.append(count))
    now = iter([0.0, 90.0, 180.0])
    monkeypatch.setattr("flows.cli.terminal.time.monotonic", lambda: next(now))
    watcher = OnTerminal(None, "store", 3, False, False)
    for _ in range(3):
        watcher.begins(EVERY)
    assert counts == ["1 of 3", "2 of 3, about 3:00 left", "3 of 3, about 1:30 left"]
