"""`r3l play` in the terminal: what the person sees and types."""

import sys

from flows.cli.screen.console import screen
from r3l.config import Config
from r3l.engines.chat_format import ChatFormat
from r3l.environments.base import Observation, Step, World, tools_of
from r3l.errors import ConfigError, WorldError
from r3l.exploration.by_hand import ByHand
from r3l.pipeline.making import ensure_policy
from r3l.records import Task

KEYS = "type an action; /back N: to before turn N; /actions: what the world admits; /quit"


def chat_of(config: Config, world: World) -> ChatFormat:
    return ChatFormat.load(ensure_policy(config).model_path, config.policy.thinking, tools_of(world), light=True)


def task_named(name: str, tasks: list[Task]) -> Task:
    """Raise `ConfigError` where there is no such task."""
    if name.isdecimal() and int(name) < len(tasks):
        return tasks[int(name)]
    for task in tasks:
        if task.task_id == name:
            return task
    raise ConfigError(f"--task {name}: expected 0 to {len(tasks) - 1}, or an id such as {tasks[0].task_id}")


class Player:
    """What the person sees and types."""

    def __init__(self, game: ByHand) -> None:
        self.game, self.console = game, screen()
        self.admissible: tuple[str, ...] = ()

    def play(self) -> None:
        opening = self.game.start()
        self.console.print(f"{self.game.task.task_id} · {KEYS}", style="dim")
        self.show(self.game.prompt(opening), opening)
        while len(self.game.actions) < self.game.settings.max_turns:
            line = self.typed()
            if line is None:
                return
            if line.startswith("/"):
                self.obey(line)
            elif self.took(self.game.take(line)):
                return
        self.console.print(f"not done after {self.game.settings.max_turns} turns", style="yellow")

    def typed(self) -> str | None:
        """Ask for a line; None: the person leaves."""
        try:
            line = input(f"turn {len(self.game.actions)}> ").strip()
        except (EOFError, KeyboardInterrupt):
            return None
        if not sys.stdin.isatty():
            self.console.print(line, style="bold")  # a terminal shows what is typed into it, a pipe does not
        return None if line == "/quit" else line

    def obey(self, line: str) -> None:
        command, _, turn = line.partition(" ")
        if command == "/actions":
            self.console.print("\n".join(self.admissible) or "this world does not list its actions")
        elif command == "/back" and turn.strip().isdecimal():
            try:
                back = self.game.back(int(turn))
            except WorldError as error:
                self.console.print(str(error), style="red")
                return
            self.console.print(f"back before turn {len(self.game.actions)}", style="dim")
            self.show(back.observations[-1], Observation(back.observations[-1], role=back.role))
        else:
            self.console.print(KEYS, style="dim")

    def took(self, step: Step) -> bool:
        """Show what a turn did, and tell whether the episode is over."""
        self.show(self.game.context(step.observation), step.observation)
        reward = step.reward if step.done else step.standing
        over = f"done, {'solved' if step.success else 'not solved'}" if step.done else "goes on"
        progress = "" if step.progress is None else f", {step.progress:.0%} of the way"
        self.console.print(f"{over}: reward {reward:g}{progress}", style="green" if step.success else "dim")
        return step.done

    def show(self, text: str, observation: Observation) -> None:
        self.admissible = observation.admissible
        self.console.print(text, soft_wrap=True)
