"""Methods through the flow: its stages and the real update on a scripted policy, and (slow) everything on the embedded
one."""

import shutil
from pathlib import Path

import pytest

from flows import iterate
from flows.replay import replay
from r3l.config import preset_names
from r3l.errors import ConfigError, StoreError
from r3l.pipeline import policies
from r3l.pipeline.settings.continuing import load_config
from r3l.store.check import check_run
from r3l.store.policies.snapshots import optimiser_digest
from r3l.store.stage import Store
from tests.flows.corridor import corridor, iteration, two_tasks
from tests.flows.small import small_config
from tests.support.answers import ask

__all__ = ["corridor"]


def test_beyond_s_1_the_ratio_leaves_1_and_groups_are_learned_again(corridor, tmp_path):
    store = Store.open(str(tmp_path / "store"))
    stale = ("training.sync_interval=2", "training.learning_rate=0.01", "method.kl_coefficient=0")
    config = two_tasks(store, tmp_path, *stale, method="grpo")
    found = [iteration(config, store, number) for number in range(3)]
    assert found[0].behaviour == found[1].behaviour == found[0].start
    assert found[1].learner != found[1].behaviour
    assert found[2].learner == found[2].behaviour
    updates = ask(store, "SELECT ratio_mean, scoring_passes, rows, groups FROM updates ORDER BY iteration")
    assert updates[0] == {"ratio_mean": 1.0, "scoring_passes": 0, "rows": 4, "groups": 2}
    assert updates[1]["ratio_mean"] != 1.0 != updates[2]["ratio_mean"]
    # the group of task 0 has rows in each iteration (task 1 fails alike): 4 fresh ones, and 4 of each group drawn again
    assert ask(store, "SELECT iteration, source_iteration, age, uses, rows FROM replay ORDER BY ALL") == [
        {"iteration": 1, "source_iteration": 0, "age": 1, "uses": 2, "rows": 4},
        {"iteration": 2, "source_iteration": 0, "age": 2, "uses": 3, "rows": 4},
        {"iteration": 2, "source_iteration": 1, "age": 1, "uses": 2, "rows": 4},
    ]
    assert [(one["rows"], one["groups"]) for one in updates] == [(4, 2), (8, 3), (12, 4)]
    assert updates[2]["scoring_passes"] == 2  # the policy that sampled the replayed rows, and the one that is trained
    assert check_run(store, "demo") == []


def test_a_branch_goes_on_as_a_line_of_its_own(corridor, tmp_path):
    """Forked from credit with another alpha, it trains a policy of its own and samples with it; the run stays as it
    was."""
    store = Store.open(str(tmp_path / "store"))
    config = two_tasks(store, tmp_path, "training.learning_rate=0.01")
    iteration(config, store, 0)
    before = ask(store, "SELECT stage, shard, digest, committed_at FROM stages ORDER BY ALL")
    for _ in range(2):  # the same replay again is the same branch
        replay.fn("demo", 0, from_stage="credit", assignments=["method.alpha=5"], branch="alpha5", store=store.root)
    with pytest.raises(ConfigError, match=r"is there.* with other settings \(method\.alpha: 5\.0 → 3\.0\)"):
        replay.fn("demo", 0, from_stage="credit", branch="alpha5", store=store.root)
    with pytest.raises(ConfigError, match=r"branch alpha5: iteration 0 had method\.alpha=5\.0, now 3\.0"):
        iteration(config.model_copy(update={"branch": "alpha5"}), store, 1)
    forked = load_config(store, "demo", "alpha5", 0)
    assert (store.next_iteration("demo", "alpha5"), store.next_iteration("demo")) == (1, 1)
    found = iteration(forked, store, 1)
    with pytest.raises(ConfigError, match="has come to iteration 1; name a new branch"):
        replay.fn("demo", 0, from_stage="credit", assignments=["method.alpha=5"], branch="alpha5", store=store.root)
    policies_of = {
        row["branch"]: row["policy"]
        for row in ask(store, "SELECT branch, policy FROM lines.updates WHERE iteration = 0")
    }
    assert found.learner.digest == policies_of["alpha5"] != policies_of[""]
    sampled = ask(store, "SELECT DISTINCT branch, policy FROM lines.base WHERE iteration = 1 AND branch = 'alpha5'")
    assert sampled == [{"branch": "alpha5", "policy": policies_of["alpha5"]}]
    assert ask(store, "SELECT stage, shard, digest, committed_at FROM stages WHERE branch = '' ORDER BY ALL") == before
    assert check_run(store, "demo") == []


def test_a_policy_that_was_lost_or_changed_stops_the_next_iteration_and_is_trained_again(corridor, tmp_path):
    store = Store.open(str(tmp_path / "store"))
    config = two_tasks(store, tmp_path)
    iteration(config, store, 0)
    place = "demo/policies/iteration=00000/policy"
    weights = Path(store.root, place, "model.safetensors")
    written = weights.read_bytes()
    others = "SELECT stage, shard, digest, committed_at FROM stages WHERE stage <> 'updates' ORDER BY ALL"
    before = ask(store, others)
    for spoil in (lambda: weights.write_bytes(written[:-1] + b"x"), lambda: shutil.rmtree(weights.parent)):
        spoil()
        assert [(finding.check, finding.place) for finding in check_run(store, "demo")] == [("policies", place)]
        with pytest.raises(StoreError, match=rf"policy {place} in .*only its update is computed again"):
            policies.find(config, store, 1)
        iteration(config, store, 0)
        assert weights.read_bytes() == written
    assert ask(store, others) == before
    assert check_run(store, "demo") == []


def flipped(path: Path) -> None:
    """One bit of the file's last byte."""
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def test_an_optimiser_state_that_was_lost_or_changed_stops_the_next_iteration_and_is_made_again(corridor, tmp_path):
    store = Store.open(str(tmp_path / "store"))
    config = two_tasks(store, tmp_path)
    iteration(config, store, 0)
    place = "demo/policies/iteration=00000/optimizer"
    folder = Path(store.root, place)
    whole = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert set(whole) == {"optimizer.safetensors", "optimizer.json"}
    assert ask(store, "SELECT optimiser FROM updates") == [{"optimiser": optimiser_digest(folder)}]
    said = rf"optimiser's state {place} in .*: holds .*only its update is computed again"
    for spoil in (
        lambda: flipped(folder / "optimizer.safetensors"),
        lambda: flipped(folder / "optimizer.json"),
        (folder / "optimizer.safetensors").unlink,
        lambda: shutil.rmtree(folder),
    ):
        spoil()
        assert [(finding.check, finding.place) for finding in check_run(store, "demo")] == [("policies", place)]
        with pytest.raises(StoreError, match=said):
            iteration(config, store, 1)
        assert {ref.iteration for ref in store.stages("demo")} == {0}  # nothing was sampled for it
        policies.find(config, store, 1)  # an evaluation needs no optimiser
        iteration(config, store, 0)
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == whole
        assert check_run(store, "demo") == []
    iteration(config, store, 1)
    assert ask(store, "SELECT count(*) AS n FROM updates") == [{"n": 2}]


# Four tasks, N = 4: bases, and retries at most. DAPO may sample up to three times as many tasks again.
EXPECTED = {
    **dict.fromkeys(
        ("paper", "released", "r3l_small_steps", "r3l_held", "r3l_without_positive", "r3l_without_credit"), (8, 8)
    ),
    **dict.fromkeys(("reflect_grpo", "agent_rlvr", "reflect_retry_reward", "rltf_sd", "serl", "erl"), (8, 8)),
    **dict.fromkeys(("critique_grpo", "critique_grpo_as_paper", "reflect_grpo_as_paper"), (16, 16)),
    "hint": (16, 16),
}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("methods")


@pytest.mark.slow
@pytest.mark.usefixtures("prefect_server")
@pytest.mark.skipif(
    not Path("data/policies/embedded/model.safetensors").is_file(), reason="no embedded policy: run r3l warm-start"
)
@pytest.mark.parametrize("preset", preset_names("methods"))
def test_every_method_goes_through_an_iteration_on_the_embedded_policy(preset, root):
    config = small_config(root, "rollout.tasks=4", method=preset).model_copy(update={"run": preset})
    summary = iterate.iterate(config)
    store = Store.open(str(root))
    assert check_run(store, preset) == []
    counts = {
        row["kind"]: row["n"]
        for row in ask(store, f"SELECT kind, count(*) AS n FROM trajectories WHERE run = '{preset}' GROUP BY kind")
    }
    (drawn,) = ask(store, f"SELECT count(*) AS tasks FROM tasks WHERE run = '{preset}'")
    assert drawn["tasks"] == 4
    bases, retries = EXPECTED.get(preset, (16, 0))
    assert counts["base"] == bases
    assert counts.get("retry", 0) <= retries
    assert summary["groups"] == 4
