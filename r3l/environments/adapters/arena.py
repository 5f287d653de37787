"""The games of TextArena, for one player or against a scripted opponent. Each turn shows what is new since the last.

Reward: of one player the game's own, in [0, 1]; of two a win is 1, a draw 0.5, a loss 0.
"""

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from r3l.config.environments.adapters import TextArenaSettings
from r3l.environments.adapters.episodes import CopiedEnvironment, Copies
from r3l.environments.adapters.named import object_named
from r3l.environments.adapters.texts import (
    GameWorld,
    clean,
    import_package,
    require_package,
    seed_of,
    seeded_tasks,
)
from r3l.environments.base import Environment, Observation, Step
from r3l.environments.outside import number_of, text_of
from r3l.errors import WorldError
from r3l.records import Task

RAW = "-raw"  # messages one by one, instead of a text that repeats all of them each turn
OFFERED = re.compile(r"(?:Available|Valid|Legal|Possible)[^\n]*:\s*(?P<moves>[^\n]*\[[^\n]*)", re.IGNORECASE)
MOVE = re.compile(r"\[[^\[\]]+\]")


class TextArenaWorld(GameWorld[TextArenaSettings]):
    name = "textarena"
    packages = ("textarena",)

    def __init__(self, settings: TextArenaSettings) -> None:
        super().__init__(settings)
        self.copies = Copies()

    def tasks(self, split: str) -> list[Task]:
        """List the tasks, which are seeds of the game."""
        require_package("textarena", "textarena")
        return seeded_tasks(self.settings, self.name, self.settings.env, split)

    def data(self, split: str) -> str:
        against = "" if self.settings.players == 1 else f" against {self.settings.opponent}"
        return f"{self.settings.env}{against}"

    def make(self) -> Environment:
        return TextArenaEnvironment(self.settings, self.copies)


@dataclass
class Game:
    env: Any
    own: int  # which player the policy is


class TextArenaEnvironment(CopiedEnvironment):
    def __init__(self, settings: TextArenaSettings, copies: Copies) -> None:
        super().__init__(copies)
        self.settings = settings
        self.textarena = import_package("textarena", "textarena")
        self.opponent: Callable[[str], str] = (
            draw_move if settings.opponent == "offered" else object_named(settings.opponent, "environment.opponent")
        )

    def begin(self, task: Task) -> tuple[Game, Observation]:
        try:
            env = self.textarena.make(self.settings.env.removesuffix(RAW) + RAW, **self.settings.options)
            env.reset(num_players=self.settings.players, seed=seed_of(task))
        except (ValueError, AssertionError, LookupError, ImportError, TypeError) as error:
            raise WorldError(
                f"TextArena can't start {self.settings.env} for {self.settings.players}: {type(error).__name__}: "
                f"{str(error).strip():.300}"
            ) from error
        game = Game(env, own=0 if self.settings.players == 1 or self.settings.plays == "first" else 1)
        if self.answer(game):
            raise WorldError(f"{self.settings.env} was over before the policy's first move")
        return game, self.seen(game)

    def act(self, game: Game, action: str) -> Step:
        done, _ = game.env.step(action)
        if not (done or self.answer(game)):
            return Step(self.seen(game))
        observation = self.seen(game)
        rewards, info = game.env.close()
        score = number_of((rewards or {}).get(game.own), f"reward of {self.settings.env}", -1.0, 1.0)
        reward = max(score, 0.0) if self.settings.players == 1 else (score + 1) / 2
        why = str(info.get(game.own, {}).get("reason") or "") if isinstance(info, dict) else ""
        text = f"{observation.text}\n{why}".strip()
        return Step(Observation(clean(text, self.settings.observation_characters)), True, reward, reward == 1.0)

    def answer(self, game: Game) -> bool:
        """Let the opponent move until it is the policy's turn, and tell whether the game is over."""
        while game.env.state.current_player_id != game.own:
            _, messages = game.env.get_observation()
            done, _ = game.env.step(self.opponent(self.said(messages, game.env.state.current_player_id)))
            if done:
                return True
        return False

    def seen(self, game: Game) -> Observation:
        """Collect what is new to the policy, whose turn it is; after the end, what waits for it."""
        waiting = game.env.state.observations[game.own] if game.env.state.done else game.env.get_observation()[1]
        return Observation(clean(self.said(waiting, game.own), self.settings.observation_characters))

    def said(self, messages: list[tuple[int, str, Any]], reader: int) -> str:
        """Join the messages, without the reader's own moves."""
        action = self.textarena.ObservationType.PLAYER_ACTION
        messages_read = [
            (who, text_of(text, "a message"))
            for who, text, kind in messages
            if not (kind == action and who in (reader, -1))
        ]
        return "\n".join(text if who < 0 else f"Player {who}: {text}" for who, text in messages_read)


def draw_move(observation: str) -> str:
    """Draw one of the moves that stand in brackets in the last offer, by the episode's random numbers.

    Raises:
        WorldError: no move is offered.
    """
    offers = OFFERED.findall(observation)
    moves: list[str] = MOVE.findall(offers[-1]) if offers else []
    if not moves:
        raise WorldError(
            f"the opponent finds no moves in brackets in {observation[-200:]!r}: write it as a function and set "
            "environment.opponent=module:function"
        )
    return random.choice(moves)
