"""The engine with memoised parsing says what the stock engine says."""

import contextlib
import random
import tracemalloc
from pathlib import Path

import pytest

from r3l.environments.alfworld import engine as engine_module
from r3l.environments.alfworld.engine import GameEngine, Seen, wrapped_environment
from r3l.environments.alfworld.game_files import write_game
from r3l.environments.alfworld.games import generate_game
from r3l.environments.alfworld.parsing import memoised_parsing


def stock_walk(path: Path, steps: int, seed: int) -> list[Seen]:
    """On alfworld's and textworld's own classes, untouched."""
    from textworld.envs import PddlEnv

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_module, "game_class", lambda: PddlEnv)
        env, rng = wrapped_environment(), random.Random(seed)
    with contextlib.redirect_stdout(None):
        env.load(str(path))
    state = env.reset()
    seen = [Seen(state.feedback.split("=-")[1].strip(), tuple(state["admissible_commands"]), state["won"])]
    for _ in range(steps):
        state = env.step(chosen(state["admissible_commands"], rng))[0]
        seen.append(Seen(state.feedback.strip(), tuple(state["admissible_commands"]), state["won"]))
    return seen


def memoised_walk(path: Path, steps: int, seed: int) -> list[Seen]:
    rng = random.Random(seed)
    with memoised_parsing():
        engine = GameEngine(path)
        seen = [engine.reset()]
        for _ in range(steps):
            engine.restore(engine.snapshot())  # as before each step of an episode
            seen.append(engine.step(chosen(seen[-1].admissible, rng)))
    return seen


def chosen(admissible: list[str] | tuple[str, ...], rng: random.Random) -> str:
    return rng.choice(list(admissible)) if rng.random() < 0.95 else "take the moon from the sky"


def compare(tmp_path: Path, games: int, steps: int) -> int:
    compared = 0
    for index in range(games):
        path = write_game(generate_game("full" if index % 2 else "kitchen", 5, "train", index), tmp_path)
        stock, memoised = stock_walk(path, steps, seed=index), memoised_walk(path, steps, seed=index)
        assert stock == memoised
        compared += len(stock) - 1
    return compared


@pytest.mark.slow
def test_memoised_parsing_changes_nothing(tmp_path: Path) -> None:
    assert compare(tmp_path, games=2, steps=20) == 40


def test_snapshots_of_one_game_are_small(tmp_path: Path) -> None:
    """A worker keeps thousands: each is what changed since the one before, and the commands."""
    rng = random.Random(3)
    with memoised_parsing():
        engine = GameEngine(write_game(generate_game("kitchen", 5, "train", 0), tmp_path))
        seen = engine.reset()
        tracemalloc.start()
        kept = []
        for _ in range(150):
            seen = engine.step(chosen(seen.admissible, rng))
            kept.append(engine.snapshot())
        held = tracemalloc.get_traced_memory()[0] / len(kept)
        tracemalloc.stop()
    assert len({snapshot.state_id for snapshot in kept}) > 50
    assert held < 8_000


def test_parsing_is_put_back_after_the_block() -> None:
    from textworld.envs.pddl import textgen
    from textworld.logic import Rule

    before = (textgen._parse_and_convert, textgen.copy_context, Rule.__dict__["parse_conjunctive_query"])
    with memoised_parsing():
        assert textgen.copy_context is not before[1]
    assert (textgen._parse_and_convert, textgen.copy_context, Rule.__dict__["parse_conjunctive_query"]) == before
