"""Each stage on a fixed input, its rows pinned by their digest under the version of the code that computes it.

A failing test says that the code makes other rows of the same input: raise the stage's version in `CODE_VERSIONS`
(r3l/pipeline/stages/identity.py), so that what was stored before is not taken for it, and pin the new digest here
beside the new version. The update's figures are held by `test_ten_steps.py`.
"""

from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from r3l.config import compose
from r3l.evaluation.benchmarks import Posed
from r3l.evaluation.play import evaluation_columns, evaluation_rows, evaluation_stage
from r3l.exploration import stages
from r3l.exploration.oracle import oracle_stage
from r3l.methods import credit_stage, plan, training_rows_stage
from r3l.pipeline.stages import replay_buffer, task_batch
from r3l.pipeline.stages.identity import CODE_VERSIONS
from r3l.pipeline.stages.stage_io import tables
from r3l.records import Episode, SamplingPlan
from r3l.stages import STAGES
from r3l.store.digests import canonical, table_digest
from r3l.store.stage import Store
from r3l.store.tables.parts import to_table
from r3l.store.tables.schemas import VERSIONS
from tests.support.fakes import explorer
from tests.support.rehearsal import TASKS, walker
from tests.support.store_iteration import commit_iteration, iteration_tables

Tables = dict[str, Any]
METHOD = compose(method="paper").method
PLAN = plan(METHOD, 4)
# The first 16 digits of each stage's digest, by the version of its columns and that of its code.
PINNED = {
    ("tasks", 1, 1): "54008e135a6de4c2", ("base", 6, 2): "97a791972dee1105",
    ("oracle_pivots", 1, 1): "955fb9aa0586a0e2", ("reflections", 3, 2): "8ca2d2b6acefb54c",
    ("retries", 6, 2): "9f3550ba01ca5f7c", ("distilled", 6, 1): "91fb3b883a057158",
    ("continuations", 6, 2): "68630844ce04af23", ("credit", 3, 1): "04792250521e046e",
    ("training_rows", 2, 2): "57d0bd7bc981d81f", ("replay", 2, 1): "26d2b9490b1a54e8",
    ("evaluations", 6, 2): "423ef42ae0895a18",
}  # fmt: skip


def golden_episodes(stage: str) -> list[Episode]:
    """The episodes of a stage of tests/support/store_iteration.py."""
    rows = iteration_tables(0)[stage]
    return [
        Episode(one, [turn for turn in rows["turns"] if turn.trajectory_id == one.trajectory_id])
        for one in rows["trajectories"]
    ]


def made_tasks(folder: Path) -> Tables:
    config = compose(environment="household", assignments=["environment.train_tasks=20", "rollout.tasks=6"])
    return {"tasks": task_batch.draw(config, 4)}


def made_base(folder: Path) -> Tables:
    return tables(stages.base_stage(explorer(walker), TASKS, PLAN))


def made_oracle_pivots(folder: Path) -> Tables:
    world = explorer(walker)
    pivots, events = oracle_stage(world, TASKS, stages.base_stage(world, TASKS, PLAN))
    return {"oracle_pivots": pivots, "events": events}


def made_reflections(folder: Path) -> Tables:
    world = explorer(walker)
    bases = stages.base_stage(world, TASKS, PLAN)
    return {"reflections": stages.reflections_stage(world, TASKS, PLAN, bases, bases, 0)}


def made_retries(folder: Path) -> Tables:
    world = explorer(walker)
    bases = stages.base_stage(world, TASKS, PLAN)
    return tables(
        stages.retries_stage(
            world, TASKS, PLAN, bases, bases, stages.reflections_stage(world, TASKS, PLAN, bases, bases, 0)
        )
    )


def made_distilled(folder: Path) -> Tables:
    return tables(*stages.distilled_stage(golden_episodes("base"), golden_episodes("retries")))


def made_continuations(folder: Path) -> Tables:
    world = explorer(walker)
    asked = SamplingPlan(bases=2, continued_turns=2, continuations=2)
    return tables(*stages.continuations_stage(world, TASKS, asked, stages.base_stage(world, TASKS, asked)))


def made_credit(folder: Path) -> Tables:
    credit, events = credit_stage(
        METHOD, [one.trajectory for stage in ("base", "distilled") for one in golden_episodes(stage)]
    )
    return {"credit": credit, "events": events}


def made_training_rows(folder: Path) -> Tables:
    """Of the credit that the fixed input has, whatever the credit stage makes by now."""
    episodes = [one for stage in ("base", "retries", "distilled") for one in golden_episodes(stage)]
    fixed = iteration_tables(0)
    rows, events = training_rows_stage(METHOD, episodes, fixed["reflections"]["reflections"], fixed["credit"]["credit"])
    return {"training_rows": rows, "events": events}


def made_replay(folder: Path) -> Tables:
    store = Store.open(str(folder))
    for iteration in range(3):
        commit_iteration(store, iteration=iteration)
    config = compose(run="demo", assignments=["training.sync_interval=2"])
    bench: Any = SimpleNamespace(config=config, store=store, iteration=3, policies=None)
    return replay_buffer.replay_tables(bench, 2)


def made_evaluations(folder: Path) -> Tables:
    asked = compose(environment="household", assignments=["evaluation.repeats=2"])
    about = evaluation_columns(Posed(asked, "corridor", "", "single"), {"data": "corridor-0"}, len(TASKS), 9)
    episodes = evaluation_stage(explorer(walker), TASKS, 2, 0.4, name="evaluation-1a2b")
    rows = evaluation_rows(episodes, about)
    return {"evaluations": rows} | tables(episodes)


MADE = {stage: globals()[f"made_{stage}"] for stage in STAGES if stage != "updates"}


def digest(made: Tables) -> str:
    """As the store has it, but for the column `seconds`."""
    parts = [[table, table_digest(to_table(table, rows))] for table, rows in sorted(made.items())]
    return sha256(canonical(parts)).hexdigest()[:16]


@pytest.mark.parametrize("stage", MADE)
def test_other_rows_of_the_same_input_come_with_another_version_of_the_code(stage: str, tmp_path: Path) -> None:
    assert PINNED.get((stage, VERSIONS[stage], CODE_VERSIONS[stage])) == digest(MADE[stage](tmp_path)), (
        f"stage {stage} makes other rows of the same input: raise its version in r3l/pipeline/stages/identity.py and "
        "pin the digest here"
    )


def test_the_fixed_inputs_have_rows_of_every_kind() -> None:
    assert {row.role for row in made_training_rows(Path())["training_rows"]} == {"explore", "reflect", "retry"}
    assert {credit.rule for credit in made_credit(Path())["credit"]} == {"top", "negative", "degenerate"}
    assert {credit.mask_turn for credit in made_credit(Path())["credit"]} == {0, 1, 2}
