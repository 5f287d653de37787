"""Rollouts that other packages wrote, read as runs: TRL's from files of TRL 1.16, verl's by its documented form."""

import json
from io import StringIO
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from r3l.audit.terminal import status
from r3l.errors import ConfigError, StoreError
from r3l.judge.verdict import judge
from r3l.pipeline.counterfactual import counterfactuals
from r3l.pipeline.export.policy import export_run
from r3l.pipeline.imports import config_of, import_run
from r3l.pipeline.policies import starting_policy
from r3l.pipeline.settings.continuing import load_config, save_config
from r3l.store.catalog import connect
from r3l.store.genealogy import why
from r3l.store.stage import Store
from tests.support.store_iteration import commit_iteration

ROOT = Path(__file__).parents[2]
TRL = (
    ROOT / "tests" / "golden" / "imports" / "trl"
)  # two steps of GRPOTrainer with log_completions, two reward functions
POLICY = str(ROOT / "data" / "policies" / "household-easy-0")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(str(tmp_path / "store"))


def asked(store: Store, sql: str) -> list[tuple]:
    with connect(store) as connection:
        return connection.execute(sql).fetchall()


def test_what_trl_wrote_is_there_and_its_advantages_are_those_of_its_rewards(store):
    assert import_run(store, "theirs", "trl", TRL) == {"iterations": 2, "attempts": 8, "credited": 8}
    rows = [row for file in sorted(TRL.rglob("*.parquet")) for row in pq.read_table(file).to_pylist()]
    ours = asked(
        store,
        "SELECT b.reward, c.advantage, c.group_mean, c.group_std, t.observation, t.response FROM base b "
        "JOIN credit c USING (run, iteration, trajectory_id) JOIN turns t USING (run, iteration, trajectory_id) "
        "ORDER BY b.iteration, b.attempt",
    )
    for row, (reward, advantage, mean, std, seen, reply) in zip(rows, ours, strict=True):
        assert (seen, reply) == (row["prompt"][0]["content"], row["completion"][0]["content"])
        assert reward == np.float32(row["length"] + row["ends"])
        assert advantage == row["advantage"]
        assert (reward - mean) / (std + 1e-4) == pytest.approx(row["advantage"], abs=2e-6)
    groups = np.float32([row[0] for row in ours]).reshape(2, 4)  # to the last bit, in TRL's own precision
    centred = groups - groups.mean(axis=1, keepdims=True)
    recomputed = centred / (groups.std(axis=1, ddof=1, keepdims=True) + np.float32(1e-4))
    assert recomputed.ravel().tolist() == [row["advantage"] for row in rows]


def test_what_is_not_told_is_empty_and_said(store):
    import_run(store, "theirs", "trl", TRL)
    assert asked(store, "SELECT DISTINCT len(response_ids), len(response_logprobs) FROM turns") == [(0, 0)]
    (reason,) = {reason for event, reason in asked(store, "SELECT event, reason FROM events") if event == "not_told"}
    assert "log-probabilities" in reason
    assert "no token ids" in reason


def test_it_is_sound_and_check_says_that_nothing_of_it_could_be_made_again(store):
    import_run(store, "theirs", "trl", TRL)
    verdict = judge(store, "theirs")
    assert verdict.findings == []
    assert "0 of 6 stages made again" in str(verdict)
    assert "its rows are trl's, whose settings are not told" in str(verdict)


def test_a_run_with_an_update_is_none_that_was_imported_whatever_its_settings_say(store):
    commit_iteration(store)
    save_config(store, config_of("demo", "trl", 2, 4), 0)
    assert any("can't be made again" in str(finding) for finding in judge(store, "demo").findings)


def test_it_is_not_gone_on_with(store):
    import_run(store, "theirs", "trl", TRL)
    with pytest.raises(ConfigError, match="run theirs was imported from trl, and nothing of it can be played"):
        starting_policy(load_config(store, "theirs", "", 1))


def test_credit_and_why_work_on_it(store):
    import_run(store, "theirs", "trl", TRL, POLICY)
    own, *others = counterfactuals(store, "theirs", "", 0)[0]
    assert own.mass.rows == 4
    assert {"grpo", "gigpo", "rloo"} <= {one.preset for one in others}
    told = str(why(store, "theirs", "iteration=0/task=0/base=1"))
    assert "positive: advantage +1.158" in told
    assert "None" not in told


def written(folder: Path, *lines: object) -> Path:
    (folder / "7.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_verl_rows_of_a_prompt_are_one_group_wherever_they_stand(store, tmp_path):
    rows = [
        {"input": prompt, "output": f"{prompt} {k}", "gts": "4", "score": score, "step": 7, "acc": True}
        for k, (prompt, score) in enumerate([("a", 1.0), ("b", 0.0), ("a", 0.0), ("b", 0.25)])
    ]
    counts = import_run(store, "theirs", "verl", written(tmp_path, *rows))
    assert counts == {"iterations": 1, "attempts": 4, "credited": 0}
    attempts = asked(store, "SELECT task, attempt, reward, success FROM base ORDER BY task, attempt")
    assert attempts == [(0, 0, 1.0, True), (0, 1, 0.0, False), (1, 0, 0.0, False), (1, 1, 0.25, False)]
    ((payload,),) = asked(store, "SELECT payload FROM tasks WHERE task = 1")
    assert json.loads(payload) == {"prompt": "b", "truth": "4"}


def test_a_conversation_with_tools_has_a_turn_for_each_reply(store, tmp_path):
    call = [{"function": {"name": "add", "arguments": "{}"}}]
    talk = [
        {"role": "assistant", "content": "let me see", "tool_calls": call},
        {"role": "tool", "content": "4", "tool_calls": None},
        {"role": "assistant", "content": "four", "tool_calls": None},
    ]
    prompt = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "2 + 2"}]
    table = {"step": [3], "prompt": [prompt], "completion": [talk], "good": [1.0], "odd": [float("nan")]}
    pq.write_table(pa.table(table), tmp_path / "completions_00003.parquet")
    import_run(store, "theirs", "trl", tmp_path)
    turns = asked(store, "SELECT observation, response FROM turns ORDER BY turn")
    assert [seen for seen, _ in turns] == ["system: be brief\n\nuser: 2 + 2", "4"]
    assert turns[0][1].startswith("let me see\n")
    assert "add" in turns[0][1]
    assert turns[1][1] == "four"
    assert asked(store, "SELECT reward FROM base") == [(1.0,)]


@pytest.mark.parametrize(("line", "message"), [
    ({"input": "a", "output": "b", "score": "high", "step": 1}, "line 1: score is 'high', expected a finite"),
    ({"input": "a", "output": "b", "score": 1e39, "step": 1}, "line 1: score is 1e[+]39, expected a finite number of"),
    ({"input": "a", "score": 1, "step": 1}, "line 1: expected an object with the texts input and output"),
])  # fmt: skip
def test_a_row_that_cant_be_read_is_named(store, tmp_path, line, message):
    with pytest.raises(StoreError, match=message):
        import_run(store, "theirs", "verl", written(tmp_path, line))
    assert store.runs() == []


def test_what_is_no_run_is_refused(store, tmp_path):
    with pytest.raises(ConfigError, match="expected one of trl, verl"):
        import_run(store, "theirs", "torch", tmp_path)
    with pytest.raises(StoreError, match="holds no rollouts of trl"):
        import_run(store, "theirs", "trl", tmp_path)
    commit_iteration(store)
    with pytest.raises(StoreError, match="demo exists in"):
        import_run(store, "demo", "trl", TRL)


def test_no_update_of_it_is_awaited_and_it_has_no_policy_to_export(store, tmp_path):
    import_run(store, "theirs", "trl", TRL)
    console = Console(width=160, record=True, file=StringIO())
    console.print(status(store, "theirs"))
    assert "iteration 1, imported, without an update" in console.export_text()
    with pytest.raises(ConfigError, match="no iteration of it has written a policy"):
        export_run(store, "theirs", tmp_path / "out")


def test_the_same_rows_are_imported_once_and_other_ones_under_no_name_that_is_there(store, tmp_path):
    counts, refs = import_run(store, "theirs", "trl", TRL), store.stages("theirs")
    assert (import_run(store, "theirs", "trl", TRL), store.stages("theirs")) == (counts, refs)
    rows = [{"input": "a", "output": str(step), "score": step, "step": step} for step in (0, 1)]
    for package, source, folder in [("verl", written(tmp_path, *rows), ""), ("trl", TRL, POLICY)]:
        with pytest.raises(StoreError, match="theirs exists"):
            import_run(store, "theirs", package, source, folder)
    assert store.stages("theirs") == refs


def test_an_import_that_was_cut_off_is_completed_by_the_next(store, monkeypatch):
    stages_left = [3]

    def commit(self: Store, *args: object, **kwargs: object) -> object:
        stages_left[0] -= 1
        if stages_left[0] < 0:
            raise KeyboardInterrupt
        return whole(self, *args, **kwargs)

    whole = Store.commit
    monkeypatch.setattr(Store, "commit", commit)
    with pytest.raises(KeyboardInterrupt):
        import_run(store, "theirs", "trl", TRL)
    cut_off = store.stages("theirs")
    monkeypatch.setattr(Store, "commit", whole)
    counts = import_run(store, "theirs", "trl", TRL)
    assert len(cut_off) == 3
    assert cut_off == store.stages("theirs")[:3]
    assert counts == import_run(Store.open(f"{store.root}-calm"), "theirs", "trl", TRL)
    assert judge(store, "theirs").findings == []
