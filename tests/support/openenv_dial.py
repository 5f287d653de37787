"""An OpenEnv server: a dial with a hidden number. ``python -m tests.support.openenv_dial SESSIONS`` prints its port."""

import random
import socket
import sys
from typing import Any

import uvicorn
from openenv.core.env_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State


class Turn(Action):
    message: str


class Seen(Observation):
    text: str
    turns: int


class Dial(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self.draws, self.number, self.turns = random.Random(0), 0, 0

    def reset(self, seed: int | None = None, episode_id: str | None = None, digits: int = 1, **more: Any) -> Seen:
        self.draws, self.turns = random.Random(seed), 0
        self.number = self.draws.randrange(10**digits)
        return Seen(text=f"A dial of {digits} digits.\x1b[2J", turns=0)

    def step(self, action: Turn, timeout_s: float | None = None, **more: Any) -> Seen:
        self.turns += 1
        if action.message == "break":
            raise OSError("the dial broke")
        right = action.message == str(self.number)
        text = (
            "open" if right else f"{'higher' if int(action.message) < self.number else 'lower'}, {self.draws.random()}"
        )
        return Seen(text=text, turns=self.turns, reward=1.0 if right else -0.25, done=right)

    @property
    def state(self) -> State:
        return State(step_count=self.turns)


if __name__ == "__main__":
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen()  # connections wait from here on, until the server takes them
    print(listening.getsockname()[1], flush=True)
    app = create_fastapi_app(Dial, Turn, Seen, max_concurrent_envs=int(sys.argv[1]))
    uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)).run(sockets=[listening])
