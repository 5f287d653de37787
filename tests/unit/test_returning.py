"""`r3l train --return-after`: a training that has fallen goes on from its best policy, on a branch."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from flows import train
from flows.cli import terminal
from flows.cli.app import app_of
from r3l.config import Config, compose
from r3l.config.form import Form
from r3l.errors import ConfigError
from r3l.pipeline.returning import best_before_fall, line_to_train
from r3l.pipeline.settings.continuing import compose_for_run, save_config
from r3l.store.stage import Store
from tests.support.store_iteration import commit_evaluation, commit_stage, iteration_tables


def settings(store: Store) -> Config:
    return compose(assignments=[f"store.root={store.root}", "evaluation.every=1"], environment="household")


class Course:
    """Stands for the flows: each iteration commits its updates on the line it is asked for, and each evaluation wins so
    many of 20 tasks; the line and seed of each are noted."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch, *solved: int) -> None:
        self.store, self.solved, self.lines = store, list(solved), list[tuple[str, int, int]]()
        monkeypatch.setattr(train.iteration_flow, "with_watcher", lambda *_: self.iterate)
        monkeypatch.setattr(train.evaluation_flow, "with_watcher", lambda *_: self.evaluate)

    def iterate(self, form: Any) -> dict[str, Any]:
        config = compose_for_run(form.asked())
        iteration = config.iteration
        if iteration is None:
            iteration = self.store.next_iteration(config.run, config.branch)
        tables = iteration_tables(iteration)["updates"]
        commit_stage(self.store, "updates", tables, [], config.run, iteration, branch=config.branch)
        self.lines.append((config.branch, iteration, config.seed))
        return {"run": config.run, "branch": config.branch, "iteration": iteration, "alarms": []}

    def evaluate(self, config: Config) -> dict[str, float]:
        assert config.iteration is None
        solved, (branch, iteration, _) = self.solved.pop(0), self.lines[-1]
        commit_evaluation(self.store, iteration, 0, "household/heldout", 20, solved, config.run, branch)
        return {"rate": solved / 20, "low": 0.0}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(str(tmp_path))


def test_training_goes_on_from_its_best_policy_once_it_has_fallen(store, monkeypatch):
    # 16 of 20 less two standard errors of both is 9.7 beside 9 of 20, and 10.2 beside 11
    course = Course(store, monkeypatch, 4, 16, 9, 11, 9, 9, 12)
    train.iterations_of(settings(store), 7, return_after=2)
    seed = settings(store).seed
    main = [("", iteration, seed) for iteration in range(6)]
    assert course.lines == [*main, ("return", 2, seed + 1)]


def test_a_training_that_is_started_again_finds_its_branch(store, monkeypatch):
    course = Course(store, monkeypatch, 16, 5, 16, 17)
    train.iterations_of(settings(store), 3, return_after=1)
    train.iterations_of(settings(store), 1, return_after=1)
    assert [line[:2] for line in course.lines] == [("", 0), ("", 1), ("return", 1), ("return", 2)]


@pytest.mark.parametrize("solved", [(16, 5, 15, 4), (16, 5, 6)], ids=["behind_its_best", "from_its_beginning"])
def test_a_second_fall_ends_the_training(solved, store, monkeypatch):
    course = Course(store, monkeypatch, *solved)
    assert len(train.iterations_of(settings(store), 9, return_after=1)) == len(solved)
    assert course.lines[-1][:2] == ("return", len(solved) - 2)
    assert train.iterations_of(settings(store), 9, return_after=1) == []


def test_the_branch_keeps_the_settings_that_it_was_given(store, monkeypatch):
    """Those of the run's own line are of before the fall."""
    Course(store, monkeypatch, 16, 5, 16)
    train.iterations_of(settings(store), 3, return_after=1)
    for branch, iteration, rate in [("", 1, 1e-3), ("return", 1, 1e-5)]:
        own = settings(store).model_copy(update={"branch": branch, "seed": 7 if branch else 0})
        save_config(
            store,
            own.model_copy(update={"training": own.training.model_copy(update={"learning_rate": rate})}),
            iteration,
        )
    told = list[Config]()
    monkeypatch.setattr(terminal, "run_training", lambda config, *_, **__: told.append(config) or [])
    words = ["train", settings(store).run, "--return-after", "1", "--store", store.root]
    CliRunner().invoke(app_of(["train", "presets"]), words, catch_exceptions=False)
    form = Form.model_validate({"run": settings(store).run, "store": {"root": store.root}})
    for config in (*told, train.composed(form, 1)):
        assert (config.branch, config.seed, config.training.learning_rate) == ("return", 7, 1e-5)
        assert line_to_train(store, config, 1) == config
    assert train.composed(form, 0).training.learning_rate == 1e-3


def test_where_the_start_was_best_the_branch_begins_with_the_run(store, monkeypatch):
    commit_evaluation(store, -1, 0, "household/heldout", 20, 18, settings(store).run)
    course = Course(store, monkeypatch, 2, 2)
    train.iterations_of(settings(store), 2, return_after=1)
    assert [line[:2] for line in course.lines] == [("", 0), ("return", 0)]


def test_without_the_option_and_without_a_run_nothing_returns(store, monkeypatch):
    assert best_before_fall(store, settings(store), 1) is None
    course = Course(store, monkeypatch, 16, 1, 1)
    train.iterations_of(settings(store), 3)
    assert {line[0] for line in course.lines} == {""}


@pytest.mark.parametrize(("changed", "after", "words"), [
    ([], -1, "expected a number of evaluations"),
    (["evaluation.every=0"], 1, "give --evaluate-every N"),
    (["branch=x"], 1, "branch x has no branches of its own"),
])  # fmt: skip
def test_a_return_that_could_never_come_is_refused(changed, after, words, store):
    assignments = [f"store.root={store.root}", "evaluation.every=1", *changed]
    with pytest.raises(ConfigError, match=words):
        train.iterations_of(compose(assignments=assignments, environment="household"), 1, return_after=after)
