"""Base, reflection, retry and stitching in the corridor, where every id and reward is known."""

import asyncio
import json
from dataclasses import replace

import pytest

from r3l.errors import EngineError, Interrupted, ReflectionError, ServerAway
from r3l.exploration import stages
from r3l.exploration.report import integer
from r3l.exploration.sample import sample
from r3l.records import Episode, Kind, SamplingPlan, Status, observation_hash
from tests.support.fakes import END, CorridorPool, done, explorer
from tests.support.records import corridor_task as task
from tests.support.records import report

GUIDE = "previous attempt"
PLAN = SamplingPlan(bases=1, reflection="report", retries_per_base=1, retry_when="not_success")


def trapper(reflection: str):
    """A policy that steps right twice, then into the trap; guided it only goes right. `reflection` is what it
    reflects."""

    def script(request_id: str, prompt: str) -> str:
        if "/reflection=" in request_id:
            return reflection
        turn = int(request_id.rsplit("=", 1)[1])
        return "!right" if GUIDE in prompt or turn < 2 else "!trap"

    return script


def run(world, plan=PLAN):
    """(base, reflection, retries, distilled, events) of one task."""
    bases = stages.base_stage(world, [task()], plan)
    reflections = stages.reflections_stage(world, [task()], plan, bases, bases, 0)
    retries = stages.retries_stage(world, [task()], plan, bases, bases, reflections)
    distilled, events = stages.distilled_stage(bases, retries)
    return bases[0], reflections[0], retries, distilled, events


def ids(turns) -> list[int]:
    return [token for turn in turns for token in (*turn.context_ids, *turn.response_ids)]


def text(turns) -> str:
    return "".join("|" if token == END else chr(token) for token in ids(turns))


def test_a_base_ends_at_the_turn_limit_with_reward_0_and_a_reason():
    base, *_ = run(explorer(trapper(report(2))))
    assert (base.trajectory.status, base.trajectory.reward, base.trajectory.turns) == (Status.TURN_LIMIT, 0.0, 8)
    assert base.trajectory.reason == "not done after 8 turns"
    assert text(base.turns[:2]) == "<s>Walk.<u>at 0<a>!right|<u>at 1<a>!right|"


def test_the_retry_keeps_two_turns_and_wins():
    base, reflection, [retry], [distilled], events = run(explorer(trapper(report(2))))
    assert (reflection.status, reflection.decision, reflection.pivot_turn) == ("parsed", "retry", 2)
    assert retry.trajectory.trajectory_id == "iteration=0/task=0/base=0/retry=0"
    assert [turn.turn for turn in retry.turns] == [2, 3, 4]
    assert (retry.trajectory.reward, retry.trajectory.turns, retry.trajectory.pivot_turn) == (1.0, 5, 2)
    assert GUIDE in text(retry.turns[:1])
    assert distilled.trajectory.kind == Kind.DISTILLED
    assert distilled.trajectory.parent_id == base.trajectory.trajectory_id
    assert not events


def test_the_distilled_prefix_is_the_bases_ids_and_the_suffix_the_sampled_ids():
    base, _, [retry], [distilled], _ = run(explorer(trapper(report(2))))
    assert ids(distilled.turns[:2]) == ids(base.turns[:2])
    assert [turn.response_ids for turn in distilled.turns[2:]] == [turn.response_ids for turn in retry.turns]
    assert text(distilled.turns) == (
        "<s>Walk.<u>at 0<a>!right|<u>at 1<a>!right|<u>at 2<a>!right|<u>at 3<a>!right|<u>at 4<a>!right|"
    )
    assert distilled.trajectory.response_tokens == 5 * len("!right|")


@pytest.mark.parametrize(("pivot", "position", "begins"), [
    (0, "mid_system", "<s>Walk.\n\nYour previous attempt"),
    (2, "mid_system", "<s>Your previous attempt"),
    (2, "user", "<u>Your previous attempt"),
    (2, "system", "<s>Walk.\n\nYour previous attempt"),
])  # fmt: skip
def test_where_the_guidance_stands(pivot, position, begins):
    plan = SamplingPlan(
        bases=1, reflection="report", retries_per_base=1, retry_when="not_success", guidance_position=position
    )
    world = explorer(trapper(report(pivot)))
    base, _, [retry], [distilled], _ = run(world, plan)
    assert text(retry.turns[:1]).startswith(begins)
    prompt = next(
        p for name, p, _ in world.engine.requests if name == f"iteration=0/task=0/base=0/retry=0/turn={pivot}"
    )
    kept = [] if position == "system" or pivot == 0 else ids(base.turns[:pivot])
    assert prompt == "".join(chr(i) for i in kept + retry.turns[0].context_ids)
    assert prompt.count(f"<u>at {pivot}<a>") == (0 if position == "user" and pivot else 1)
    assert GUIDE not in text(distilled.turns)
    assert text(distilled.turns).count(f"at {pivot}<a>") == 1


def test_outcome_success_means_no_retry():
    *_, reflection, retries, distilled, events = run(explorer(trapper(report(0, "success"))))
    assert reflection.decision == "no retry: outcome success"
    assert (retries, distilled, events) == ([], [], [])


@pytest.mark.parametrize(("reply", "rule", "pivot", "reason"), [
    ("nothing", "skip", None, "no JSON object in the reply"),
    (report(99), "skip", None, "retry_from_step: expected 0 to 7, got 99"),
    (report(8), "clamp", 7, "retry_from_step: expected 0 to 7, got 8"),
    (report(-1), "clamp", 0, "retry_from_step: expected 0 to 7, got -1"),
    (report(99), "clamp", 7, "retry_from_step: expected 0 to 7, got 99"),
    (report(-3), "clamp", 0, "retry_from_step: expected 0 to 7, got -3"),
    (report("soon"), "clamp", None, "retry_from_step: expected an integer, got 'soon'"),
    ("nothing", "zero", 0, "no JSON object in the reply"),
    (report(9_999_999_999), "clamp", 7, "retry_from_step: expected 0 to 7, got 9999999999"),
    (report(-1e10), "clamp", 0, "retry_from_step: expected 0 to 7, got -10000000000"),
    (report("9999999999"), "clamp", 7, "retry_from_step: expected 0 to 7, got 9999999999"),
    (report(float("nan")), "clamp", None, "not valid JSON: NaN is no number"),
    (report("1_0"), "clamp", None, "retry_from_step: expected an integer, got '1_0'"),
    (report(0).replace("0}", "1e400}"), "clamp", None, "retry_from_step: expected an integer, got inf"),
    (report(0).replace("0}", "9" * 310 + "}"), "clamp", 7, "retry_from_step: expected 0 to 7, got " + "9" * 80),
    (report(0).replace("0}", "9" * 5_000 + "}"), "clamp", None, "not valid JSON: a number of 5000 digits"),
    (
        report(0, extra="[]").replace('"[]"', "[" * 64 + "]" * 64),
        "skip",
        None,
        "not valid JSON: nested more than 64 levels deep",
    ),
    (report(0).replace("0}", "[" * 100_000 + "}"), "skip", None, "not valid JSON: nested more than 64 levels deep"),
    (
        report(0).replace("go right", "\\ud800"),
        "zero",
        0,
        "not valid JSON: it holds half of a surrogate pair, which is no character",
    ),
])  # fmt: skip
def test_the_rule_for_invalid_reflections(reply, rule, pivot, reason):
    plan = SamplingPlan(
        bases=1, reflection="report", retries_per_base=1, retry_when="not_success", invalid_reflection=rule
    )
    _, reflection, retries, _, _ = run(explorer(trapper(reply)), plan)
    assert (reflection.status, reflection.reason, reflection.pivot_turn) == ("invalid", reason, pivot)
    assert reflection.pivot_asked is None or abs(reflection.pivot_asked) < 2**31
    assert len(retries) == (pivot is not None)


def test_a_base_without_a_stored_reflection_is_not_retried():
    world = explorer(trapper(report(2)))
    bases = stages.base_stage(world, [task()], replace(PLAN, bases=2))
    reflections = stages.reflections_stage(world, [task()], PLAN, bases, bases, 0)
    retries = stages.retries_stage(
        world, [task()], replace(PLAN, group_fill="extra_base"), bases, bases, reflections[1:]
    )
    assert [one.trajectory.base_id for one in retries] == [bases[1].trajectory.trajectory_id]


@pytest.mark.parametrize("rule", ["clamp", "zero"])
@pytest.mark.parametrize("reply", [report(99, "success"), report("none", "success"), report(None, "success")])
def test_a_success_without_a_readable_pivot_is_not_retried(reply, rule):
    plan = SamplingPlan(
        bases=1, reflection="report", retries_per_base=1, retry_when="not_success", invalid_reflection=rule
    )
    _, reflection, retries, _, _ = run(explorer(trapper(reply)), plan)
    assert (reflection.status, reflection.outcome, retries) == ("invalid", "success", [])
    assert reflection.decision == (
        "no retry: reflection invalid" if reflection.pivot_turn is None else "no retry: outcome success"
    )


@pytest.mark.parametrize("value", ["2", 2.0, 2])
def test_an_integer_in_other_clothes_is_an_integer(value):
    _, reflection, *_ = run(explorer(trapper(f"Well: {report(value, extra=1)} done")))
    assert (reflection.status, reflection.pivot_turn, json.loads(reflection.report)["extra"]) == ("parsed", 2, 1)


@pytest.mark.parametrize(("bound", "decision"), [(0.0, "no retry: reward 0 is not below 0"), (0.01, "retry")])
def test_a_reward_at_the_very_bound_is_not_below_it(bound, decision):
    plan = SamplingPlan(
        bases=1, reflection="report", retries_per_base=1, retry_when="reward_below", retry_reward_below=bound
    )
    _, reflection, *_ = run(explorer(trapper(report(2))), plan)
    assert reflection.decision == decision


@pytest.mark.parametrize("value", [True, False, 2.5, -0.5, "2.5", "two", [2], None])
def test_what_is_no_whole_number_is_no_pivot(value):
    with pytest.raises(ReflectionError, match="retry_from_step: expected an integer, got "):
        integer(value)


def test_a_success_that_could_be_shorter_is_retried():
    _, reflection, retries, *_ = run(explorer(trapper(report(2, "success_but_inefficient"))))
    assert (reflection.decision, len(retries)) == ("retry", 1)


def test_a_rollback_that_sees_other_observations_is_dropped_with_a_reason():
    _, _, [retry], distilled, [event] = run(explorer(trapper(report(2)), CorridorPool(drift={1})))
    assert (retry.trajectory.status, retry.turns, distilled) == (Status.DIVERGED, [], [])
    assert (event.event, event.reason) == ("diverged", "turn 1: other observation than recorded")


def test_or_restarts_from_the_beginning_by_setting():
    plan = SamplingPlan(bases=1, reflection="report", retries_per_base=1, retry_when="not_success", diverged="restart")
    _, _, [retry], [distilled], _ = run(explorer(trapper(report(2)), CorridorPool(drift={1})), plan)
    assert (retry.trajectory.pivot_asked, retry.trajectory.pivot_turn, retry.trajectory.shared_turns) == (2, 0, 0)
    assert distilled.trajectory.turns == 5


def test_a_malformed_reply_costs_a_turn_and_is_answered():
    world = explorer(lambda name, prompt: "!right" if name.endswith("turn=1") else "right")
    base = asyncio.run(sample(world, task(), 0))
    assert [turn.valid for turn in base.turns] == [False, True] + [False] * 6
    assert base.turns[1].observation == "Begin your reply with !."
    assert base.trajectory.status == Status.TURN_LIMIT


def test_or_ends_the_episode_by_setting():
    base = asyncio.run(sample(explorer(lambda *_: "right", bad_reply="end", malformed_reward=-0.1), task(), 0))
    assert (base.trajectory.status, base.trajectory.reward, base.trajectory.turns) == (Status.INVALID_REPLY, -0.1, 1)


def test_a_cut_off_reply_is_not_acted_on_and_the_end_token_goes_into_the_context():
    base = asyncio.run(sample(explorer(lambda name, _: "!right…" if name.endswith("turn=0") else "!right"), task(), 0))
    assert (base.turns[0].valid, base.turns[0].action, base.turns[0].finish_reason) == (False, "", "length")
    assert base.turns[1].context_ids[0] == END
    assert base.turns[1].observation == "Your reply was cut off after 64 tokens."


@pytest.mark.parametrize("error", [Interrupted("the engine is closed"), ServerAway("no server runs the policy")])
@pytest.mark.parametrize("stage", ["base", "reflection", "retry"])
def test_an_attempt_whose_work_was_ended_is_no_row(stage, error):
    def script(name, prompt):
        if f"/{stage}=1" in name:
            raise error
        return report(0) if "/reflection=" in name else "!trap"

    world = explorer(script)
    plan = replace(PLAN, bases=2)

    def sample_reflect_and_retry():
        bases = stages.base_stage(world, [task()], plan)
        stages.reflections_stage(world, [task()], plan, bases, bases, 1)
        reflections = stages.reflections_stage(world, [task()], plan, bases, bases, 0)
        return stages.retries_stage(
            world, [task()], plan, bases, bases, [replace(one, attempt=1) for one in reflections]
        )

    with pytest.raises(type(error)):
        sample_reflect_and_retry()


def test_an_engine_failure_is_a_row():
    def script(name, prompt):
        if name.endswith("turn=1"):
            raise EngineError("server gone")
        return "!right"

    world = explorer(script)
    base = asyncio.run(sample(world, task(), 0))
    assert (base.trajectory.status, base.trajectory.reason, len(base.turns)) == (Status.ENGINE_ERROR, "server gone", 1)
    assert world.pool.ended == ["iteration=0/task=0/base=0"]
    reflection = stages.reflections_stage(world, [task()], PLAN, [base], [base], 0)[0]
    assert (reflection.status, reflection.reason) == (Status.SKIPPED, "the attempt ended in engine_error")


def test_a_second_retry_grows_from_the_first_and_shares_less_with_the_base():
    def script(name, prompt):
        if "/reflection=" in name:
            return report(2 if name.endswith("=0") else 3)
        turn = int(name.rsplit("=", 1)[1])
        if "/retry=1" in name:
            return "!right"
        return "!right" if turn < (3 if "/retry=0" in name else 2) else "!trap"

    world = explorer(script)
    base, _, _, distilled, _ = run(world)
    abouts = stages.latest([base], distilled)
    assert abouts == distilled
    again = stages.reflections_stage(world, [task()], PLAN, [base], abouts, 1)
    second = stages.retries_stage(world, [task()], PLAN, [base], abouts, again)[0]
    assert (second.trajectory.pivot_turn, second.trajectory.shared_turns) == (3, 2)
    assert second.trajectory.parent_id == distilled[0].trajectory.trajectory_id
    [last], _ = stages.distilled_stage(abouts, [second])
    assert ids(last.turns[:3]) == ids(distilled[0].turns[:3])
    assert last.trajectory.reward == 1.0


def test_the_seed_of_a_turn_depends_on_its_name_alone():
    world = explorer(trapper(report(2)))
    first, second = (asyncio.run(sample(world, task(), 0)) for _ in range(2))
    assert isinstance(first, Episode)
    seeds = [sampling.seed for _, _, sampling in world.engine.requests]
    assert seeds[:8] == seeds[8:]
    assert len(set(seeds[:8])) == 8
    assert ids(first.turns) == ids(second.turns)


def test_a_call_that_the_engine_repeated_is_an_event(monkeypatch):
    world = explorer(lambda request_id, prompt: "!right")
    once = world.engine.complete

    def flaky(request_id, prompt_ids, sampling):
        reply = once(request_id, prompt_ids, sampling).result()
        return done(replace(reply, failures=("server a: gone",)) if request_id.endswith("base=0/turn=1") else reply)

    monkeypatch.setattr(world.engine, "complete", flaky)
    stages.base_stage(world, [task()], PLAN)
    [event] = world.incidents.taken(0, "base")
    assert (event.event, event.subject_id, event.detail) == (
        "engine_retry",
        "iteration=0/task=0/base=0/turn=1",
        "server a: gone",
    )
    assert event.reason == "1 tries failed before this reply"
    assert world.incidents.taken(0, "base") == []


def test_a_retry_records_what_its_rollback_returned():
    """Turns 0 to the pivot of a rollback that saw the same; up to the first that differs of one that did not."""
    base, _, [retry], [distilled], _ = run(explorer(trapper(report(2))))
    assert retry.trajectory.rollback_hashes == [
        observation_hash(f"at {k}") if k else base.turns[0].observation_hash for k in range(3)
    ]
    assert distilled.trajectory.rollback_hashes is base.trajectory.rollback_hashes is None
    *_, [drifted], _, _ = run(explorer(trapper(report(2)), CorridorPool(drift={1})))
    assert drifted.trajectory.status == Status.DIVERGED
    assert len(drifted.trajectory.rollback_hashes) == 2
    assert drifted.trajectory.rollback_hashes[1] != base.turns[1].observation_hash
