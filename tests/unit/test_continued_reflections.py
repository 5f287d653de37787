"""Reflections that continue the attempt's conversation: what is read is the attempt's own ids, then one message."""

import json
from dataclasses import replace

import pytest

from r3l.config.methods import R3LSettings
from r3l.engines.base import Completion
from r3l.engines.chat_format import ChatFormat
from r3l.engines.teacher import PolicyTeacher
from r3l.exploration import stages
from r3l.exploration.guides import About
from r3l.exploration.prompting import continued_messages, prompt
from r3l.lab.warm_start.rows import READ, RowEncoder
from r3l.methods import credit_stage, plan, training_rows_stage
from tests.support.exploration_group import base as base_trajectory
from tests.support.exploration_group import played
from tests.support.fakes import END, CharChat, ScriptedEngine, done, explorer
from tests.support.records import corridor_task as task
from tests.support.records import report
from tests.unit.chat_tokenizers import FAMILIES, family_tokenizer
from tests.unit.test_exploration import GUIDE, PLAN, ids, run, text, trapper
from tests.unit.test_warm_start_training import SYSTEM, demonstration

COUNTED = (
    "The attempt is over. Your replies above are its turns 0 to {last}. To find turn k, count your replies from 0: the "
    "first one is turn 0,\nthe last one is turn {last}."
)


def asked(feedback: str, last: int, reward: str = "0.0", name: str = "reflection") -> str:
    return f"Feedback: {feedback}\nReward: {reward}\n\n{COUNTED.format(last=last)}\n\n{prompt(name)}"


def as_text(context_ids: list[int]) -> str:
    return "".join("|" if token == END else chr(token) for token in context_ids)


def continued(script, **limits):
    return explorer(script, reflection_context="continued", **limits)


def test_the_policy_reads_its_own_ids_and_one_message_and_that_is_stored():
    world = continued(trapper(report(2)), max_turns=3)
    base, reflection, *_ = run(world)
    assert as_text(reflection.context_ids) == (
        "<s>Walk.<u>at 0<a>!right|<u>at 1<a>!right|<u>at 2<a>!trap|<u>" + asked("at 2 trapped", 2) + "<a>"
    )
    assert reflection.context_ids[: len(ids(base.turns))] == ids(base.turns)
    [read] = [prompt_text for name, prompt_text, _ in world.engine.requests if name.endswith("/reflection=0")]
    assert read == "".join(map(chr, reflection.context_ids))
    assert (reflection.status, reflection.pivot_turn, reflection.policy) == ("parsed", 2, "policy-0")


def test_by_default_it_reads_a_transcript():
    _, reflection, *_ = run(explorer(trapper(report(2)), max_turns=3))
    assert as_text(reflection.context_ids).startswith(f"<s>{prompt('reflection')}<u>at 0\nTurn 0: !right\n")


def test_a_last_reply_that_was_cut_off_is_closed_first():
    world = continued(lambda name, _: report(0) if "/reflection=" in name else "!right…", max_turns=1)
    _, reflection, *_ = run(world)
    feedback = "Your reply was cut off after 64 tokens."
    assert as_text(reflection.context_ids) == f"<s>Walk.<u>at 0<a>!right|<u>{asked(feedback, 0)}<a>"


def test_a_distilled_attempt_is_read_as_it_is_stitched_without_the_guidance():
    world = continued(trapper(report(2)))
    base, _, _, [distilled], _ = run(world)
    again = stages.reflections_stage(world, [task()], PLAN, [base], [distilled], 1)[0]
    assert GUIDE not in as_text(again.context_ids)
    assert as_text(again.context_ids) == f"{text(distilled.turns)}<u>{asked('at 5', 4, '1.0')}<a>"


def test_a_critique_continues_too():
    world = continued(lambda name, _: "Too far left." if "/reflection=" in name else "!trap", max_turns=1)
    _, told, *_ = run(world, replace(PLAN, reflection="critique", retry_from="start", retry_when="always"))
    assert as_text(told.context_ids) == f"<s>Walk.<u>at 0<a>!trap|<u>{asked('at 0 trapped', 0, name='critique')}<a>"
    assert told.status == "parsed"


def test_a_teacher_keeps_the_transcript():
    teacher = PolicyTeacher(ScriptedEngine(lambda *_: report(1)), CharChat(), "t1", same_tokens=True)
    world = replace(continued(trapper(report(2)), max_turns=3), teacher=teacher)
    _, told, *_ = run(world, plan(R3LSettings(guidance="teacher", teacher="t"), 2))
    assert as_text(told.context_ids).startswith(f"<s>{prompt('reflection')}<u>at 0\nTurn 0: !right\n")


def test_an_attempt_that_leaves_no_room_is_a_row_with_a_reason():
    class Full(ScriptedEngine):
        def complete(self, request_id, prompt_ids, sampling):
            if "/reflection=" in request_id:
                return done(Completion([], [], "context"))
            return super().complete(request_id, prompt_ids, sampling)

    world = replace(continued(trapper("")), engine=Full(trapper("")))
    _, reflection, retries, *_ = run(world)
    assert (reflection.status, reflection.decision, retries) == (
        "context_limit",
        "no retry: reflection context_limit",
        [],
    )
    assert reflection.reason.endswith("prompt tokens leave no room for a reflection within 100000 tokens")


@pytest.mark.parametrize("family", FAMILIES)
def test_the_chat_templates_of_the_papers_models_are_continued(family):
    template, thinking = FAMILIES[family]
    chat = ChatFormat(family_tokenizer(template), thinking)
    opening = chat.opening([{"role": "system", "content": "Walk."}, {"role": "user", "content": "at 0"}])
    reply = [*chat.tokenizer.encode("!trap", add_special_tokens=False), chat.stop_ids[0]]
    ended = replace(base_trajectory(0), final_observation="at 0 trapped")
    episode = played(ended, (opening, reply))
    about = About(replace(continued(trapper("")), chat=chat), task(), PLAN, episode, 0, "name")
    read = about.begun.context_ids
    message = {"role": "user", "content": asked("at 0 trapped", 0)}
    assert read == [*opening, *reply, *chat.following([message])]
    whole = chat.tokenizer.decode(read)
    assert whole.count(COUNTED.format(last=0)) == 1
    assert (
        chat.tokenizer.decode(read[len(opening) + len(reply) :])
        .rstrip()
        .startswith(
            "\n<|im_start|>user\nFeedback: at 0 trapped"
            if "<|im_end|>" in whole
            else "<|start_header_id|>user<|end_header_id|>\n\nFeedback: at 0 trapped"
        )
    )


def test_its_row_begins_with_the_row_of_its_base_and_learns_the_reflection_alone():
    base, reflection, retries, stitched, _ = run(continued(trapper(report(2))))
    credit, _ = credit_stage(R3LSettings(), [one.trajectory for one in (base, *stitched)])
    rows, _ = training_rows_stage(R3LSettings(), [base, *retries, *stitched], [reflection], credit)
    own, row = (next(row for row in rows if row.role == role) for role in ("explore", "reflect"))
    assert own.source_id == base.trajectory.trajectory_id
    assert row.token_ids[: len(own.token_ids)] == own.token_ids
    assert row.token_ids == reflection.context_ids + reflection.response_ids
    learned = [weight > 0 for weight in row.weights]
    assert learned == [False] * len(reflection.context_ids) + [True] * len(reflection.response_ids)


def test_a_demonstration_is_encoded_in_this_form_with_the_weights_of_the_other():
    chat, shown = ChatFormat.load("data/policies/embedded"), demonstration(2)
    row = RowEncoder(chat, SYSTEM, continued=True).reflection(shown)
    attempt, asked = RowEncoder(chat, SYSTEM).attempt(shown.turns), continued_messages(3, "The end.", 0.0)
    told = [*chat.tokenizer.encode(json.dumps(shown.report)), chat.stop_ids[0]]
    read = attempt.ids + chat.following(asked)
    assert (row.kind, row.ids) == ("reflection", read + told)
    assert row.weights[len(read) :] == RowEncoder(chat, SYSTEM).reflection(shown).weights[-len(told) :]
    assert set(row.weights[len(attempt.ids) : len(read)]) == {READ}
    # the system prompt and the stray action weigh nothing, as in the attempt's own row
    assert [weight > 0 for weight in row.weights[: len(attempt.ids)]] == [weight > 0 for weight in attempt.weights]
    assert set(row.weights[: len(attempt.ids)]) == {0.0, READ}
