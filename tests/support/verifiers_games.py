"""Environments of verifiers to play with: a number to be guessed, a drawer of tools, and one that keeps its state to
itself. `load_environment` is what verifiers asks for."""

from typing import Any

import verifiers as vf
from datasets import Dataset

NUMBERS = Dataset.from_list(
    [{"question": f"Guess a number from 1 to 9. (Round {n})", "answer": str(n)} for n in range(1, 10)]
)
KEYS = Dataset.from_list(
    [{"question": f"Open drawer {n} and say what is in it.", "answer": f"key {n}"} for n in (1, 2)]
)


class Guess(vf.MultiTurnEnv):
    """Hints are counted in verifiers' state."""

    async def setup_state(self, state: vf.State) -> vf.State:
        state["hints"] = 0
        return state

    async def env_response(self, messages: vf.Messages, state: vf.State, **kwargs: Any) -> vf.Messages:
        guess, number = str(messages[-1].content).strip(), int(state["answer"])
        state["hints"] += 1
        if guess == str(number):
            state["final_env_response"] = [{"role": "user", "content": "Right."}]
            return state["final_env_response"]
        hint = "higher" if guess.isdecimal() and int(guess) < number else "lower"
        return [{"role": "user", "content": f"Hint {state['hints']}: {hint}."}]


class Hidden(Guess):
    """Hints are counted in the environment, by the id of the episode: no copy of the state reaches them."""

    hints: dict[str, int]

    async def env_response(self, messages: vf.Messages, state: vf.State, **kwargs: Any) -> vf.Messages:
        state["hints"] = self.hints.get(state["trajectory_id"], 0)
        answer = await super().env_response(messages, state, **kwargs)
        self.hints[state["trajectory_id"]] = state["hints"]
        return answer


class Drawers(vf.StatefulToolEnv):
    async def setup_state(self, state: vf.State) -> vf.State:
        state["opened"] = []
        return state

    def update_tool_args(
        self, tool_name: str, tool_args: dict, messages: vf.Messages, state: vf.State, **kwargs: Any
    ) -> dict:
        return {**tool_args, "opened": state["opened"]}


async def open_drawer(number: int, opened: list) -> str:
    """Open a drawer.

    Args:
        number: which drawer, 1 or 2
    """
    opened.append(number)
    return f"key {number}, opening {len(opened)}"


def found(completion: vf.Messages, answer: str, **kwargs: Any) -> float:
    return float(answer in str(completion[-1].content))


def guessed(state: vf.State, **kwargs: Any) -> float:
    return 1.0 / state["hints"] if state.get("final_env_response") else 0.0


def load_environment(game: str = "guess") -> vf.Environment:
    if game == "drawers":
        env = Drawers(dataset=KEYS, rubric=vf.Rubric(funcs=[found]), max_turns=5, system_prompt="Open drawers.")
        env.add_tool(open_drawer, args_to_skip=["opened"])
        return env
    if game == "group":
        return vf.EnvGroup(envs=[load_environment(), load_environment("drawers")], env_names=["a", "b"])
    print("an environment may print while it is loaded")
    hidden = {"hints": {}} if game == "hidden" else {}
    return (Hidden if hidden else Guess)(
        dataset=NUMBERS, rubric=vf.Rubric(funcs=[guessed]), max_turns=6, system_prompt="Guess well.", **hidden
    )
