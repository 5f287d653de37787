"""Which tokens of a reply its action is, and what a teacher that weighs these alone makes of a row."""

import json
import random
from dataclasses import asdict
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from r3l.config import compose
from r3l.environments.adapters.texts import parse_action
from r3l.environments.base import Reply
from r3l.environments.math.problems import parse_answer_reply, parse_boxed_reply
from r3l.environments.outside import reply_of
from r3l.environments.replies import parse_tagged_reply
from r3l.environments.tools.calls import parse_calls
from r3l.exploration.episode import action_ids
from r3l.methods import credit_stage, method_of, training_rows_stage
from r3l.pipeline.stages import calls as calls_of_stages
from r3l.stages import STAGES
from r3l.store.stage import Store
from r3l.training.gradients import advantage_of
from r3l.training.rows import UpdateRow
from tests.support.exploration_group import base, played, retry
from tests.support.fakes import END as END_OF_TURN
from tests.support.fakes import CharChat, CorridorWorld
from tests.support.records import turn
from tests.support.rehearsal import rehearse
from tests.support.store_iteration import commit_iteration
from tests.support.update_world import record, rows_of


def world_of(parse):
    return SimpleNamespace(parse_reply=parse)


def calls(text):
    return parse_calls(text, {"find"})


def as_text(text):
    return parse_action(text, "text")


CALL = '{"name": "find", "arguments": {}}'


@pytest.mark.parametrize(("parse", "text", "said"), [
    (parse_tagged_reply, "<think>go\n</think> go: <action> go \n</action> go", "go"),
    (parse_tagged_reply, "<think><action>no</action></think><action>go</action>", "go"),
    (parse_answer_reply, "<think>4</think> 4 <answer> it is 4 </answer> 4", "it is 4"),
    (parse_answer_reply, "<think>4</think><answer>4: \\boxed{ 4 }</answer>", "4"),
    (parse_boxed_reply, "<think>\\boxed{5}</think> \\boxed{4} or \\boxed{4}: 4", "4"),
    (as_text, "<think>left</think>\n left ", "left"),
    (calls, f"<think>{CALL}</think> so <tool_call>{CALL}</tool_call> and {CALL[:5]}", CALL),
    (
        calls,
        f"<tool_call>{CALL}</tool_call>, <tool_call>{CALL}</tool_call>.",
        f"{CALL}</tool_call>, <tool_call>{CALL}",
    ),
    (calls, "<think>why</think> nothing to find ", "nothing to find"),
    (lambda text: Reply(True, "GO"), "<think>so</think> go ", "go"),  # of a plug-in that does not say where
])  # fmt: skip
def test_a_parser_says_where_the_action_stands(parse, text, said):
    start, stop = reply_of(world_of(parse), text).span
    assert text[start:stop] == said
    assert start > text.rfind("</think>")


def test_of_several_equal_boxes_the_last_is_the_action():
    text = "\\boxed{4} or \\boxed{4}: 4"
    assert parse_boxed_reply(text).span == (text.rindex("{4") + 1, text.rindex("{4") + 2)


def test_a_span_that_is_none_is_an_unreadable_reply():
    assert "can't be read" in reply_of(world_of(lambda text: Reply(True, "go", span=(1, "x"))), "go").error


END = 10_000


class Pieces:
    """A chat whose tokens are single bytes, but for two that reach over an end of a tag."""

    def __init__(self):
        letters = [*sorted(pre_tokenizers.ByteLevel.alphabet()), ">g", "o<"]
        vocabulary = {letter: number for number, letter in enumerate(letters)}
        self.tokenizer = Tokenizer(models.BPE(vocabulary, [(">", "g"), ("o", "<")]))
        self.tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        self.tokenizer.decoder = decoders.ByteLevel()

    def closed(self, ids):
        return bool(ids) and ids[-1] == END

    def text(self, ids):
        return self.tokenizer.decode([one for one in ids if one < END], skip_special_tokens=False)

    def whole(self, text):
        return text if text.startswith("<think>") else "<think>" + text


def test_ids_of_an_action_are_those_whose_characters_it_has_by_the_tokenizers_offsets():
    chat, world, random_ = Pieces(), world_of(parse_tagged_reply), random.Random(0)
    reach = set()
    for _ in range(200):
        thought, action = ("".join(random_.choices("go né😀it漢", k=random_.randint(1, 6))) for _ in range(2))
        action += random_.choice(("go", "é", "漢 "))
        text = f"<think>{thought}</think><action>{action}</action>"[random_.choice((0, 7)) :]
        encoded = chat.tokenizer.encode(text)
        made = turn("t", reply=[*encoded.ids, END], response=text, action=action)
        start = text.index("<action>") + 8 + len(action) - len(action.lstrip())
        stop = start + len(action.strip())
        wanted = [k for k, (a, b) in enumerate(encoded.offsets) if a < stop and b > start]
        assert list(range(*action_ids(world, chat, made))) == wanted
        reach.add((encoded.offsets[wanted[0]][0] < start, encoded.offsets[wanted[-1]][1] > stop))
    assert reach == {(False, False), (False, True), (True, False), (True, True)}


def test_a_reply_that_is_all_action_has_no_end_of_turn_among_its_ids_and_an_invalid_one_has_none():
    chat = Pieces()
    chat.whole = lambda text: text
    ids = chat.tokenizer.encode("go it").ids
    world = world_of(as_text)
    assert action_ids(world, chat, turn("t", reply=[*ids, END], response="go it")) == (0, len(ids))
    assert action_ids(world, chat, turn("t", reply=ids, response="go it", valid=False)) == (0, 0)


def test_a_row_says_where_the_actions_of_its_attempt_stand_and_their_tokens_alone_are_weighed():
    """Two turns: contexts 1 2 and 4, replies 3 3 3 and 5 6. The first's action are its last two ids, the other
    has none. The retry was told 4 90 91 in the place of 4."""
    lost = played(base(0, turns=2), ([1, 2], [3, 3, 3]), ([4], [5, 6]))
    won = played(base(1, reward=1.0), ([1, 2], [7]))
    told = played(retry(0, pivot=1, reward=1.0), ([4, 90, 91], [9]), first=1)
    settings = compose(method="serl").method
    credit, _ = credit_stage(settings, [lost.trajectory, won.trajectory])
    ids = {0: (1, 3), 1: (0, 0)}
    rows, _ = training_rows_stage(settings, [lost, won, told], [], credit, lambda made: ids[made.turn])
    row = UpdateRow.read(asdict(rows[0]))
    assert row.teacher["spans"] == [[3, 5]]
    assert row.positions.tolist() == [2, 3, 4, 6, 7]
    assert row.weighed.tolist() == [False, True, True, False, False]
    own, teacher = np.full(5, -1.0), np.array([-0.5, -1.1, -2.0, -3.0, -0.5])
    # A = -.7071, half of it times exp(-gap), gaps -.1 and -1: e^.1 = 1.1052, e^1 clipped to 1.2
    taught = advantage_of(row, torch.tensor(own), torch.tensor(own), teacher)
    a = credit[0].advantage
    assert taught.tolist() == pytest.approx([a, a * (0.5 + 0.5 * 1.10517), a * 1.1, a, a], rel=1e-5)
    assert method_of(settings).weighs_actions(settings)
    everything = settings.model_copy(update={"teacher_weighs": "all"})
    assert not method_of(everything).weighs_actions(everything)
    rows, _ = training_rows_stage(everything, [lost, won, told], [], credit)
    row = UpdateRow.read(asdict(rows[0]))
    assert "spans" not in row.teacher
    assert row.weighed.all()


def test_advantages_agree_with_serl_on_random_numbers():
    """Its published form: 1 - l + l clip(exp(sign(A) gap), 1 - c, 1 + c) times A on tokens of parsed actions, else A; a
    gap beyond 20 counts as 20."""
    rng = np.random.default_rng(3)
    for _ in range(50):
        mix, clip = rng.uniform(size=2)
        spans = np.sort(rng.integers(1, 31, size=2 * rng.integers(0, 4))).reshape(-1, 2).tolist()
        rule = {"rule": "reweigh", "mix": mix, "low": 1 - clip, "high": 1 + clip}
        teacher = {"start": 0, "stop": 0, "ids": [7], **rule, "spans": spans}
        weights = [0.0, *(rng.integers(0, 2, size=29)), 1.0]
        told = {"objective": "clipped_ratio", "objective_settings": json.dumps({"teacher": teacher})}
        turns = {"advantages": rng.normal(size=31).tolist()} if rng.integers(2) else {"advantage": float(rng.normal())}
        [row] = rows_of([record("a", range(1, 32), weights, **told, **turns)])
        own, above = -rng.exponential(5.0, size=(2, len(row.positions)))
        ours = advantage_of(row, torch.tensor(own), torch.tensor(own), above)
        a = np.full(len(own), row.advantage) if row.advantages is None else row.advantages
        in_action = np.array([any(first <= place < stop for first, stop in spans) for place in row.positions])
        share = np.clip(np.exp(np.clip(np.sign(a) * (above - own), -20, 20)), 1 - clip, 1 + clip)
        assert ours.numpy() == pytest.approx(a * np.where(in_action, 1 - mix + mix * share, 1.0), rel=1e-12)


def test_the_stage_asks_world_and_tokenizer_where_the_method_weighs_actions(tmp_path):
    """In the corridor a token is a character, and the action all of a reply but its end of turn."""
    found = {}
    for weighs in ("action", "all"):
        config = compose(run="demo", method="serl", assignments=[f"method.teacher_weighs={weighs}"])
        store = Store.open(str(tmp_path / weighs))
        commit_iteration(store, tables=rehearse(config.method)[0])
        bench = SimpleNamespace(config=config, store=store, chat=CharChat(), world=CorridorWorld())
        parents = [ref for ref in store.stages("demo") if ref.stage in STAGES["training_rows"].parents]
        rows = calls_of_stages.write_training_rows.__wrapped__(bench, None, parents, 0)["training_rows"]
        taught = [UpdateRow.read(asdict(row)) for row in rows]
        found[weighs] = [row for row in taught if row.teacher]
    assert len(found["action"]) == len(found["all"]) == 4
    for action, whole in zip(found["action"], found["all"], strict=True):
        assert action.weighed.tolist() == [token != END_OF_TURN for token in action.token_ids[action.positions]]
        assert whole.weighed.all()
