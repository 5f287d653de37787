"""The worked questions of data/queries run, say what they ask, and answer; the credit macros are the Python's
credit."""

from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from r3l.config.methods import R3LSettings
from r3l.config.methods.rivals import GRPOSettings
from r3l.methods import credit_stage
from r3l.records import Trajectory
from r3l.store.catalog import connect
from r3l.store.stage import Store
from tests.support.store_iteration import commit_iteration, commit_stage, iteration_tables, trajectory

FOLDER = Path(__file__).parents[2] / "data" / "queries"
QUERIES = sorted(path.name for path in FOLDER.glob("*.sql"))
# A run of training iterations has no evaluation, and this one no branch.
EMPTY = {"17_evaluations.sql", "19_branches.sql"}


@pytest.fixture(scope="module")
def connection(tmp_path_factory) -> duckdb.DuckDBPyConnection:
    store = Store.open(str(tmp_path_factory.mktemp("store")))
    commit_iteration(store)
    commit_iteration(store, iteration=1)
    return connect(store)


@pytest.mark.parametrize("name", QUERIES)
def test_a_question_is_stated_and_answered(name: str, connection):
    sql = (FOLDER / name).read_text()
    assert sql.startswith("-- ")
    assert "?" in sql.split("\n", 1)[0]
    assert bool(connection.execute(sql).fetchall()) == (name not in EMPTY)


def answer(connection, name: str) -> list[dict[str, Any]]:
    return connection.sql((FOLDER / name).read_text()).to_arrow_table().to_pylist()


def test_worked_questions_agree_with_counts_by_hand(connection):
    """Per iteration: retries at pivot 1 (won, +1) and 2 (lost, 0); 4 reflections; one of two groups mixed."""
    pivots = answer(connection, "02_pivots_that_paid_off.sql")
    figures = [(row["pivot_turn"], row["retries"], row["improved"], row["mean_gain"]) for row in pivots]
    assert figures == [(1, 2, 1.0, 1.0), (2, 2, 0.0, 0.0)]
    worth = {(row["status"], row["outcome"]): row for row in answer(connection, "03_reflections_and_their_worth.sql")}
    failure = worth["parsed", "failure"]
    assert (failure["reflections"], failure["base_won"], failure["retried"], failure["retry_improved"]) == (
        4,
        0.0,
        4,
        0.5,
    )
    mixed = [(row["groups"], row["mixed_by_bases"], row["mixed"]) for row in answer(connection, "05_mixed_groups.sql")]
    assert mixed == [(2, 1, 1), (2, 1, 1)]
    tokens = {
        row["role"]: (row["rows"], row["tokens"], row["with_weight"])
        for row in answer(connection, "11_tokens_with_weight.sql")
    }
    assert tokens == {"explore": (6, 90, 28), "reflect": (2, 10, 4), "retry": (2, 34, 8)}


def test_a_branch_is_compared_with_its_run(tmp_path):
    store = Store.open(str(tmp_path))
    commit_iteration(store)
    commit_stage(store, "credit", iteration_tables(0)["credit"], [], "demo", 0, branch="same")
    (row,) = answer(connect(store), "19_branches.sql")
    assert (row["branch"], row["members"], row["changed"]) == ("same", 6, 0)


def group(rng: np.random.Generator, task: int) -> list[Trajectory]:
    """A random group: 1 to 4 bases, some of them with a distilled trajectory; rewards binary, partial or all equal."""
    rewards = {0: [0.0, 1.0], 1: [0.0, 0.25, 0.5, 1.0], 2: [1.0], 3: [0.0]}[int(rng.integers(4))]
    members = []
    for attempt in range(int(rng.integers(1, 5))):
        base = f"iteration=0/task={task}/base={attempt}"
        members.append(trajectory(base, "base", 0, task, attempt, float(rng.choice(rewards)), 6))
        if rng.random() < 0.7:
            pivot = int(rng.integers(3))
            links = {"base_id": base, "parent_id": base, "pivot_turn": pivot, "shared_turns": pivot}
            members.append(
                trajectory(f"{base}/distilled=0", "distilled", 0, task, attempt, float(rng.choice(rewards)), 6, **links)
            )
    return members


SETTINGS = [
    ("credit_paper(3.0)", "both", R3LSettings()),
    ("credit_paper(1.0)", "both", R3LSettings(alpha=1.0)),
    (
        "credit_released()",
        "retry_only",
        R3LSettings(scale="none", top_rule="success", top_value=1.0, pivot_mask="retry_only"),
    ),
    ("credit_as(alpha := 5.0, top_value := 2.0)", "off", R3LSettings(alpha=5.0, top_value=2.0, pivot_mask="off")),
    ("credit_as(scale := 'none', top_rule := 'none')", "both", R3LSettings(scale="none", top_rule="none")),
    ("credit_grpo()", "off", GRPOSettings()),
]


@pytest.fixture(scope="module")
def credited(tmp_path_factory):
    """(the members of 60 random groups, a connection to a store of them and of the paper's credit)."""
    rng = np.random.default_rng(7)
    members = [member for task in range(60) for member in group(rng, task)]
    store = Store.open(str(tmp_path_factory.mktemp("credited")))
    for stage in ("base", "distilled"):
        of_kind = [member for member in members if member.kind == stage]
        commit_stage(store, stage, {"trajectories": of_kind}, [], "demo", 0)
    credits, _ = credit_stage(R3LSettings(), members)
    commit_stage(store, "credit", {"credit": credits}, [], "demo", 0)
    with connect(store) as connection:
        yield members, connection


@pytest.mark.parametrize(("macro", "mask", "settings"), SETTINGS, ids=[macro for macro, _, _ in SETTINGS])
def test_the_macros_are_the_python(macro: str, mask: str, settings, credited):
    members, connection = credited
    expected, _ = credit_stage(settings, members)
    assert len(expected) == len(members)
    advantages = dict(connection.execute(f"SELECT trajectory_id, advantage FROM {macro}").fetchall())
    masks = dict(connection.execute(f"SELECT trajectory_id, mask_turn FROM mask_turns('{mask}')").fetchall())
    assert advantages == pytest.approx({credit.trajectory_id: credit.advantage for credit in expected}, abs=1e-12)
    assert masks == {credit.trajectory_id: credit.mask_turn for credit in expected}
    assert len({round(value, 6) for value in advantages.values()}) > 3
