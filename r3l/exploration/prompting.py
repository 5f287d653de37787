"""What the reflector and the retry are shown. The texts stand in prompts/*.txt; the paper has them in its appendix."""

from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from string import Template
from typing import Literal

PROMPTS = Path(__file__).parent / "prompts"
Message = dict[str, str]
Kind = Literal["report", "critique"]


@cache
def prompt(name: str) -> str:
    """Read the text of prompts/<name>.txt, without the newline at its end."""
    return (PROMPTS / f"{name}.txt").read_text().rstrip("\n")


def transcript(turns: Iterable[tuple[str, str]], final_observation: str, reward: float, first: int = 0) -> str:
    """Write turns of (observation, reply) as the reflector sees them: numbered from `first`, then feedback and the
    reward line.

    ``Turn k:`` stands directly before reply k, so the last number shown is one that the validator accepts.
    """
    lines = [f"{observation}\nTurn {k}: {reply}" for k, (observation, reply) in enumerate(turns, first)]
    return "\n".join([*lines, f"Feedback: {final_observation}", f"Reward: {float(reward)}"])


def reflection_messages(
    turns: Sequence[tuple[str, str]],
    final_observation: str,
    reward: float,
    first: int = 0,
    kind: Kind = "report",
    remembered: str = "",
) -> list[Message]:
    """Write the reflector's conversation: the paper's reflection prompt (or the prompt for a critique in free words),
    then the trajectory."""
    return [
        {"role": "system", "content": request(kind, remembered)},
        {"role": "user", "content": transcript(turns, final_observation, reward, first)},
    ]


def continued_messages(
    turns: int, final_observation: str, reward: float, kind: Kind = "report", remembered: str = ""
) -> list[Message]:
    """Write what is said to a reflector that has its attempt of so many turns before it, as its own conversation:
    feedback, reward, how the turns are counted, then the prompt."""
    asked = request(kind, remembered)
    fields = {"feedback": final_observation, "reward": float(reward), "last": turns - 1, "request": asked}
    return [{"role": "user", "content": Template(prompt("continued")).substitute(fields)}]


def request(kind: Kind, remembered: str = "") -> str:
    """Read the paper's reflection prompt, or the prompt for a critique in free words; below it what guidance is
    remembered, where any is."""
    asked = prompt("reflection" if kind == "report" else kind)
    return f"{asked}\n\n{remembered_guidance(remembered)}" if remembered else asked


def remembered_guidance(report: str) -> str:
    """Write what a reflector is shown of an earlier iteration. `report` is data, never a template."""
    return Template(prompt("remembered")).substitute(report=report)


def guidance(report: str) -> str:
    """Write the guidance text: lead-in, the reflection as JSON, "apply, do not mention". `report` is data, never a
    template."""
    return Template(prompt("guidance")).substitute(report=report)
