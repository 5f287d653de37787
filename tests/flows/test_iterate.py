"""Real iterations: Prefect, the ALFWorld engine, the embedded policy, the update in its own process, tables."""

import json

import pytest

import r3l
from r3l.errors import ConfigError
from r3l.store.check import check_run
from r3l.store.stage import Store
from tests.flows.small import small_config
from tests.support.answers import ask

pytestmark = pytest.mark.usefixtures("prefect_server")


@pytest.fixture(scope="module")
def run(tmp_path_factory, prefect_server):
    """Two iterations of one run, the second one's update in its own process: (store, summaries)."""
    from flows.iterate import iterate

    root = tmp_path_factory.mktemp("store")
    one_worker = small_config(root, "environment.workers=1")
    update_here = small_config(root, "environment.workers=1", "training.processes=0")
    return Store.open(str(root)), [iterate(update_here), iterate(one_worker)]


def test_the_second_run_takes_the_next_iteration_and_the_policy_that_the_first_wrote(run):
    store, summaries = run
    assert [summary["iteration"] for summary in summaries] == [0, 1]
    first, second = ask(store, "SELECT policy, parent_policy, path FROM updates ORDER BY iteration")
    assert second["parent_policy"] == first["policy"]
    assert (store.run_folder("small") / second["path"] / "model.safetensors").is_file()
    sampled = ask(store, "SELECT DISTINCT iteration, policy FROM trajectories ORDER BY iteration")
    assert [row["policy"] for row in sampled] == [first["parent_policy"], first["policy"]]


def test_the_engine_ran_what_the_trainer_wrote(run):
    store, _ = run
    errors = ask(store, "SELECT canary_error FROM updates ORDER BY iteration")
    assert errors[0]["canary_error"] != errors[0]["canary_error"]  # NaN: nothing trained yet
    assert 0 <= errors[1]["canary_error"] < 2e-3
    canaries = ask(store, "SELECT iteration, subject_id, reason FROM events WHERE event = 'canary' ORDER BY iteration")
    updates = ask(store, "SELECT parent_policy FROM updates ORDER BY iteration")
    assert [row["subject_id"] for row in canaries] == [row["parent_policy"] for row in updates]
    assert canaries[0]["reason"].startswith("not compared")
    assert "differ by" in canaries[1]["reason"]


def test_every_stage_is_there_and_the_store_checks_out(run):
    store, _ = run
    stages = {
        row["stage"]: row["shards"]
        for row in ask(store, "SELECT stage, count(*) AS shards FROM stages WHERE iteration = 0 GROUP BY stage")
    }
    assert stages == dict.fromkeys(
        ("base", "oracle_pivots", "reflections", "retries", "distilled", "credit", "training_rows"), 2
    ) | {"tasks": 1, "updates": 1}
    assert check_run(store, "small") == []


def test_n_over_2_bases_a_task_and_a_reflection_on_each(run):
    store, _ = run
    assert ask(store, "SELECT count(*) AS n FROM base") == [{"n": 8}]
    [reflected] = ask(store, "SELECT count(*) AS n, count(*) FILTER (decision = 'retry') AS asked FROM reflections")
    assert reflected["n"] == 8
    assert ask(store, "SELECT count(*) AS n FROM retries") == [{"n": reflected["asked"]}]


def test_every_failed_base_has_an_oracle_pivot_and_every_readable_reflection_on_one_a_diagnosis(run):
    store, _ = run
    [bases] = ask(
        store,
        "SELECT count(*) FILTER (NOT success) AS failed, count(o.pivot_turn) AS judged FROM base b "
        "LEFT JOIN lines.oracle_pivots o USING (run, branch, iteration, trajectory_id)",
    )
    assert bases["judged"] == bases["failed"]
    [read] = ask(
        store,
        "SELECT count(*) AS n FROM reflections f JOIN base b USING (run, branch, iteration, base_id) "
        "WHERE f.status = 'parsed' AND NOT b.success",
    )
    assert ask(store, "SELECT coalesce(sum(reflections), 0)::INTEGER AS n FROM pivot_accuracy") == [{"n": read["n"]}]


def test_the_turns_of_a_base_are_the_prompts_that_were_sampled_from(run):
    """The ids of a trajectory, decoded, are the chat template's own rendering of its messages."""
    from r3l.engines.chat_format import ChatFormat

    store, _ = run
    chat = ChatFormat.load("data/policies/embedded")
    turns = ask(
        store, "SELECT * FROM turns WHERE trajectory_id = 'iteration=0/task=0/base=0' AND iteration = 0 ORDER BY turn"
    )
    ids = [token for turn in turns for token in (*turn["context_ids"], *turn["response_ids"])]
    from r3l.environments.replies import prompt_text

    messages = [{"role": "system", "content": prompt_text("alfworld")}]
    for turn in turns:
        messages += [
            {"role": "user", "content": turn["observation"]},
            {"role": "assistant", "content": turn["response"]},
        ]
    assert chat.tokenizer.decode(ids) == chat.tokenizer.apply_chat_template(messages, tokenize=False)


def test_the_same_iteration_again_makes_no_engine_call_and_no_update(run, monkeypatch):
    from flows.iterate import iterate
    from r3l.pipeline import workbench

    store, summaries = run

    def forbidden(self):
        raise AssertionError("an engine was started")

    monkeypatch.setattr(workbench.Workbench, "_start", forbidden)
    monkeypatch.setattr("r3l.pipeline.update.local.launch", forbidden)
    before = ask(store, "SELECT stage, shard, digest, committed_at FROM stages WHERE iteration = 0 ORDER BY ALL")
    summary = iterate(small_config(store.root, iteration=0))
    assert (
        ask(store, "SELECT stage, shard, digest, committed_at FROM stages WHERE iteration = 0 ORDER BY ALL") == before
    )
    assert summary["loss"] == summaries[0]["loss"] or summary["loss"] != summary["loss"]


def test_replay_without_a_change_gives_equal_digests_and_no_engine(run, monkeypatch):
    from flows.replay import replay
    from r3l.pipeline import workbench

    store, _ = run
    monkeypatch.setattr(workbench.Workbench, "_start", lambda self: pytest.fail("an engine was started"))
    result = replay("small", 0, from_stage="distilled", to_stage="training_rows", branch="same", store=store.root)
    replayed = [row for row in result["stages"] if row["replayed"]]
    assert {row["stage"] for row in replayed} == {"distilled", "credit", "training_rows"}
    assert all(row["same_settings"] and row["same_rows"] for row in replayed)


def test_another_alpha_changes_the_advantages_of_the_branch_alone(run):
    from flows.replay import replay

    store, _ = run
    before = ask(store, "SELECT digest FROM stages WHERE branch = '' ORDER BY ALL")
    replay(
        "small", 0, from_stage="credit", to_stage="credit", assignments=["method.alpha=5"], branch="alpha5",
        store=store.root,
    )  # fmt: skip
    assert ask(store, "SELECT digest FROM stages WHERE branch = '' ORDER BY ALL") == before
    rows = ask(
        store,
        "SELECT a.advantage AS alpha3, b.advantage AS alpha5 FROM lines.credit a JOIN lines.credit b "
        "USING (iteration, trajectory_id) WHERE a.branch = '' AND b.branch = 'alpha5' AND a.advantage > 0",
    )
    assert rows
    assert all(row["alpha5"] == pytest.approx(row["alpha3"] * 5 / 3) for row in rows)


def test_the_artifacts_of_an_iteration(run):
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey

    ours = ArtifactFilter(key=ArtifactFilterKey(like_="r3l-small"))
    with get_client(sync_client=True) as client:
        found = client.read_artifacts(artifact_filter=ours)
    keys = {artifact.key for artifact in found}
    assert keys == {"r3l-small-iteration", "r3l-small-figures"}
    page = next(artifact.data for artifact in found if artifact.key == "r3l-small-iteration")
    assert "| base reward |" in page
    table = next(artifact.data for artifact in found if artifact.key == "r3l-small-figures")
    assert {"figure", "value"} == set(json.loads(table)[0])


def test_more_tasks_than_exist_are_refused_before_anything_is_written(tmp_path):
    from flows.iterate import iterate

    with pytest.raises(ConfigError, match="has only"):
        iterate(small_config(tmp_path / "new", "rollout.tasks=5000"))
    assert not (tmp_path / "new" / "small").exists()


@pytest.mark.slow
def test_training_from_python_is_flow_runs_where_prefect_is_asked_for(tmp_path):
    from prefect.client.orchestration import get_client

    settings = {
        **{"store.root": str(tmp_path), "rollout.tasks": 2, "rollout.group_size": 2, "environment.workers": 1},
        **{"environment.level": "easy", "environment.max_turns": 4, "evaluation.tasks": 2, "evaluation.every": 2},
    }
    config = r3l.compose(run="python", environment="household", policy="household", settings=settings)
    heard = []
    done = r3l.train(config, 2, on_iteration=lambda figures: heard.append(figures["iteration"]), prefect=True)
    assert heard == [0, 1] == [figures["iteration"] for figures in done]
    assert ["evaluation" in figures for figures in done] == [False, True]
    assert done[1]["evaluation"]["episodes"] == 2
    with get_client(sync_client=True) as client:
        runs = [run for run in client.read_flow_runs() if "python" in run.name]
    assert sorted(run.name for run in runs) == ["evaluate python", "python iteration=0", "python iteration=1"]
    assert {run.state_name for run in runs} == {"Completed"}
