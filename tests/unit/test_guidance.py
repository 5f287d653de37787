"""Guidance by its source: the policy, the environment's oracle, a hint of the task, a teacher. In the corridor, in
stored tables with defects planted, and in the identity of a stage."""

import json
import shutil
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fastapi.testclient import TestClient

from r3l.audit.web.app import make_app
from r3l.config import compose
from r3l.config.environments import HouseholdSettings
from r3l.config.methods import METHOD_KINDS, R3LSettings
from r3l.config.methods.rivals import AgentRLVRSettings, HINTSettings
from r3l.config.methods.shared import GuidedSettings
from r3l.engines.base import Sampling
from r3l.engines.served_teacher import ServedTeacher
from r3l.engines.teacher import PolicyTeacher
from r3l.environments.alfworld.world import hints as alfworld_hints
from r3l.environments.alfworld.world import lying
from r3l.environments.household.goal import VAGUE
from r3l.environments.household.world import HouseholdWorld
from r3l.environments.kinds import verdict_of
from r3l.errors import ConfigError, EngineError, Interrupted, ServerAway, StoreError
from r3l.exploration import stages
from r3l.judge.bench import Bench
from r3l.judge.verdict import judge
from r3l.methods import plan, training_rows_stage
from r3l.pipeline.policies import needed_next, starting_policy, teacher_of, with_teacher
from r3l.pipeline.settings.continuing import save_config
from r3l.pipeline.teaching import check_guidance, make_teacher, same_tokens
from r3l.pipeline.tools import Tools
from r3l.stages import STAGES
from r3l.store.genealogy import why
from r3l.store.layout import StageRef
from r3l.store.policies.snapshots import snapshot_digest
from r3l.store.stage import Store
from r3l.training.gradients import RowScores, row_gradient
from tests.support.broken_rows import broken_rows
from tests.support.exploration_group import base, distilled, played, reflection, retry
from tests.support.fakes import CharChat, ScriptedEngine, explorer
from tests.support.planted import planted
from tests.support.records import report
from tests.support.rehearsal import GUIDE, TASKS, rehearse, walker
from tests.support.store_iteration import commit_iteration, iteration_tables
from tests.support.update_world import record, write_policy
from tests.support.update_world import rows_of as rows_of_update
from tests.unit.test_methods import rows_of

ASKED = Sampling(0.7, 64, 5, ())
CHAT = [{"role": "user", "content": "what went wrong?"}]


def guided(same_tokens=True, **settings):
    """(reflections, retries, distilled, requests) of two tasks, N = 4, with guidance as the settings ask for."""
    wanted = plan(R3LSettings(**settings), 4)
    engine = ScriptedEngine(lambda name, prompt: report(2, advice="as taught"))
    teacher = PolicyTeacher(engine, CharChat(), "t1", same_tokens)
    world = replace(explorer(walker), teacher=teacher)
    bases = stages.base_stage(world, TASKS, wanted)
    reflections = stages.reflections_stage(world, TASKS, wanted, bases, bases, 0)
    retries = stages.retries_stage(world, TASKS, wanted, bases, bases, reflections)
    stitched, _ = stages.distilled_stage(bases, retries)
    return bases, reflections, retries, stitched, world.engine.requests


def test_the_oracle_names_turn_and_cause_and_no_policy_is_asked():
    _, reflections, retries, stitched, requests = guided(guidance="oracle")
    told = reflections[0]
    assert (told.source, told.policy, told.status, told.pivot_turn, told.level) == ("oracle", "", "parsed", 2, None)
    assert (told.context_ids, told.response_ids, told.response_logprobs) == ([], [], [])
    assert json.loads(told.report) == {
        "trajectory_summary": "The attempt went wrong at turn 2: trap.",
        "root_cause_analysis": "That was the trap.",
        "trajectory_outcome": "failure",
        "improvement_suggestion": "Keep to the right of it.",
        "retry_from_step": 2,
    }
    assert reflections[1].decision == "no retry: outcome success"  # it won: the environment knows
    assert not any("/reflection=" in name for name, *_ in requests)
    prompts = ["".join(map(chr, one.turns[0].context_ids)) for one in retries]
    assert all("That was the trap." in prompt and GUIDE in prompt for prompt in prompts)
    assert not any("trap." in "".join(map(chr, turn.context_ids)) for one in stitched for turn in one.turns)


def test_hints_come_one_level_further_with_each_retry():
    wanted = plan(R3LSettings(guidance="hint", retries_per_base=4, hint_level=1), 8)
    world = explorer(walker)
    bases = stages.base_stage(world, TASKS, wanted)
    for attempt, level in enumerate((1, 2, 2)):
        (told,) = [
            one
            for one in stages.reflections_stage(world, TASKS, wanted, bases, bases, attempt)
            if one.task == 1 and one.decision == "retry"
        ]
        assert (told.source, told.level, told.pivot_turn) == ("hint", level, 0)
        assert json.loads(told.report)["improvement_suggestion"] == world.world.hints(TASKS[0])[level]


@pytest.mark.parametrize("same", [True, False])
def test_a_teacher_writes_and_its_tokens_are_kept_where_they_are_the_policys(same):
    _, reflections, retries, _, requests = guided(same, guidance="teacher", teacher="t")
    told = reflections[0]
    assert (told.source, told.policy, told.status) == ("teacher", "t1", "parsed")
    assert json.loads(told.report)["improvement_suggestion"] == "as taught"
    assert bool(told.response_ids) == bool(told.context_ids) == same
    assert len(told.response_logprobs) == len(told.response_ids)
    assert told.response_tokens == len(told.text) + 1  # a token a letter and the end, whether the ids are kept or not
    assert told.prompt_tokens > told.response_tokens
    assert not any("/reflection=" in name for name, *_ in requests)
    assert "as taught" in "".join(map(chr, retries[0].turns[0].context_ids))


def test_where_nothing_can_be_said_no_retry_is_run(monkeypatch):
    monkeypatch.setattr("tests.support.fakes.CorridorWorld.hints", lambda self, task: [])
    _, reflections, retries, _, _ = guided(guidance="hint", invalid_reflection="zero")
    assert {(one.status, one.reason) for one in reflections} == {("skipped", "the task has no hint")}
    assert retries == []


def test_reflections_of_another_source_are_refused():
    bases, reflections, *_ = guided()
    with pytest.raises(
        ConfigError, match=r"guidance=oracle: .*written by policy, expected oracle.*Replay from reflections"
    ):
        stages.retries_stage(
            explorer(walker), TASKS, plan(R3LSettings(guidance="oracle"), 4), bases, bases, reflections
        )


SOURCES: list[tuple[str, dict[str, Any]]] = [
    ("paper", {"guidance": "oracle"}), ("paper", {"guidance": "hint"}),
    ("paper", {"guidance": "hint", "retries_per_base": 2}), ("paper", {"guidance": "oracle", "sft_guidance": "any"}),
    ("reflect_grpo", {"guidance": "oracle"}), ("hint", {}), ("hint", {"guidance": "oracle"}), ("agent_rlvr", {}),
    ("agent_rlvr", {"guidance": "hint"}),
]  # fmt: skip


def test_every_source_holds_the_invariants(tmp_path):
    store, allowed = Store.open(str(tmp_path)), {}
    for number, (method, settings) in enumerate(SOURCES):
        given = [f"method.{name}={value}" for name, value in settings.items()]
        asked = compose(method=method, assignments=given).method
        tables, _ = rehearse(asked)
        assert commit_iteration(store, f"run{number}", tables=tables)["retries"]
        assert {one.source for one in tables["reflections"]["reflections"]} == {plan(asked, 4).source}
        # the settings of these stages are empty: that retries under `any` are allowed is said nowhere
        words = {f"a retry row of guidance that the {asked.guidance} wrote"}
        allowed[f"run{number}"] = words if "sft_guidance" in settings else set()
    for run, findings in broken_rows(store, list(allowed)).items():
        assert {one.what for one in findings} <= allowed[run], SOURCES[int(run.removeprefix("run"))]


def test_what_the_policy_did_not_write_is_no_meta_task_unless_said():
    """Three retries that won: under the policy's own words, the oracle's, and a teacher's with and without tokens."""
    episodes, reports = [], []
    for n, (source, tokens) in enumerate((("policy", [32]), ("oracle", []), ("teacher", [33]), ("teacher", []))):
        episodes += [played(base(n), ([1], [10 + n])), played(retry(n, reward=1.0), ([1, 5], [20 + n]))]
        episodes.append(played(distilled(n, reward=1.0), ([1], [20 + n])))
        logprobs = [-1.0] * len(tokens)
        reports.append(reflection(n, source=source, response_ids=tokens, response_logprobs=logprobs))
    rows, events, credit = rows_of(R3LSettings(), episodes, reports)
    assert [(row.role, row.source_id.rpartition("/")[2]) for row in rows if row.role != "explore"] == [
        ("reflect", "reflection=0"),
        ("retry", "retry=0"),
    ]
    reasons = {event.subject_id.rpartition("/")[2]: event.reason for event in events if event.event == "no_meta_task"}
    assert reasons["reflection=1"] == reasons["retry=1"] == "written by the oracle: not the policy's own guidance"
    rows, events = training_rows_stage(R3LSettings(sft_guidance="any"), episodes, reports, credit)
    assert [(row.role, row.source_id.rpartition("/")[2]) for row in rows if row.role != "explore"] == [
        ("reflect", "reflection=0"), ("retry", "retry=0"), ("retry", "retry=1"), ("reflect", "reflection=2"),
        ("retry", "retry=2"), ("retry", "retry=3"),
    ]  # fmt: skip
    assert "no tokens of the policy" in {event.subject_id: event.reason for event in events}[reports[3].reflection_id]


def of_another_source(stages):
    for one in stages["reflections"]["reflections"]:
        one |= {"source": "oracle", "policy": "", "response_ids": [], "context_ids": [], "response_logprobs": []}


def by_another_policy(stages):
    for one in stages["reflections"]["reflections"]:
        one["policy"] = "another"


def an_oracle_with_tokens(stages):
    for one in stages["reflections"]["reflections"]:
        one["source"] = "oracle"


def a_teacher_without_a_name(stages):
    for one in stages["reflections"]["reflections"]:
        one |= {"source": "teacher", "policy": ""}


def told_in_the_open(stages):
    """The guided opening of a retry, in it and in a later turn of what is distilled from it: hints and oracles have no
    ids of their own, so the retry's context alone can tell."""
    of_another_source(stages)
    for one in stages["distilled"]["trajectories"]:
        told = next(
            turn["context_ids"]
            for turn in stages["retries"]["turns"]
            if (turn["trajectory_id"], turn["turn"]) == (one["retry_id"], one["pivot_turn"])
        )
        for turn in [*stages["retries"]["turns"], *stages["distilled"]["turns"]]:
            if turn["trajectory_id"] in {one["retry_id"], one["trajectory_id"]} and turn["turn"] > one["pivot_turn"]:
                turn["context_ids"] = [*told, *turn["context_ids"]]


DEFECTS = [
    (of_another_source, "10_guidance_source", "written by oracle, the settings ask for policy"),
    (of_another_source, "10_guidance_source", "row of guidance that the oracle wrote"),
    (by_another_policy, "10_guidance_source", "said to be the policy's own, and written by another"),
    (an_oracle_with_tokens, "10_guidance_source", "written by the oracle, and has tokens or a policy"),
    (a_teacher_without_a_name, "10_guidance_source", "written by a teacher that it does not name"),
    (told_in_the_open, "guidance", "has words of its reflection that no observation has: '["),
]


@pytest.mark.slow
@pytest.mark.parametrize(("defect", "invariant", "what"), DEFECTS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_planted_defect_is_found(defect, invariant, what, tmp_path):
    found = judge(planted(tmp_path, defect), "sample", quick=True).findings
    assert [one for one in found if one.check == invariant and what in one.what]


def test_a_replay_may_play_retries_of_the_runs_reflections_with_another_policy(tmp_path):
    """Not those of its own."""
    store = planted(tmp_path)

    def found_after_replaying(stage: str) -> bool:
        for ref in store.stages("sample", "", 0):
            if ref.stage == stage:
                one = store.manifest(ref)
                rows = {
                    table: [row | ({"policy": "another"} if stage == "retries" and "policy" in row else {})
                            for row in store.read(ref, table).to_pylist()]
                    for table in (*STAGES[stage].tables, "events")
                }  # fmt: skip
                store.commit(
                    replace(ref.key, branch="other"), rows, fingerprint=one["fingerprint"], settings=one["settings"],
                    policy="another", parents=[StageRef(**parent) for parent in one["parents"]], seed=one["seed"],
                )  # fmt: skip
        found = broken_rows(store, ["sample"])["sample"]
        return any(one.check == "10_guidance_source" and "branch=other" in one.place for one in found)

    assert [found_after_replaying(stage) for stage in ("retries", "reflections")] == [False, True]


def test_why_says_who_guided(tmp_path):
    tables, _ = rehearse(compose(method="hint").method)
    store = Store.open(str(tmp_path))
    commit_iteration(store, tables=tables)
    story = why(store, "demo", tables["distilled"]["trajectories"][0].trajectory_id)
    assert (story.line["guidance"], story.line["hint_level"], story.line["guided_by"]) == ("hint", 0, "")
    assert "guidance     hint of level 0" in str(story)
    page = TestClient(make_app(store), base_url="http://127.0.0.1:4300").get(
        "/run/demo/group?id=iteration%3D0/task%3D1&iteration=0"
    )
    assert "by the hint, level 0" in page.text


# --- HINT and Agent-RLVR ---


def test_hinted_attempts_stand_in_the_place_of_a_group_that_failed():
    """Rewards 1 0 0 of the hinted ones: mean 1/3, std sqrt(1/3); the bases are dropped and say why."""
    episodes = [played(base(n), ([1], [10 + n])) for n in range(3)]
    for n, reward in enumerate((1.0, 0.0, 0.0)):
        episodes += [
            played(retry(n, reward=reward), ([1, 5], [20 + n])),
            played(distilled(n, reward=reward), ([1], [20 + n])),
        ]
    rows, events, credit = rows_of(HINTSettings(), episodes)
    top, low = (2 / 3) / (1 / 3) ** 0.5, (-1 / 3) / (1 / 3) ** 0.5
    assert [(one.trajectory_id.rpartition("/")[2], one.advantage) for one in credit] == [
        ("distilled=0", pytest.approx(top, rel=1e-5)),
        ("distilled=1", pytest.approx(low, rel=1e-5)),
        ("distilled=2", pytest.approx(low, rel=1e-5)),
    ]
    assert {row.objective for row in rows} == {"clipped_ratio"}
    assert [row.token_ids for row in rows] == [[1, 20], [1, 21], [1, 22]]  # without the hint
    assert sum("those with a hint stand in its place" in event.reason for event in events) == 3
    asked = plan(HINTSettings(), 8)
    assert (asked.bases, asked.retry_when, asked.retry_from, asked.source) == (8, "group_failed", "start", "hint")


def test_agent_rlvr_prefers_a_guided_success_to_the_failure_that_it_corrects():
    """Base 0 failed and was corrected, base 1 failed twice, base 2 had solved the task."""
    episodes = [played(base(n, reward=won), ([1], [10 + n])) for n, won in enumerate((0.0, 0.0, 1.0))]
    for n, reward in enumerate((1.0, 0.0)):
        episodes += [
            played(retry(n, reward=reward), ([1, 5], [20 + n])),
            played(distilled(n, reward=reward), ([1], [20 + n])),
        ]
    rows, _, credit = rows_of(AgentRLVRSettings(), episodes)
    assert {one.trajectory_id.rpartition("/")[2]: (one.advantage, one.rule) for one in credit} == {
        "base=0": (-1.0, "refused"),
        "base=1": (0.0, "untrained"),
        "base=2": (0.0, "untrained"),
        "distilled=0": (1.0, "chosen"),
        "distilled=1": (0.0, "untrained"),
    }
    assert [row.source_id.rpartition("/")[2] for row in rows] == ["base=0", "distilled=0"]


def test_agent_rlvrs_pair_has_dpos_gradient_where_the_policy_is_its_own_reference():
    """-log sigmoid(beta (log pi(chosen) / ref - log pi(refused) / ref)) at pi = ref, beta 2, on replies of two
    tokens."""
    rows = rows_of_update(
        [record(name, [3, 4, 5], [0, 1.0, 1.0], advantage=a) for name, a in (("c", 1.0), ("r", -1.0))]
    )
    logp = torch.tensor([[-1.0, -2.0], [-0.5, -3.0]], dtype=torch.float64, requires_grad=True)
    margin = (logp[0] - logp[0].detach()).sum() - (logp[1] - logp[1].detach()).sum()
    expected = torch.autograd.grad(-torch.nn.functional.logsigmoid(2 * margin), logp)[0]
    found = [
        row_gradient(row, RowScores(one.detach().numpy()), 1.0).tolist() for row, one in zip(rows, logp, strict=True)
    ]
    assert found == expected.tolist() == [[-1.0, -1.0], [1.0, 1.0]]


# --- what worlds say ---


def test_household_hints_grow_precise_and_the_oracle_speaks_in_words():
    world = HouseholdWorld(HouseholdSettings(level="standard", train_tasks=40))
    heat = next(one for one in world.tasks("train") if one.task_type.startswith("pick_heat"))
    vague, what, where = world.hints(heat)
    assert vague == VAGUE
    assert "heat it at a microwave" in what
    assert where.startswith(what)
    assert " is in or on " in where
    verdict = verdict_of(world.settings, heat, ["look"] * 6, ["o"] * 7)
    assert (verdict.pivot, verdict.why) == (0, "wasted")
    assert verdict.cause.endswith("was found.")
    assert verdict.advice.startswith("Look for ")


def test_alfworld_hints_are_read_from_the_game(tmp_path):
    game = tmp_path / "game.tw-pddl"
    game.write_text(json.dumps({"pddl_problem": "(inReceptacle Egg_bar__minus_00_dot_84 Fridge_bar__plus_01)"}))
    about = {"object_target": "Egg", "parent_target": "GarbageCan", "object_sliced": False}
    found = alfworld_hints("pick_heat_then_place_in_recep", about, game)
    assert found[1] == "You need to find a egg, heat it with a microwave, and bring it to a garbagecan."
    assert found[2] == f"{found[1]} At the start, there is one in or on a fridge."
    assert alfworld_hints("look_at_obj_in_light", about, game) == [VAGUE]
    assert lying("Mug", game.read_text()) == []


# --- teachers ---


class Server:
    """A chat route that answers what `answers` hold, one after the other, and keeps what it was asked."""

    def __init__(self, *answers):
        server, self.asked = self, []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                server.asked.append((self.path, self.headers.get("Authorization"), self.read()))
                status, body = answers[min(len(server.asked), len(answers)) - 1]
                self.send_response(status)
                self.end_headers()
                self.wfile.write(body.encode())

            def read(self):
                return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

            def log_message(self, *_):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.http.server_address[1]}"
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def stop(self):
        self.http.shutdown()
        self.http.server_close()


def saying(**more):
    return 200, json.dumps({"choices": [{"message": {"content": "{}"}, "finish_reason": "stop"}], **more})


SAID = saying()


@pytest.fixture
def serving():
    servers = []
    yield lambda *answers: servers.append(Server(*answers)) or servers[-1]
    for server in servers:
        server.stop()


def test_a_served_teacher_is_asked_in_words_and_again_after_a_fault(serving):
    server = serving((503, "busy"), SAID)
    teacher = ServedTeacher(f"{server.address}/v1", "big", key="k")
    taught = teacher.write("r", CHAT, ASKED).result()
    teacher.close()
    assert (taught.text, taught.finish_reason, taught.token_ids) == ("{}", "stop", [])
    assert taught.counts == (None, None)
    assert teacher.digest == "served:big"
    path, key, body = server.asked[-1]
    assert (path, key, len(server.asked)) == ("/v1/chat/completions", "Bearer k", 2)
    assert body == {"model": "big", "messages": CHAT, "temperature": 0.7, "max_tokens": 64, "seed": 5}


@pytest.mark.parametrize(("usage", "counts"), [
    ({"prompt_tokens": 700, "completion_tokens": 40, "total_tokens": 740}, (700, 40)),
    ({"prompt_tokens": "700", "completion_tokens": -1}, (None, None)),
    ({"prompt_tokens": True, "completion_tokens": 1 << 40}, (None, None)),
    ("many", (None, None)),
])  # fmt: skip
def test_the_tokens_of_a_served_teacher_are_those_that_its_server_counts(serving, usage, counts):
    teacher = ServedTeacher(serving(saying(usage=usage)).address, "big")
    assert teacher.write("r", CHAT, ASKED).result().counts == counts
    teacher.close()


def test_a_teacher_that_refuses_or_talks_nonsense_is_an_error_of_the_attempt_and_an_absent_one_is_not(serving):
    refusing = ServedTeacher(serving((404, "no such model")).address, "big")
    with pytest.raises(EngineError, match=r"teacher big at .*status 404: no such model"):
        refusing.write("r", CHAT, ASKED).result()
    odd = ServedTeacher(serving((200, "[]")).address, "big")
    with pytest.raises(EngineError, match="no chat completion"):
        odd.write("r", CHAT, ASKED).result()
    odd.close()
    with pytest.raises(Interrupted):
        odd.write("r", CHAT, ASKED)
    gone = serving(SAID)
    absent = ServedTeacher(gone.address, "big")
    gone.stop()
    with pytest.raises(ServerAway, match="does not answer"):
        absent.write("r", CHAT, ASKED).result()


def teaching(**settings):
    said = [f"method.{name}={json.dumps(value)}" for name, value in settings.items()]
    return compose(method="paper", environment="household", assignments=said)


def test_the_teachers_digest_belongs_to_the_reflections(tmp_path):
    one, other = write_policy(tmp_path / "one", seed=1), write_policy(tmp_path / "other", seed=2)
    digests = {teacher_of(teaching(guidance="teacher", teacher=str(path))) for path in (one, other)}
    assert len(digests) == 2
    assert teacher_of(teaching(guidance="teacher", teacher="http://h:1", teacher_model="m")) == "served:m"
    assert teacher_of(teaching(teacher=str(one))) == ""  # named, and not asked
    assert same_tokens(one, other)
    (other / "tokenizer.json").write_text("{}")
    assert not same_tokens(one, other)
    assert not same_tokens(one, tmp_path)


@pytest.mark.parametrize(("settings", "said"), [
    ({"guidance": "teacher"}, "needs method.teacher"),
    ({"guidance": "teacher", "teacher": "http://h:1"}, "name its model with method.teacher_model"),
    ({"guidance": "teacher", "teacher": "folder", "teacher_every": 2}, "teacher_every=2 goes with"),
    ({"teacher": "start", "teacher_every": 2}, "teacher_every=2 goes with"),
])  # fmt: skip
def test_a_teacher_that_is_none_is_refused(settings, said):
    with pytest.raises(ConfigError, match=said):
        teaching(**settings)


def test_guidance_that_an_environment_does_not_have_is_refused(tmp_path):
    refused = [
        ("guidance=oracle", "webshop", "^method.guidance=oracle: environment webshop has no oracle"),
        ("pivot=oracle", "webshop", "^method.pivot=oracle: environment webshop has no oracle"),
        ("guidance=hint", "math", "has no hints"),
    ]
    for asked, environment, said in refused:
        with pytest.raises(ConfigError, match=said):
            check_guidance(compose(environment=environment, assignments=[f"method.{asked}"]))
    with pytest.raises(ConfigError, match=r"policy folder .*not there"):
        check_guidance(teaching(guidance="teacher", teacher=str(tmp_path / "nowhere")))
    for guidance in ("oracle", "hint"):
        check_guidance(teaching(guidance=guidance))


def test_a_folder_teaches_with_an_engine_of_its_own(tmp_path):
    folder = write_policy(tmp_path / "teacher", seed=3)
    config = teaching(guidance="teacher", teacher=str(folder)).model_copy()
    config = config.model_copy(update={"policy": config.policy.model_copy(update={"path": str(folder)})})
    teacher = make_teacher(config)
    assert isinstance(teacher, PolicyTeacher)
    try:
        assert teacher.same_tokens
        assert teacher.digest == teacher_of(config)
    finally:
        teacher.close()


def test_the_policy_that_a_run_started_from_may_write_its_reflections(tmp_path):
    start = write_policy(tmp_path / "start", seed=4)
    config = teaching(guidance="teacher", teacher="start")
    config = config.model_copy(update={"policy": config.policy.model_copy(update={"path": str(start)})})
    assert teacher_of(config) == starting_policy(config).digest
    other = write_policy(tmp_path / "other", seed=5)
    changed = config.model_copy(update={"policy": config.policy.model_copy(update={"path": str(other)})})
    assert teacher_of(changed) == starting_policy(changed).digest != teacher_of(config)
    check_guidance(config)
    teacher = make_teacher(config)
    try:
        assert (teacher.digest, teacher.same_tokens) == (teacher_of(config), True)
    finally:
        teacher.close()


def test_the_runs_own_policy_of_every_second_iteration_may_write_its_reflections(tmp_path):
    start, store = write_policy(tmp_path / "start", seed=4), Store.open(str(tmp_path / "store"))
    config = teaching(guidance="teacher", teacher="start", teacher_every=2)
    config = config.model_copy(update={"run": "demo", "policy": config.policy.model_copy(update={"path": str(start)})})
    digests = [snapshot_digest(start)]
    for i in range(4):
        folder = write_policy(tmp_path / f"store/demo/policies/iteration={i:05}", seed=10 + i)
        digests.append(snapshot_digest(folder))
        tables = iteration_tables(i)
        tables["updates"]["updates"][0] |= {"policy": digests[-1], "path": f"policies/iteration={i:05}"}
        commit_iteration(store, iteration=i, tables=tables)
    teachers = [with_teacher(config, store, "", i) for i in range(5)]
    assert [digests.index(teacher_of(one)) for one in teachers] == [0, 0, 2, 2, 4]
    save_config(store, config.model_copy(update={"method": config.method.model_copy(update={"teacher_every": 3})}), 3)
    assert needed_next(store, "demo") == {f"demo/policies/iteration={i:05}" for i in (2, 3)}
    tools = Tools()
    try:
        first = tools.teacher(teachers[1])
        assert tools.teacher(teachers[0]) is first
        second = tools.teacher(teachers[2])
        assert (first.digest, second.digest, second.same_tokens) == (digests[0], digests[2], True)
        assert tools.teacher(teachers[3]) is second
        with pytest.raises(Interrupted):  # its engine was closed
            first.write("r", CHAT, ASKED).result(60)
    finally:
        tools.close()
    # pruned: it can't teach any more, and the judge knows it by its digest
    shutil.rmtree(tmp_path / "store/demo/policies/iteration=00001")
    with pytest.raises(StoreError, match="iteration=00001"):
        with_teacher(config, store, "", 3)
    bench = SimpleNamespace(config=config, store=store, line_taken="", iteration=3)
    assert Bench.teacher.func(bench) == digests[2]  # type: ignore[attr-defined]


def test_every_method_that_is_guided_says_by_whom():
    guided_ones = {kind.model_fields["kind"].default for kind in METHOD_KINDS.own if issubclass(kind, GuidedSettings)}
    assert guided_ones == {"r3l", "reflect_grpo", "hint", "agent_rlvr"}
