"""Cells of an experiment: stages as plain calls, runs that are resumed and not done again, forks of stored bases, the
page."""

import json
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

from r3l.errors import ConfigError
from r3l.lab.study.cells import run_cells
from r3l.lab.study.experiment import load_experiment
from r3l.lab.study.whole import Only, run_experiment
from r3l.store.check import check_run
from r3l.store.stage import Store

FILE = """
name = "tiny"
title = "Two arms"
paper = "none"
knowledge = "Nothing that helps here."
environment = "household"
[[arms]]
name = "R3L"
preset = "paper"
[[arms]]
name = "GRPO"
preset = "grpo"
[[questions]]
title = "Bases"
sql = "SELECT arm, count(*) AS bases FROM base JOIN cells USING (run) WHERE branch = '' GROUP BY arm ORDER BY arm"
[sizes.laptop]
model = "household"
iterations = 2
evaluate_every = 2
seeds = [0]
settings = ["policy.path=\\"data/policies/embedded\\"", "rollout.tasks=2", "rollout.group_size=4",
"environment.max_turns=3",
            "evaluation.tasks=2", "environment.reply_tokens=24", "rollout.reflection_tokens=48"]
"""
FORKED = FILE.replace(
    '[[arms]]\nname = "GRPO"\npreset = "grpo"\n',
    """[[forks]]
name = "from_start"
settings = ["method.retry_from=\\"start\\""]
""",
)


def test_a_part_of_an_experiment_is_named_by_arm_seed_and_rate():
    cells = load_experiment(Path("data/experiments/main_household.toml")).cells("laptop")
    assert Only().of(cells) == cells
    assert [cell.config.run for cell in Only("R3L, GRPO", "1", "0.001").of(cells)] == [
        "household.r3l.lr0.001.s1",
        "household.grpo.lr0.001.s1",
    ]
    with pytest.raises(ConfigError, match=r"^3e-4: this experiment has 0\.0003, 0\.001$"):
        Only(rates="3e-4").of(cells)


@pytest.mark.slow
def test_an_error_in_a_process_of_its_own_is_an_outcome(tmp_path: Path):
    (tmp_path / "tiny.toml").write_text(FILE.replace("evaluation.tasks=2", "evaluation.tasks=100000"))
    experiment = load_experiment(tmp_path / "tiny.toml")
    (ended,) = run_cells(experiment, experiment.cells("laptop")[1:], 2, Store.open(str(tmp_path / "store")), workers=1)
    assert not ended.whole
    assert ended.error.startswith("ConfigError: evaluation.tasks=100000: household/heldout has only 200 tasks")


def test_an_experiment_whose_page_could_not_be_made_is_refused_before_its_runs(tmp_path: Path, monkeypatch):
    (tmp_path / "tiny.toml").write_text(FILE)
    for name in ("scipy", "scipy.stats"):  # another test of this process may have imported it
        monkeypatch.setitem(sys.modules, name, None)
    ended: list[object] = []
    with pytest.raises(ConfigError, match=r"\[experiments\]"):
        run_experiment(str(tmp_path / "tiny.toml"), "laptop", str(tmp_path / "store"), "", 0, 0, Only(), ended.append)
    assert ended == []


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_an_experiment_from_its_file_to_its_page(tmp_path: Path, workers: int, monkeypatch):
    monkeypatch.setattr("r3l.lab.study.whole.agreement", lambda store, run, file: f"{run} beside {file.parent.name}")
    path, store, results = tmp_path / "tiny.toml", tmp_path / "store", tmp_path / "results"
    path.write_text(FILE)
    ended = []
    page = run_experiment(str(path), "laptop", str(store), str(results), workers, 0, Only(), ended.append)
    assert sorted(one.cell.arm.name for one in ended) == ["GRPO", "R3L"]
    assert all(one.whole and not one.error for one in ended)
    assert all(str(one).endswith(f"; {one.cell.config.run} beside tiny-laptop") for one in ended)
    assert "| GRPO | 16 |" in page  # 2 iterations x 2 tasks x N = 4
    assert "| R3L | 8 |" in page
    assert (results / "tiny-laptop.md").read_text() == page
    kept = json.loads((results / "tiny-laptop.json").read_text())
    assert kept["unfinished"] == []
    assert set(kept["curves"]["tiny.r3l.s0"]) == {"-1", "1"}
    picture = (results / "tiny-laptop" / "success-by-iterations.svg").read_text()
    assert ElementTree.fromstring(picture).tag.endswith("svg")
    opened = Store.open(str(store))
    assert check_run(opened, "tiny.r3l.s0") == []
    again = []
    assert run_experiment(str(path), "laptop", str(store), str(results), 0, 0, Only(), again.append) == page
    assert again == []


@pytest.mark.slow
def test_stored_bases_are_retried_under_other_settings(tmp_path: Path):
    path, store = tmp_path / "tiny.toml", tmp_path / "store"
    path.write_text(FORKED)
    assert load_experiment(path).forks[0].settings == ['method.retry_from="start"']
    run_experiment(str(path), "laptop", str(store), str(tmp_path / "results"), 0, 0, Only(), lambda ended: None)
    opened = Store.open(str(store))
    assert opened.branches("tiny.r3l.s0") == ["from_start"]
    stages = {ref.stage for iteration in (0, 1) for ref in opened.stages("tiny.r3l.s0", "from_start", iteration)}
    assert stages == {"retries", "distilled"}  # the bases and reflections are the run's own; nothing is trained
    assert opened.stages("tiny.r3l.s0", "from_start", 2) == []


@pytest.mark.slow
def test_out_of_time_is_said_and_gone_on_with(tmp_path: Path, monkeypatch):
    (tmp_path / "tiny.toml").write_text(FILE)
    experiment, store = load_experiment(tmp_path / "tiny.toml"), Store.open(str(tmp_path / "store"))
    cells = experiment.cells("laptop")[1:]
    an_hour_an_iteration = SimpleNamespace(time=lambda: time.time() + 3600 * store.next_iteration("tiny.grpo.s0"))
    monkeypatch.setattr("r3l.lab.study.cell.time", an_hour_an_iteration)
    (stopped,) = run_cells(experiment, cells, 2, store, minutes=30)
    assert not stopped.whole
    assert "out of time" in str(stopped)
    assert store.next_iteration("tiny.grpo.s0") == 1
    (ended,) = run_cells(experiment, cells, 2, store)
    assert ended.whole
    assert store.next_iteration("tiny.grpo.s0") == 2


def test_when_the_time_is_up_no_starting_policy_is_made(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr("r3l.lab.study.cells.ensure_policy", asked.append)
    experiment = load_experiment(Path("data/experiments/phase_alfworld.toml"))
    cells, store = experiment.cells("laptop"), Store.open(str(tmp_path / "store"))
    assert list(run_cells(experiment, cells, 1, store, minutes=-1)) == []
    assert asked == []


def test_a_cell_whose_policy_has_other_weights_than_the_finished_runs_is_left_out(tmp_path, monkeypatch):
    (tmp_path / "tiny.toml").write_text(FILE)
    experiment, store = load_experiment(tmp_path / "tiny.toml"), Store.open(str(tmp_path / "store"))
    cells, played = experiment.cells("laptop"), []
    monkeypatch.setattr("r3l.lab.study.cells.ensure_policy", lambda config: SimpleNamespace(digest="here"))
    monkeypatch.setattr(
        "r3l.lab.study.cells.one_cell", lambda experiment, config, *rest: (not played.append(config), 1.0, "")
    )
    left = list(run_cells(experiment, cells, 2, store, begun={(0, None): "elsewhere"}))
    assert [(one.cell, one.whole) for one in left] == [(cell, False) for cell in cells]
    assert str(left[1]) == (
        "run 2 of 2, tiny.grpo.s0: left out: data/policies/embedded has the digest here, and the finished runs of "
        "seed 0 began from elsewhere; put the policy with that digest there, or begin anew with an empty --results and "
        "--store, 0 s; about 0 min left"
    )
    assert played == []
    assert [one.error for one in run_cells(experiment, cells, 2, store, 2, begun={(0, None): "elsewhere"})] == [
        one.error for one in left
    ]
    for alike in ({(0, None): "here"}, {(1, None): "elsewhere"}, {(0, 0.001): "elsewhere"}, None):
        assert [one.whole for one in run_cells(experiment, cells, 2, store, begun=alike)] == [True, True]
    assert len(played) == 8


def test_a_starting_policy_is_made_when_its_first_cell_begins(tmp_path, monkeypatch):
    said = []
    monkeypatch.setattr(
        "r3l.lab.study.cells.ensure_policy",
        lambda config: said.append(f"policy {Path(config.policy.path).name}") or SimpleNamespace(digest=""),
    )
    monkeypatch.setattr(
        "r3l.lab.study.cells.one_cell", lambda experiment, config, *rest: (not said.append("cell"), 1.0, "")
    )
    experiment = load_experiment(Path("data/experiments/phase_alfworld.toml"))
    first, _, other, *_ = experiment.cells("laptop")
    list(run_cells(experiment, [first, other], 1, Store.open(str(tmp_path / "store"))))
    assert said == ["policy alfworld-latent-1-0", "cell", "policy alfworld-latent-0.8-0", "cell"]


def test_the_page_alone_is_made_without_a_run(tmp_path, monkeypatch):
    (tmp_path / "tiny.toml").write_text(FILE)
    path, store, results, ended = tmp_path / "tiny.toml", tmp_path / "store", tmp_path / "results", []
    monkeypatch.setattr("r3l.lab.study.cells.ensure_policy", ended.append)
    page = run_experiment(str(path), "laptop", str(store), str(results), 0, 0, Only(), ended.append, page_alone=True)
    assert (ended, list(store.glob("*"))) == ([], [])
    assert (results / "tiny-laptop.md").read_text() == page
