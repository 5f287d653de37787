"""Rows as rollouts are encoded, the shared-beginning loss against a plain forward pass, and a run of the whole
command."""

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from r3l.config import compose
from r3l.config.environments import HouseholdSettings
from r3l.engines.chat_format import ChatFormat
from r3l.environments.alfworld.errand import Errand
from r3l.environments.base import report
from r3l.environments.replies import prompt_text
from r3l.errors import TrainingError
from r3l.exploration.prompting import guidance, prompt, reflection_messages
from r3l.lab.warm_start import latent
from r3l.lab.warm_start.alfworld.demonstrations import Demonstration, DemoTurn, reply_text
from r3l.lab.warm_start.household.start import RECIPES, household_start, recipe_of
from r3l.lab.warm_start.latent import latent_start, treated_episodes
from r3l.lab.warm_start.loss import shared_length, weighted_loss
from r3l.lab.warm_start.recipes import ALFWORLD, HOUSEHOLD
from r3l.lab.warm_start.rows import PIVOT, READ, DemoRow, RowEncoder, without_tail
from r3l.lab.warm_start.start import training_minutes, warm_start
from r3l.lab.warm_start.tokenizer import SPECIAL, train_tokenizer
from r3l.lab.warm_start.train import Schedule, batches, new_model, new_optimizers, train
from r3l.store.policies.snapshots import snapshot_digest

SYSTEM = "Play.\n\nUse the tags <think> and <action>."


@pytest.fixture(scope="module")
def chat() -> ChatFormat:
    texts = ["You see a mug 1, and a pan 2.", "put for shelf", "Turn 0: Turn 1: Turn 2: Turn 12: "] * 9
    return ChatFormat(train_tokenizer(texts, [prompt_text("alfworld"), prompt("reflection")], 300))


def demonstration(pivot: int) -> Demonstration:
    turns = [
        DemoTurn(
            f"On the shelf {k}, you see a pan {k}.",
            reply_text("put mug to shelf: no.", f"go to shelf {k}"),
            f"go to shelf {k}",
            stray=k == 1,
        )
        for k in range(3)
    ]
    retry = [
        DemoTurn(f"On the shelf {pivot}, you see a pan {pivot}.", reply_text("yes.", "look"), "look", False),
        DemoTurn("End is near.", reply_text("yes.", "inventory"), "inventory", False),
    ]
    return Demonstration(
        Errand("pick_and_place_simple", "mug", "shelf"), turns, "The end.", False,
        report("Seen. Turn 2 did not do it.", "c", "failure", "s", pivot), retry, True,
    )  # fmt: skip


@pytest.mark.parametrize(
    "text",
    ["ä€ \n\t 0", "You arrive at cabinet 12. The cabinet 12 is closed.", prompt_text("alfworld"), '{"a": "b\\n"}'],
)
def test_any_text_round_trips(chat: ChatFormat, text: str) -> None:
    assert chat.tokenizer.decode(chat.tokenizer.encode(text), skip_special_tokens=False) == text


def test_tags_are_single_tokens_and_prompt_lines_too(chat: ChatFormat) -> None:
    assert [len(chat.tokenizer.encode(tag)) for tag in SPECIAL] == [1] * len(SPECIAL)
    assert len(chat.tokenizer.encode(prompt_text("alfworld"))) <= len(prompt_text("alfworld").split("\n")) + 1


def test_rows_once_train_on_no_turn_twice(chat: ChatFormat) -> None:
    encoder, shown = RowEncoder(chat, SYSTEM), demonstration(1)
    drawn = [list(encoder.rows_once(shown, random.Random(seed))) for seed in range(20)]
    assert {tuple(row.kind for row in rows) for rows in drawn} == {("reflection", "attempt"), ("reflection", "retry")}
    whole = next(rows[1] for rows in drawn if rows[1].kind == "retry")
    kept, alone = encoder.attempt(shown.turns[:1]), encoder.retry(shown)
    assert whole.ids == alone.ids
    assert whole.weights == kept.weights + alone.weights[len(kept.ids) :]
    assert sum(alone.weights[: len(kept.ids)]) == 0 < sum(kept.weights)


def test_an_attempt_is_encoded_as_a_rollout_builds_it(chat: ChatFormat) -> None:
    shown = demonstration(1)
    row = RowEncoder(chat, SYSTEM).attempt(shown.turns)
    ids = chat.opening(
        [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "On the shelf 0, you see a pan 0."}]
    )
    for turn, after in zip(shown.turns, [*shown.turns[1:], None], strict=True):
        ids += [*chat.tokenizer.encode(turn.reply), chat.stop_ids[0]]
        if after:
            ids += chat.following([{"role": "user", "content": after.observation}])
    assert row.ids == ids
    trained = chat.tokenizer.decode([token for token, weight in zip(row.ids, row.weights, strict=True) if weight >= 1])
    assert trained == "".join(f"{shown.turns[k].reply}<|end|>" for k in (0, 2))
    assert row.weights[0] == 0


@pytest.mark.parametrize("pivot", [0, 2])
def test_a_retry_has_its_guidance_where_exploration_puts_it(chat: ChatFormat, pivot: int) -> None:
    shown = demonstration(pivot)
    row = RowEncoder(chat, SYSTEM).retry(shown)
    text = guidance(json.dumps(shown.report))
    opening = [{"role": "user", "content": "On the shelf 0, you see a pan 0."}]
    if pivot == 0:
        expected = chat.opening([{"role": "system", "content": f"{SYSTEM}\n\n{text}"}, *opening])
    else:
        expected = RowEncoder(chat, SYSTEM).attempt(shown.turns[:2]).ids + chat.following(
            [{"role": "system", "content": text}, {"role": "user", "content": "On the shelf 2, you see a pan 2."}]
        )
        assert set(row.weights[: len(expected)]) == {0.0}
    assert row.ids[: len(expected)] == expected
    trained = chat.tokenizer.decode([token for token, weight in zip(row.ids, row.weights, strict=True) if weight >= 1])
    assert trained == "".join(f"{turn.reply}<|end|>" for turn in shown.retry)


def test_turn_numbers_of_a_report_weigh_more(chat: ChatFormat) -> None:
    shown = demonstration(2)
    row = RowEncoder(chat, SYSTEM).reflection(shown)
    turns = [(turn.observation, turn.reply) for turn in shown.turns]
    opening = chat.opening(reflection_messages(turns, "The end.", 0.0))
    assert row.ids == [*opening, *chat.tokenizer.encode(json.dumps(shown.report)), chat.stop_ids[0]]
    assert (
        chat.tokenizer.decode([token for token, weight in zip(row.ids, row.weights, strict=True) if weight == PIVOT])
        == " 2 2"
    )
    assert set(row.weights[: len(opening)]) == {0.0, READ}


def random_rows(rng: random.Random, lengths: list[int]) -> list[DemoRow]:
    start = [rng.randrange(9, 290) for _ in range(7)]
    return [
        DemoRow(
            "attempt",
            start + [rng.randrange(9, 290) for _ in range(length)],
            [0.0] * 7 + [0.15] + [rng.choice([0, 0.15, 1.0])] * (length - 1),
        )
        for length in lengths
    ]


def test_the_loss_and_its_gradient_are_those_of_separate_sequences(chat: ChatFormat) -> None:
    torch.manual_seed(0)
    model, rows = new_model(chat.tokenizer, hidden=32, layers=2, heads=2), random_rows(random.Random(1), [9, 4, 12])
    rows[0].weights[7:] = [1.0] * 9
    assert shared_length(rows) == 7
    assert shared_length([rows[0], rows[0]]) == 7
    loss, _ = weighted_loss(model, rows)
    loss.backward()
    found = model.model.embed_tokens.weight.grad.clone()
    model.zero_grad()
    total = torch.tensor(0.0)
    for row in rows:
        logits = model(input_ids=torch.tensor([row.ids])).logits[0, :-1]
        losses = F.cross_entropy(logits, torch.tensor(row.ids[1:]), reduction="none")
        total = total + (losses * torch.tensor(row.weights[1:])).sum()
    expected = total / sum(sum(row.weights) for row in rows)
    expected.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    torch.testing.assert_close(found, model.model.embed_tokens.weight.grad, rtol=1e-3, atol=1e-6)


def test_batches_hold_their_tokens_and_use_every_row_once(chat: ChatFormat) -> None:
    rows = random_rows(random.Random(2), [5, 50, 20, 21, 22, 80, 3])
    made = []
    for batch in batches(rows, 100, random.Random(0)):
        made.append(batch)
        if sum(map(len, made)) == len(rows):
            break
    assert sorted(id(row) for batch in made for row in batch) == sorted(map(id, rows))
    assert all(max(len(row.ids) for row in batch) * len(batch) <= 100 for batch in made)


@pytest.mark.slow
def test_training_lowers_the_loss_and_repeats(chat: ChatFormat) -> None:
    def run() -> list[float]:
        torch.manual_seed(0)
        model = new_model(chat.tokenizer, hidden=32, layers=1, heads=2)
        rows = [RowEncoder(chat, SYSTEM).attempt(demonstration(1).turns)] * 4
        before = float(weighted_loss(model, rows)[1])
        train(model, rows, Schedule(steps=80, minutes=5, warmup=5), seed=0, progress=lambda text: None)
        return [before, float(weighted_loss(model, rows)[1])]

    first = run()
    assert first[1] < 0.7 * first[0]
    assert run() == first


def test_the_rates_warm_up_and_come_down() -> None:
    schedule = Schedule(warmup=10, floor=0.1)
    assert schedule.factor(0, 0.0) == pytest.approx(0.1)
    assert schedule.factor(100, 0.5) == pytest.approx(0.55)
    assert schedule.factor(100, 1.0) == pytest.approx(0.1)


def test_training_has_its_share_of_the_minutes_where_what_came_before_took_nearly_all() -> None:
    assert training_minutes(20.0, 7.0) == pytest.approx(11.0)
    assert training_minutes(1.0, 0.95) == training_minutes(1.0, 5.0) == pytest.approx(0.3)


@pytest.mark.parametrize("minutes", [0.0, -0.05])
def test_a_schedule_without_time_is_refused(minutes: float) -> None:
    with pytest.raises(TrainingError, match="expected more than 0"):
        Schedule(minutes=minutes)


def test_an_attempt_is_shown_up_to_its_third_idle_turn() -> None:
    def turn(thought: str) -> DemoTurn:
        return DemoTurn("o", reply_text(thought, "look"), "look", False)

    idle = [turn("put mug to shelf: no."), *[turn("put mug to shelf: done.")] * 9]
    assert (len(without_tail(idle)), len(without_tail(idle[:3]))) == (1 + 3, 3)


def test_a_folder_with_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("")
    with pytest.raises(TrainingError, match="not empty"):
        warm_start(tmp_path)


@pytest.mark.slow
def test_the_command_makes_a_policy_that_opens(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    done = warm_start(tmp_path / "policy", seed=3, minutes=1.0, measured_tasks=2, progress=lambda text: None)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "policy")
    assert sum(part.numel() for part in model.parameters()) == done["parameters"] < 2_000_000
    assert ChatFormat.load(tmp_path / "policy").stop_ids
    assert done["heldout"]["tasks"] == 2


def test_every_parameter_has_one_optimizer_and_matrices_begin_at_one_over_the_root_of_the_width(chat):
    model = new_model(chat.tokenizer, hidden=64, layers=2, heads=2)
    muon, adamw = (
        group["params"] for optimizer in new_optimizers(model, Schedule()) for group in optimizer.param_groups
    )
    assert len(muon) == 2 * 7  # q, k, v, o, gate, up, down of each layer
    assert sorted(map(id, [*muon, *adamw])) == sorted(map(id, model.parameters()))
    assert float(muon[0].detach().std()) == pytest.approx(0.125, rel=0.1)


@pytest.mark.parametrize(("model", "recipe"), [("household", "easy"), ("household-long", "long")])
def test_a_preset_plays_what_its_policy_was_taught(model: str, recipe: str) -> None:
    plays, taught = compose(policy=model, environment="household").environment, RECIPES[recipe]
    assert isinstance(plays, HouseholdSettings)
    assert (plays.level, plays.task_types) == (taught.level, taught.task_types)
    assert plays.max_turns == taught.max_turns  # the prompt names them


def test_a_recipe_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        TrainingError,
        match="household recipe 'hard': expected one of short, easy, in_hand, thought, standard, long, latent",
    ):
        household_start(tmp_path / "out", "hard")
    assert all(HOUSEHOLD.match(f"household-{name}-3") for name in RECIPES)


def test_the_dial_is_in_a_policys_name_and_only_the_latent_recipe_has_one(tmp_path: Path) -> None:
    asked = HOUSEHOLD.match("household-latent-0.98-3")
    assert asked is not None
    assert (asked["recipe"], asked["forgets"], asked["seed"]) == ("latent", "0.98", "3")
    assert recipe_of("latent", 0.98).habits.forgets == 0.98
    assert recipe_of("latent", None).habits.forgets == 1.0
    with pytest.raises(TrainingError, match="household recipe 'easy' has no dial"):
        household_start(tmp_path / "out", "easy", forgets=0.5)


@pytest.mark.slow
def test_the_recipe_latent_of_alfworld_leaves_out_treatments_and_still_follows(tmp_path, monkeypatch):
    monkeypatch.setattr(latent, "GAMES", 6)
    monkeypatch.setattr(latent, "STEPS", 1)
    shown: list[Demonstration] = []
    monkeypatch.setattr(
        latent, "treated_episodes", lambda *given: shown.extend(made := treated_episodes(*given)) or made
    )
    asked = ALFWORLD.match("alfworld-latent-1-4")
    assert asked is not None
    made = latent_start(tmp_path / "out", int(asked["seed"]), float(asked["forgets"]), 1, 0, lambda line: None)
    assert shown
    assert all(one.errand.treatment for one in shown)
    assert not any(one.won for one in shown), "every treatment is left out"
    told = [one for one in shown if one.retry]
    assert sum(one.retry_won for one in told) >= len(told) / 2
    assert made["training"]["steps"] == 1
    assert snapshot_digest(tmp_path / "out") == made["digest"] != snapshot_digest(Path("data/policies/embedded"))


def test_the_latent_recipe_goes_on_from_the_easy_policy_of_its_seed(tmp_path, monkeypatch):
    small = replace(RECIPES["easy"], demonstrations=12, steps=6, hidden=32, layers=1)
    monkeypatch.setitem(RECIPES, "easy", small)
    monkeypatch.setitem(RECIPES, "latent", replace(RECIPES["latent"], demonstrations=6, steps=2))
    made = household_start(tmp_path / "household-latent-1-4", "latent", 4, measured_tasks=0, progress=lambda line: None)
    easy = json.loads((tmp_path / "household-easy-4" / "warm_start.json").read_text())
    assert (easy["recipe"], easy["training"]["warm-start"]["steps"]) == ("easy", 6)
    assert (made["recipe"], made["habits"]["forgets"], made["training"]["warm-start"]["steps"]) == ("latent", 1.0, 2)
    assert made["parameters"] == easy["parameters"]
