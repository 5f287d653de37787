"""ALFWorld: steps/s against the stock engine on the same games and commands, rollback by snapshot, load: a row of
the table."""

import contextlib
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from r3l.environments.alfworld.engine import GameEngine, wrapped_environment
from r3l.environments.alfworld.game_files import write_game
from r3l.environments.alfworld.games import generate_game
from r3l.environments.alfworld.parsing import memoised_parsing


def milliseconds(call: Callable[[], Any]) -> tuple[float, Any]:
    began = time.process_time()
    value = call()
    return 1e3 * (time.process_time() - began), value


def stock(path: Path, steps: int) -> tuple[float, list[float], float, list[str]]:
    """The load, the steps, and going back to the middle, which is a reset and the commands until there."""
    env, rng = wrapped_environment(), random.Random(0)
    with contextlib.redirect_stdout(None):
        load, _ = milliseconds(lambda: env.load(str(path)))
    state, times, commands = env.reset(), [], []
    for _ in range(steps):
        commands.append(rng.choice(state["admissible_commands"]))
        spent, (state, _, _) = milliseconds(lambda: env.step(commands[-1]))
        times.append(spent)
    back, _ = milliseconds(lambda: [env.reset(), *map(env.step, commands[: steps // 2])])
    return load, times, back, commands


def memoised(path: Path, commands: list[str]) -> tuple[float, list[float], list[float], list[float]]:
    with memoised_parsing():
        load, engine = milliseconds(lambda: GameEngine(path))
        engine.reset()
        steps, snapshots, restores, kept = [], [], [], []
        for command in commands:
            steps.append(milliseconds(lambda command=command: engine.step(command))[0])
            spent, snapshot = milliseconds(engine.snapshot)
            snapshots.append(spent)
            kept.append(snapshot)
        restores = [milliseconds(lambda snapshot=snapshot: engine.restore(snapshot))[0] for snapshot in kept]
    return load, steps, snapshots, restores


def compared(games: int, steps: int) -> dict[str, list[float]]:
    """Milliseconds of the processor; the two engines take each game in turn."""
    names = ("stock_load", "stock_step", "stock_back", "load", "step", "snapshot", "restore")
    found: dict[str, list[float]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as folder:
        for index in range(games):
            path = write_game(generate_game("kitchen", 0, "benchmark", index), Path(folder))
            loaded, times, back, commands = stock(path, steps)
            load, own, snapshots, restores = memoised(path, commands)
            for name, values in zip(names, ([loaded], times, [back], [load], own, snapshots, restores), strict=True):
                found[name] += values
    return found
