"""The last part of a warm start for long tasks: the turn that a report names. It is one number among a thousand tokens,
and so it is trained last.

A few turns about the one that a report names, numbered from anywhere, teach it in a third of the tokens that a whole
episode takes.
"""

import random
from collections.abc import Iterable, Iterator
from typing import Any

from r3l.exploration.prompting import Message, reflection_messages
from r3l.lab.warm_start.alfworld.demonstrations import Demonstration
from r3l.lab.warm_start.rows import DemoRow, RowEncoder

EXCERPTS = 2  # of each episode that was lost by one move
# Shares of whole episodes that are reported on, and played, besides: so that neither is forgotten.
WHOLE, PLAYED = 0.4, 0.5
BEFORE, AFTER = (2, 8), (1, 4)  # turns of an excerpt, before the one that is named and from it on: at least, less than
TRUE_NUMBERS = 0.5  # share of excerpts that keep their numbers


def report_rows(
    episodes: Iterable[Demonstration], encoder: RowEncoder, max_turns: int, rng: random.Random
) -> Iterator[DemoRow]:
    for one in episodes:
        report_row, attempt_row = encoder.rows_once(one, rng)
        if rng.random() < WHOLE:
            yield report_row
        if rng.random() < PLAYED:
            yield attempt_row
        if f" at turn {one.report['retry_from_step']} can't be undone" in one.report["trajectory_summary"]:
            yield from (encoder.report_row(*excerpt(one, max_turns, rng)) for _ in range(EXCERPTS))


def excerpt(demonstration: Demonstration, max_turns: int, rng: random.Random) -> tuple[list[Message], dict[str, Any]]:
    """Cut out the reflector's conversation on some turns about the one that the report names, and the report with their
    numbers."""
    pivot, turns = demonstration.report["retry_from_step"], demonstration.turns
    begin, end = max(0, pivot - rng.randrange(*BEFORE)), min(len(turns), pivot + rng.randrange(*AFTER))
    first = begin if rng.random() < TRUE_NUMBERS else rng.randrange(max_turns - (end - begin))
    shown_turns = [(turn.observation, turn.reply) for turn in turns[begin:end]]
    if begin:
        # What is asked for stands in the first observation.
        shown_turns[0] = (f"{turns[0].observation}\n{shown_turns[0][0]}", shown_turns[0][1])
    final = turns[end].observation if end < len(turns) else demonstration.final
    number = pivot - begin + first
    summary = demonstration.report["trajectory_summary"].replace(f" at turn {pivot} ", f" at turn {number} ")
    return (
        reflection_messages(shown_turns, final, float(demonstration.won), first),
        {**demonstration.report, "trajectory_summary": summary, "retry_from_step": number},
    )
