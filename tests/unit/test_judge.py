"""A stored run is made again from what was sampled, and what does not follow is named: row, column, both values."""

import math
import shutil
from pathlib import Path

import pytest

from r3l.engines.base import Sampling
from r3l.errors import EngineError
from r3l.judge.bench import chat_of
from r3l.judge.compare import difference, settings_differences
from r3l.judge.guidance import guidance_left
from r3l.judge.identity import find_misnamed
from r3l.judge.lines import Lines
from r3l.judge.recorded import Recorded
from r3l.judge.scored import replies_scored
from r3l.judge.verdict import judge
from r3l.pipeline.iteration import iterate_directly
from r3l.pipeline.tools import Tools
from r3l.records import Credit
from r3l.store.space.retention import prune_run
from r3l.store.stage import Store
from r3l.store.tables.parts import to_table
from tests.support import records
from tests.support.forgery import Forgery
from tests.support.healthy_run import RUN, healthy_run, settings
from tests.support.lies import LIES, OTHER, Lie, settings_of_credit
from tests.support.store_iteration import commit_iteration, commit_stage, iteration_tables

SHIPPED = Path(__file__).parents[2] / "data" / "sample_run"
GOLDEN = Path(__file__).parents[1] / "golden"
COLUMNS = ["trajectory_id", "advantage", "turn_advantages"]


def credit(advantage: float, turns: list[float] | None = None) -> Credit:
    return Credit("a", "g", 0, 0, "base", 1.0, 2, 0.5, 0.7, 0.7, advantage, "top", 0, 0.0, turns)


@pytest.mark.parametrize(("stored", "made", "what"), [
    ([credit(1.0)], [credit(1.0)], ""),
    ([credit(math.nan)], [credit(math.nan)], ""),
    ([credit(1.0)], [credit(1.0 + 1e-13)], ""),  # another processor's rounding
    ([credit(1.0)], [credit(-1.0)], 'credit: row 0 ("a"): advantage is 1.0, computed: -1.0'),
    ([credit(math.nan)], [credit(0.0)], 'credit: row 0 ("a"): advantage is NaN, computed: 0.0'),
    ([credit(1, [1.0, 2])], [credit(1, [1.0, 3])], 'row 0 ("a"): turn_advantages is 2.0 at 1, computed: 3.0'),
    ([credit(1, [1.0])], [credit(1)], 'row 0 ("a"): turn_advantages is [1.0], computed: null'),
    ([credit(1.0)] * 2, [credit(1.0)], '2 rows are stored, 1 follow from its parents: "a" is stored 2 times'),
])  # fmt: skip
def test_the_first_difference_is_shown_with_both_values(stored, made, what):
    said = difference("credit", to_table("credit", stored), to_table("credit", made), COLUMNS)
    assert what in said if what else said == ""


def test_settings_that_came_later_are_no_difference():
    stored = {"method": {"alpha": 3.0, "old": 1}, "seed": 0}
    made = {"method": {"alpha": 5.0, "new": True}, "seed": 0}
    assert [name for name, _ in settings_differences(stored, made)] == ["method.alpha", "method.old"]
    assert list(settings_differences({"environment": {"server_goals": 9}}, {"environment": {}})) == []


def test_a_recorded_engine_answers_what_is_stored_and_ends_as_it_did():
    engine, asked = Recorded(100), Sampling(1.0, 8, 0, ())
    turn = records.turn("a", 0, reply=[5, 6], response_logprobs=[-1.0, -2.0])
    ended = records.trajectory("base", 0, trajectory_id="a", status="context_limit", reason="no room within 64 tokens")
    engine.add_attempts([ended], [turn])
    assert engine.complete("a/turn=0", [1], asked).result().token_ids == [5, 6]
    assert engine.complete("a/turn=1", [1], asked).result().finish_reason == "context"
    assert engine.context_limit == 64
    with pytest.raises(EngineError, match="no reply to this request is stored"):
        engine.complete("b/turn=0", [1], asked).result()


def named(store: Store, run: str) -> list[str]:
    lines = Lines(store, run)
    return [what for place in lines.places() for _, what in find_misnamed(lines, place)]


def test_a_manifest_bears_the_fingerprint_of_its_own_settings(tmp_path):
    assert named(Store.open(str(SHIPPED), reading=True), "sample") == []
    forged = Forgery.copy(SHIPPED, "sample", tmp_path)
    settings_of_credit(forged)
    forged.write()
    assert set(named(forged.store, "sample")) == {"its fingerprint is not that of its settings, parents and policy"}


@pytest.mark.parametrize(("store", "run"), [("store_v1", "demo"), ("store_evaluation_v3", "sample")])
def test_stores_of_older_versions_are_sound_and_say_what_was_not_made_again(store, run):
    verdict = judge(Store.open(str(GOLDEN / store), reading=True), run)
    assert verdict.sound, verdict.findings
    assert "not made again" in str(verdict)


@pytest.mark.slow
def test_the_run_that_ships_is_sound():
    verdict = judge(Store.open(str(SHIPPED), reading=True), "sample")
    assert verdict.findings == []
    assert set(verdict.passed_over.values()) <= {"made under other code than the present"}


def under_way(source: Path, folder: Path, *stages: str) -> Store:
    """Copy the first iteration as far as these stages."""
    for name in ("config.json", *stages):
        copy = shutil.copytree if name in stages else shutil.copyfile
        (folder / "iteration=00000").mkdir(parents=True, exist_ok=True)
        copy(source / "iteration=00000" / name, folder / "iteration=00000" / name)
    return Store.open(str(folder.parent), reading=True)


def test_stages_that_an_iteration_has_not_come_to_are_not_made_again(tmp_path):
    verdict = judge(under_way(SHIPPED / "sample", tmp_path / "sample", "tasks"), "sample")
    assert (verdict.findings, verdict.passed_over) == ([], {})
    assert str(verdict).startswith("1 of 1 stages made again")


@pytest.fixture(scope="module")
def healthy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("healthy")
    tools = Tools()
    yield healthy_run(folder / "store"), tools
    tools.close()


@pytest.mark.slow
def test_a_healthy_run_is_sound(healthy):
    store, tools = healthy
    verdict = judge(Store.open(str(store), reading=True), RUN, tools=tools)
    assert (verdict.findings, verdict.passed_over) == ([], {})


@pytest.mark.slow
@pytest.mark.parametrize("last", [1, 2, 3])
def test_an_iteration_that_is_at_work_or_was_killed_is_sound(healthy, last, tmp_path):
    store, tools = healthy
    stages = ("tasks", "base", "reflections")[:last]
    assert judge(under_way(store / RUN, tmp_path / RUN, *stages), RUN, tools=tools).findings == []


@pytest.mark.slow
def test_a_healthy_run_is_sound_whose_first_iteration_was_pruned(healthy, tmp_path):
    """The update of the second goes on from the policy and the optimiser's state of the first."""
    folder, tools = healthy
    store = Store.open(str(shutil.copytree(folder, tmp_path / "store")))
    prune_run(store, RUN, keep_last=1, drop="tokens")
    verdict = judge(store, RUN, tools=tools)
    assert (verdict.findings, set(verdict.passed_over.values())) == ([], {"their iteration was pruned"})
    assert "not made again: their iteration was pruned" in str(verdict)


def test_pruned_is_what_was_emptied_and_what_took_it_over_not_all_of_its_number(tmp_path):
    store = Store.open(str(tmp_path))
    _, refs, _ = [commit_iteration(store, iteration=iteration) for iteration in range(3)]
    commit_iteration(store, iteration=1, branch="fork")
    credit = iteration_tables(1)["credit"]
    commit_stage(store, "credit", credit, [refs["distilled"]], "demo", 1, branch="credited_again")
    prune_run(store, "demo", keep_last=1, drop="tokens")
    pruned, whole = (
        [(one.branch, one.iteration) for one in Lines(store, "demo").places(emptied)] for emptied in (True, False)
    )
    assert (pruned, whole) == ([("", 0), ("", 1), ("credited_again", 1)], [("", 2), ("fork", 1)])


@pytest.mark.slow
def test_of_a_pruned_iteration_only_what_took_its_rows_over_is_left_unmade(healthy, tmp_path):
    """The fork and `replay-1` sampled their own rows under its number, `replay-2` was credited on the pruned ones."""
    folder, tools = healthy
    store = Store.open(str(shutil.copytree(folder, tmp_path / "store")))
    smaller = ("rollout.tasks=2", "rollout.tasks_per_shard=2")
    iterate_directly(settings(folder, "paper", f"store.root={store.root}", *smaller), store, tools)
    prune_run(store, RUN, keep_last=1, drop="tokens")
    verdict = judge(store, RUN, tools=tools)
    lines = {place.partition("iteration=")[0] for place in verdict.passed_over}
    assert (verdict.findings, lines) == ([], {f"{RUN}/", f"{RUN}/branch=replay-2/"})


@pytest.mark.slow
def test_the_lineage_of_policies_is_judged_where_columns_were_pruned(healthy, tmp_path):
    folder, tools = healthy
    forged = Forgery.copy(folder, RUN, tmp_path / "store")
    for row in forged.rows("updates", "updates", 0):
        row["parent_policy"] = OTHER
    forged.write()
    prune_run(forged.store, RUN, keep_last=1, drop="tokens")
    assert "parent_policy" in judge(forged.store, RUN, tools=tools).findings[0].what


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["released", "grpo", "raft", "reflect_grpo", "gigpo", "vineppo"])
def test_healthy_runs_of_other_methods_are_sound(preset, tmp_path):
    verdict = judge(Store.open(str(healthy_run(tmp_path / "store", 1, preset)), reading=True), RUN)
    assert (verdict.findings, verdict.passed_over) == ([], {})


@pytest.mark.slow
@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.__name__)
def test_a_lie_is_found(lie: Lie, healthy):
    store, tools = healthy
    folder = store.parent / lie.__name__
    forged = Forgery.copy(store, RUN, folder)
    lie(forged)
    forged.write()
    assert judge(Store.open(str(folder), reading=True), RUN, tools=tools).findings
    shutil.rmtree(folder)


def leaks(store: Store) -> list[str]:
    lines = Lines(store, "sample")
    config = lines.config("", 0)
    assert config is not None
    chat, found = chat_of(store, config, lines.start, ()), []
    for iteration in (0, 1):
        found += [what for _, what in guidance_left(store, store.stages("sample", "", iteration), chat)]
    return found


def test_no_guidance_is_left_in_the_run_that_ships():
    assert leaks(Store.open(str(SHIPPED), reading=True)) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["whole", "15_ids", "8_ids", "with_breaks"])
def test_guidance_in_a_context_is_found_whatever_stands_between_its_words(name, tmp_path):
    forged = Forgery.copy(SHIPPED, "sample", tmp_path)
    next(lie for lie in LIES if lie.__name__ == f"guidance_leaked_{name}")(forged)
    forged.write()
    assert "has words of its reflection that no observation has" in leaks(forged.store)[0]


def test_a_reflection_that_goes_on_with_the_next_observation_leaves_no_guidance(tmp_path):
    """A policy that has lost the form writes the conversation itself, with its marks."""
    forged = Forgery.copy(SHIPPED, "sample", tmp_path)
    attempts = {row["trajectory_id"]: row for row in forged.rows("distilled", "trajectories")}
    new = next(row for row in forged.rows("distilled", "turns") if row["observation"].startswith("You clean"))
    lines = Lines(forged.store, "sample")
    chat = chat_of(forged.store, lines.config("", 0), lines.start, ())
    reflections = forged.rows("reflections", "reflections")
    own = attempts[new["trajectory_id"]]["reflection_id"]
    reflection = next(row for row in reflections if row["reflection_id"] == own)
    message = chat.following([{"role": "user", "content": new["observation"]}])
    reflection |= {"report": "", "text": "", "response_ids": message[:12]}
    forged.write()
    assert leaks(forged.store) == []


@pytest.mark.slow
def test_replies_are_those_of_the_policy_that_is_said_to_have_sampled_them(tmp_path):
    forged = Forgery.copy(SHIPPED, "sample", tmp_path)
    turn = next(row for row in forged.rows("retries", "turns", 0) if row["turn"] > 2)
    turn["response_logprobs"] = [one - 0.1 for one in turn["response_logprobs"]]
    forged.write()
    lines = Lines(forged.store, "sample")
    place = next(one for one in lines.places() if one.iteration == 0 and not one.branch)
    found: list[str] = []
    apart = replies_scored(lines, place, lambda key, what: found.append(what), found.append, 10_000)
    name = f"{turn['trajectory_id']}/turn={turn['turn']}"
    assert [what.partition(":")[0] for what in found] == [name]
    assert "0.1 apart per token, tolerance 0.002; token " in found[0]
    assert sorted(apart)[-2] < 1e-4
    assert len(apart) > 100
