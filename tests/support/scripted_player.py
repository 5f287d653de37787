"""A server with vLLM's routes that plays easy household games, some of them wrongly: what it says follows from prompt
and seed alone.

`python -m tests.support.scripted_player --port 8000 [--host 0.0.0.0] [--pause 0.01]`: it tells its address once it
listens. No torch.
"""

import argparse
import json
import random
import re
import time
from functools import lru_cache
from pathlib import Path
from typing import Any

from r3l.config.environments import HouseholdSettings
from r3l.engines.chat_format import ChatFormat
from r3l.engines.light_tokenizer import LightTokenizer
from r3l.environments.household.engine import State, engine_of
from r3l.environments.household.solver import solve
from r3l.environments.household.world import HouseholdWorld
from r3l.errors import WorldError
from tests.unit.scripted_vllm import ScriptedVllm, scripted_logprob

LEVEL = "easy"
TASKS = 1000
STRAYS = 0.25  # chance of a needless action, where no guidance is in sight
ACTION = re.compile(r"<action>(.*?)</action>")
GUIDED = "root_cause_analysis"


class ScriptedPlayer(ScriptedVllm):
    """Speaks the embedded policy's tokens. `pause` seconds a reply make it as slow as a model."""

    def __init__(self, pause: float = 0.0, **options: Any) -> None:
        self.pause = pause
        self.chat = ChatFormat(LightTokenizer(Path("data/policies/embedded")))
        world = HouseholdWorld(HouseholdSettings(level=LEVEL, train_tasks=TASKS))
        self.games: dict[str, list[str]] = {}
        for task in world.tasks("train"):
            self.games.setdefault(engine_of(task.payload).opening(), []).append(task.payload)
        super().__init__(**options)

    def answer(self, route: str, body: dict[str, Any]) -> tuple[int, Any]:
        if len(self.bodies) > 1000:
            self.bodies.clear()
        status, answer = super().answer(route, body)
        if route == "/v1/models":
            answer["data"][0]["max_model_len"] = 4096
        return status, answer

    def completions(self, body: dict[str, Any]) -> tuple[int, Any]:
        policy = self.policy(body["model"])
        if policy is None:
            return 404, {"error": {"message": f"The model `{body['model']}` does not exist."}}
        prompt = body["prompt"]
        if "prompt_logprobs" in body:
            places = [
                {str(token): {"logprob": scripted_logprob(policy, place)}} for place, token in enumerate(prompt[1:])
            ]
            return 200, {"choices": [{"prompt_logprobs": [None, *places]}]}
        time.sleep(self.pause)
        reply = self.chat.tokenizer.encode(self.reply(prompt, body["seed"]), add_special_tokens=False)[
            : body["max_tokens"] - 1
        ]
        ids = [*reply, *self.chat.stop_ids]
        return 200, {
            "choices": [
                {"token_ids": ids, "logprobs": {"token_logprobs": [-0.25] * len(ids)}, "finish_reason": "stop"}
            ],
            "usage": {"prompt_tokens_details": {"cached_tokens": 0}},
        }

    def reply(self, prompt: list[int], seed: int) -> str:
        text = self.chat.tokenizer.decode(prompt)
        rng = random.Random(seed)
        return reflection(text) if text.startswith("<|system|>You are a Reflector") else self.action(text, rng)

    def action(self, text: str, rng: random.Random) -> str:
        """The next step of the shortest way, or now and then a needless one."""
        system, _, talk = text.partition("<|user|>")
        opening = next((one for one in self.games if one in talk), "")
        done = tuple(ACTION.findall(talk.partition(opening)[2]))
        guided = GUIDED in system or GUIDED in talk
        if not opening or rng.random() < (0.0 if guided else STRAYS):
            return "<think>Let me look.</think><action>look</action>"
        alike = (step for payload in self.games[opening] if (step := next_step(payload, done, talk)))
        return f"<think>Go on.</think><action>{next(alike, 'look')}</action>"


@lru_cache(maxsize=4096)
def played(payload: str, done: tuple[str, ...]) -> tuple[State, str]:
    """The state that `done` leads to, and the last observation."""
    engine = engine_of(payload)
    if not done:
        return engine.first, engine.opening()
    state, _ = played(payload, done[:-1])
    return engine.step(state, done[-1])


def next_step(payload: str, done: tuple[str, ...], talk: str) -> str:
    """The first action of the shortest way from where `done` leads to; "" for a game that would have said something
    else."""
    if any(played(payload, done[:turn])[1] not in talk for turn in range(len(done) + 1)):
        return ""
    try:
        return (solve(engine_of(payload), played(payload, done)[0]) or ["look"])[0]
    except WorldError:
        return "look"


def reflection(text: str) -> str:
    won = "Reward: 1.0" in text
    return json.dumps(
        {
            "trajectory_summary": "s",
            "root_cause_analysis": "Time was lost.",
            "improvement_suggestion": "Go on.",
            "trajectory_outcome": "success" if won else "failure",
            "retry_from_step": 0 if won else 1,
        }
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--pause", type=float, default=0.0)
    asked = parser.parse_args()
    server = ScriptedPlayer(asked.pause, host=asked.host, port=asked.port)
    print(server.url, flush=True)
    while True:
        time.sleep(60)


if __name__ == "__main__":
    main()
