"""What each method would have made of stored rollouts: numbers worked out by hand, and a stored iteration."""

import pytest
from rich.console import Console

from flows.cli.screen.figures import credit_table
from r3l.config.compose import compose
from r3l.config.methods.rivals import GRPOSettings
from r3l.errors import ConfigError, StoreError
from r3l.methods.mass import mass_of
from r3l.pipeline.counterfactual import counterfactuals
from r3l.pipeline.settings.continuing import save_config
from r3l.records import OraclePivot
from r3l.store.stage import Store
from tests.support.exploration_group import base, distilled, played, reflection, retry
from tests.support.rehearsal import rehearse
from tests.support.store_iteration import commit_iteration


def test_grpo_spreads_its_mass_over_all_turns_and_r3l_behind_the_pivot():
    """A base of two replies (2 and 3 tokens) that failed, its retry from turn 1 that won: advantages -0.7071, 0.7071
    before amplification (mean 1/2, deviation sqrt(1/2))."""
    first, second = ([1], [11, 12]), ([2], [13, 14, 15])
    won = ([2], [23, 24, 25])
    episodes = [
        played(base(0), first, second),
        played(retry(0, pivot=1, reward=1.0), won, first=1),
        played(distilled(0, pivot=1, reward=1.0), first, won),
    ]
    faults = {base(0).trajectory_id: 1}
    plain = mass_of(GRPOSettings(), episodes, [], faults)
    share = 0.5**0.5 / (5 * 2)  # A / (|tau| G), per token
    assert (plain.before, plain.after) == pytest.approx((2 * share, 3 * share), rel=1e-5)
    assert (plain.raised, plain.lowered) == pytest.approx((5 * share, 5 * share), rel=1e-5)
    assert plain.share_before == pytest.approx(0.4)
    ours = mass_of(compose(method="paper").method, episodes, [reflection(0, pivot=1)], faults)
    assert (ours.before, ours.after) == pytest.approx((0.0, 3 * share), rel=1e-5)
    # the stitched suffix has alpha = 3; the lessons, a reflection and its retry, weigh as rows of advantage 1: 1 / G
    # each
    assert ours.lessons == pytest.approx(2 * 1 / 2)
    assert ours.raised == pytest.approx(3 * 3 / (5 * 2) + ours.lessons)
    assert {(one.role, one.turn) for one in ours.turns} == {("explore", 1), ("reflect", 0), ("retry", 0)}


@pytest.fixture
def stored(tmp_path):
    config = compose(run="demo", store={"root": str(tmp_path)}, rollout={"group_size": 4})
    tables, _ = rehearse(config.method)
    failed = [one for one in tables["base"]["trajectories"] if not one.success]
    tables["oracle_pivots"] = {
        "oracle_pivots": [OraclePivot(one.trajectory_id, 0, one.task, one.group_id, 1, "lost") for one in failed]
    }
    store = Store.open(str(tmp_path))
    save_config(store, config, 0)
    commit_iteration(store, tables=tables)
    return store, tables


def test_every_method_with_the_same_plan_is_compared(stored):
    store, tables = stored
    made, others = counterfactuals(store, "demo", "", 0)
    shown = {one.preset: one.mass for one in made}
    assert {"this run", "paper", "r3l_without_positive", "r3l_without_credit", "released"} <= set(shown)
    assert {"grpo", "raft", "reflect_grpo", "critique_grpo"} <= set(others)
    assert shown["this run"] == shown["paper"]
    rows = tables["training_rows"]["training_rows"]
    assert shown["paper"].rows == len(rows)
    stored_mass = sum(abs(row.coefficient * row.advantage) * sum(row.weights) for row in rows) / 2  # two groups
    assert shown["paper"].raised + shown["paper"].lowered == pytest.approx(stored_mass, rel=1e-6)
    assert shown["r3l_without_credit"].before > shown["paper"].before


def test_the_table_names_the_run_and_says_what_is_not_known(stored):
    store, _ = stored
    made, _ = counterfactuals(store, "demo", "", 0, ["released"])
    console = Console(width=120, record=True)
    console.print(credit_table(made, "demo, iteration 0"))
    text = console.export_text()
    assert "this run" in text
    assert "released" in text
    assert "r3l_without_credit" not in text


def test_an_unknown_preset_and_an_iteration_without_bases_are_refused(stored):
    store, _ = stored
    with pytest.raises(ConfigError, match="nosuch"):
        counterfactuals(store, "demo", "", 0, ["nosuch"])
    config = compose(run="demo", store={"root": store.root})
    save_config(store, config, 7)
    with pytest.raises(StoreError, match="no base trajectories"):
        counterfactuals(store, "demo", "", 7)
