"""Experiments parse and plan; the table's figures by hand."""

import math
from pathlib import Path

import pytest

from r3l.config.experiment import load_experiment, run_name
from r3l.errors import ConfigError
from r3l.evaluation.compare import area, summarise_arm

EXPERIMENTS = sorted(Path("data/experiments").glob("*.toml"))


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_every_experiment_plans_in_every_size(path):
    experiment = load_experiment(path)
    assert experiment.name == path.stem
    assert set(experiment.sizes) >= {"laptop", "paper"}
    for size, of in experiment.sizes.items():
        cells = experiment.cells(size)
        assert len(cells) == len(experiment.arms) * len(of.seeds)
        assert len({config.run for _, _, config in cells}) == len(cells)
        assert {config.rollout.group_size for _, _, config in cells} == {cells[0][2].rollout.group_size}  # equal budgets
        assert all(config.evaluation.every == of.evaluate_every for _, _, config in cells)


def test_a_size_that_is_none():
    with pytest.raises(ConfigError, match="no size 'huge'; it has laptop, paper"):
        load_experiment(Path("data/experiments/main_alfworld.toml")).cells("huge")


def test_an_experiment_with_a_mistake(tmp_path):
    (tmp_path / "x.toml").write_text('name = "x"\narms = []')
    with pytest.raises(ConfigError, match=r"title: Field required.*arms: List should have at least 1"):
        load_experiment(tmp_path / "x.toml")


def test_runs_are_named_by_their_cell():
    assert run_name("main", "R3L w/o credit", 2) == "main.r3l-w-o-credit.s2"


def test_area_by_hand():
    # (0.1 + 0.3)/2 * 5 + (0.3 + 0.5)/2 * 5 over 10
    assert area({-1: 0.1, 4: 0.3, 9: 0.5}) == pytest.approx(0.3)
    assert area({3: 0.7}) == 0.7


def test_an_arm_by_hand():
    found = summarise_arm("R3L", [{-1: 0.2, 9: 0.4}, {-1: 0.2, 9: 0.6}])
    assert (found.start, found.final, found.best, found.area) == pytest.approx((0.2, 0.5, 0.5, 0.35))
    assert found.final_error == pytest.approx(0.1)  # deviations ±.1: sqrt(.02 / 1 / 2)
    assert found.area_error == pytest.approx(0.05)
    assert math.isnan(summarise_arm("GRPO", [{0: 1.0}]).final_error)
