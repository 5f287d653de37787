"""Experiments parse, plan and share runs only where they are the same; the table's figures by hand."""

import math
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli.app import app_of
from r3l.config import compose
from r3l.environments.kinds import tasks_of
from r3l.errors import ConfigError
from r3l.lab.study.compare import Spent, area, first_at, median, plateau, rise, summarise_arm
from r3l.lab.study.experiment import Cell, load_experiment, plan_lines, run_name
from r3l.store.policies.snapshots import snapshot_digest

EXPERIMENTS = sorted(Path("data/experiments").glob("*.toml"))
# Experiments that answer to no table of the paper.
OURS = {
    *("phase", "phase_alfworld", "field", "field_alfworld", "smollm2", "smollm2_whole", "reflector", "hypotheses"),
    *("names_thought", "latent", "guided_sft", "keeps", "smollm2_keeps", "kin", "kin_alfworld"),
    *("smollm2_batches", "smollm2_prefix", "smollm2_held"),
}
FREE = {"group_size", "sync"}  # experiments whose arms differ in N on purpose
OF_MAKE_ITERATE = re.findall(r"--(?:preset|set) (\S+)", Path("Makefile").read_text())  # preset, then settings


@pytest.fixture(scope="module")
def planned() -> Callable[[Path, str], list[Cell]]:
    """The cells of an experiment's size, each composed once."""
    return cache(lambda path, size: load_experiment(path).cells(size))


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_every_experiment_plans_in_every_size(path, planned):
    experiment = load_experiment(path)
    assert experiment.name == path.stem
    assert set(experiment.sizes) >= ({"laptop"} if path.stem in OURS else {"laptop", "paper"})
    for size, of in experiment.sizes.items():
        cells = planned(path, size)
        assert len(cells) == len(experiment.arms) * len(of.seeds) * max(1, len(of.rates))
        assert len({cell.config.run for cell in cells}) == len(cells)
        if path.stem not in FREE:
            assert len({cell.config.rollout.group_size for cell in cells}) == 1  # equal budgets
        alike = [cell for cell in cells if not any("rollout.tasks" in one for one in cell.arm.settings)]
        assert len({cell.config.rollout.tasks for cell in alike}) == 1
        assert all(cell.config.evaluation.every == of.evaluate_every for cell in cells)
        assert of.iterations % of.evaluate_every == 0  # the last policy is evaluated
        lines = plan_lines(experiment, size, cells)
        assert len(lines) == len(cells) + 2
        assert lines[-2].startswith(f"{len(cells)} runs of {of.iterations} iterations")


@pytest.mark.parametrize(("preset", "policy", "assignments", "name", "arm"), [
    ("r3l_held", "smollm2-household", [], "smollm2_held", "R3L"),
    (OF_MAKE_ITERATE[0], "latent", OF_MAKE_ITERATE[1:], "latent", "R3L in small steps"),
])  # fmt: skip
def test_what_the_pages_recommend_is_what_rose(planned, preset, policy, assignments, name, arm):
    asked = compose(policy=policy, environment="household" if name == "smollm2_held" else "", method=preset,
                    assignments=assignments)  # fmt: skip
    cells = planned(Path(f"data/experiments/{name}.toml"), "laptop")
    ran = next(cell.config for cell in cells if cell.arm.name == arm and cell.config.training.learning_rate < 1e-3)
    assert asked.training.model_copy(update={"processes": ran.training.processes}) == ran.training
    assert (asked.method, asked.rollout) == (ran.method, ran.rollout)


@pytest.mark.parametrize("name", ["main_household", "hard_tasks", "decided_at_pivot", "credit"])
def test_the_household_has_as_many_held_out_tasks_as_are_asked_for(name, planned):
    config = planned(Path(f"data/experiments/{name}.toml"), "laptop")[0].config
    assert len(tasks_of(config.environment, config.evaluation.split)) >= config.evaluation.tasks


def test_experiments_and_sizes_that_share_a_run_agree_on_it(planned):
    known = {}
    for path in EXPERIMENTS:
        experiment = load_experiment(path)
        for size, of in experiment.sizes.items():
            for cell in planned(path, size):
                setup = (cell.config, of.iterations)
                assert known.setdefault(cell.config.run, setup) == setup, f"{path.stem}, {size}: {cell.config.run}"


def test_an_unknown_size_is_refused():
    with pytest.raises(ConfigError, match="no size 'huge'; it has laptop, paper"):
        load_experiment(Path("data/experiments/main_alfworld.toml")).cells("huge")


def test_an_experiment_with_a_mistake_is_refused(tmp_path):
    (tmp_path / "x.toml").write_text('name = "x"\narms = []')
    with pytest.raises(ConfigError, match=r"title: Field required.*arms: List should have at least 1"):
        load_experiment(tmp_path / "x.toml")
    (tmp_path / "x.toml").write_text(
        'name = "x"\n[[arms]]\nname = "GRPO, twice"\npreset = "grpo"'
    )  # --arms lists names by commas
    with pytest.raises(ConfigError, match=r"arms\.0\.name: String should match pattern"):
        load_experiment(tmp_path / "x.toml")


def test_an_experiment_begins_from_the_parts_that_it_extends(tmp_path):
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "sizes.toml").write_text(
        '[short]\nmodel = "household"\niterations = 2\nevaluate_every = 1\nseeds = [0]\nrates = [1e-3]\n'
    )
    (tmp_path / "parts" / "questions.toml").write_text('[runs]\ntitle = "Runs"\nsql = "SELECT count(*) FROM cells"\n')
    beginning = (
        'name = "x"\ntitle = "t"\npaper = "p"\nknowledge = "k"\nenvironment = "household"\n'
        '[[arms]]\nname = "GRPO"\npreset = "grpo"\n'
    )
    (tmp_path / "x.toml").write_text(
        beginning + '[[questions]]\nextends = "questions.runs"\n'
        '[sizes.laptop]\nextends = "sizes.short"\nseeds = [3, 4]\n'
    )
    experiment = load_experiment(tmp_path / "x.toml")
    assert (experiment.sizes["laptop"].seeds, experiment.sizes["laptop"].rates) == (
        [3, 4],
        [1e-3],
    )  # its own, and the part's
    assert [one.title for one in experiment.questions] == ["Runs"]
    for name, wrong in (
        ("sizes.long", "has no table 'long'; it has short"),
        ("sise.short", "No such file"),
        ("sizes", "has no table ''"),
    ):
        (tmp_path / "x.toml").write_text(f'{beginning}[sizes.laptop]\nextends = "{name}"\n')
        with pytest.raises(ConfigError, match=f"extends = '{name}'.*{wrong}"):
            load_experiment(tmp_path / "x.toml")


def test_cells_take_their_rate_and_their_starting_policy_by_seed(tmp_path):
    (tmp_path / "x.toml").write_text("""
name = "x"\ntitle = "t"\npaper = "p"\nknowledge = "k"\nenvironment = "household"
[[arms]]\nname = "GRPO"\npreset = "grpo"
[sizes.laptop]\nmodel = "household"\niterations = 2\nevaluate_every = 1\nseeds = [0, 1, 2]
policies = ["a", "b"]\nrates = [1e-3, 3e-4]
seconds_per_iteration = 60\ndevices = 4
""")
    experiment = load_experiment(tmp_path / "x.toml")
    found = [
        (one.config.run, one.config.policy.path, one.config.training.learning_rate)
        for one in experiment.cells("laptop")
    ]
    assert found[:4] == [
        ("x.grpo.lr0.001.s0", "a", 1e-3),
        ("x.grpo.lr0.001.s1", "b", 1e-3),
        ("x.grpo.lr0.001.s2", "a", 1e-3),
        ("x.grpo.s0", "a", 3e-4),
    ]  # the model's own rate has no mark
    lines = plan_lines(experiment, "laptop", experiment.cells("laptop"))
    assert lines[-1] == "about 0.2 hours one after another, 1 GPU hours (at 60 s an iteration)"  # 12 minutes x 4


def test_a_plan_is_of_the_cells_that_are_asked_for():
    asked = ["compare", "phase", "--plan", "--seeds", "0,3", "--arms", "R3L,GRPO", "--rates", "0.0003"]
    done = CliRunner().invoke(app_of(["compare"]), asked)
    *cells, counted, _ = done.output.splitlines()
    assert done.exit_code == 0
    assert len(cells) == 4
    assert all(" seed 0," in line or " seed 3," in line for line in cells)
    assert counted.startswith("4 runs of ")
    refused = CliRunner().invoke(app_of(["compare"]), [*asked[:3], "--seeds", "99"])
    assert "99: this experiment has 0, 1" in str(refused.exception)


def test_runs_are_named_by_their_cell():
    assert run_name("main", "R3L w/o credit", 2) == "main.r3l-w-o-credit.s2"
    assert run_name("main", "R3L", 0, 3e-4) == "main.r3l.lr0.0003.s0"


def test_the_area_agrees_with_a_calculation_by_hand():
    # (0.1 + 0.3)/2 * 5 + (0.3 + 0.5)/2 * 5 over 10
    assert area({-1: 0.1, 4: 0.3, 9: 0.5}) == pytest.approx(0.3)
    assert area({3: 0.7}) == 0.7


def test_where_a_curve_levels_off():
    curve = {-1: 0.1, 3: 0.4, 7: 0.7, 11: 0.6, 15: 0.8, 19: 0.7}  # steps 4, 8 | 8, 12 | 16, 20 of 20
    assert plateau(curve) == pytest.approx(0.75)
    assert rise(curve) == pytest.approx(0.75 - 0.65)
    assert plateau({-1: 0.1, 4: 0.3, 9: 0.5}) == 0.5
    assert rise({-1: 0.1, 4: 0.3, 9: 0.5}) == pytest.approx(0.2)
    assert plateau({-1: 0.1, 0: 0.3}) == 0.3
    assert math.isnan(rise({-1: 0.1, 0: 0.3}))  # one step has no middle third


def test_the_summary_of_an_arm_agrees_with_a_calculation_by_hand():
    spent = {-1: Spent(0, 0, 0, 0.0), 9: Spent(80, 400, 6000, 10.0)}
    found = summarise_arm("R3L", 1e-3, [{-1: 0.2, 9: 0.4}, {-1: 0.2, 9: 0.6}], [spent, spent], 0.5, 1000)
    assert (found.start, found.final, found.best, found.area) == pytest.approx((0.2, 0.5, 0.5, 0.35))
    assert found.final_error == pytest.approx(0.1)  # deviations ±.1: sqrt(.02 / 1 / 2)
    assert found.area_error == pytest.approx(0.05)
    assert (found.plateau, found.plateau_error) == pytest.approx((0.5, 0.1))
    assert (found.iterations, found.turns) == (math.inf, math.inf)  # one of two seeds never got there
    assert (found.episodes, found.tokens) == (8, 600)
    assert math.isnan(summarise_arm("GRPO", None, [{0: 1.0}], [{0: Spent(1, 1, 1, 1.0)}], 0.5, 60).final_error)
    few = summarise_arm("R3L", 1e-3, [{-1: 0.2, 9: 0.4}, {-1: 0.2, 9: 0.6}], [spent, spent], 0.5, 8)
    # 8 episodes: .4 and .6 are drawn to .42 and .58; sqrt(2 x .42 x .58 / 8) / 2, above the spread's .1
    assert found.final_error < few.final_error == pytest.approx(math.sqrt(2 * 0.42 * 0.58 / 8) / 2)


def test_steps_and_turns_to_a_level():
    spent = {-1: Spent(0, 0, 0, 0.0), 4: Spent(40, 200, 3000, 5.0), 9: Spent(80, 400, 6000, 10.0)}
    found = summarise_arm("R3L", None, [{-1: 0.2, 4: 0.5, 9: 0.4}], [spent], 0.5, 60)
    assert (found.iterations, found.turns) == (5, 200)
    assert first_at({-1: 0.6, 4: 0.7}, 0.5) == -1
    assert median([1.0, math.inf, 2.0]) == 2.0


def test_the_starting_policies_of_the_main_comparisons_ship(planned):
    for name in ("main_alfworld", "main_household"):
        paths = {cell.config.policy.path for cell in planned(Path(f"data/experiments/{name}.toml"), "laptop")}
        assert len({snapshot_digest(path) for path in paths}) == len(paths)


def test_runs_of_one_policy_are_averaged_first():
    curves, spent = [{-1: 0.0, 9: height} for height in (0.2, 0.4, 0.9)], {9: Spent(1, 1, 1, 1.0)}
    found = summarise_arm("R3L", None, curves, [spent] * 3, 0.5, 60, ["a", "a", "b"])
    assert (found.policies, found.seeds) == (2, 3)
    assert found.final == pytest.approx((0.3 + 0.9) / 2)
    assert found.area == pytest.approx((0.15 + 0.45) / 2)
    assert found.final_error == pytest.approx(0.3)  # half of .3 and .9's distance
