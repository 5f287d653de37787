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
WHOLE, PLAYED = (
    0.4,
    0.5,
)  # shares of whole episodes that are reported on, and played, besides: so that neither is forgotten
BEFORE, AFTER = (2, 8), (1, 4)  # turns of an excerpt, before the one that is named and from it on: at least, less than
TRUE_NUMBERS = 0.5  # share of excerpts that keep their numbers


def report_rows(
    shown: Iterable[Demonstration], encoder: RowEncoder, max_turns: int, rng: random.Random
) -> Iterator[DemoRow]:
    for one in shown:
        whole, played = encoder.rows_once(one, rng)
        if rng.random() < WHOLE:
            yield whole
        if rng.random() < PLAYED:
            yield played
        if f" at turn {one.report['retry_from_step']} can't be undone" in one.report["trajectory_summary"]:
            yield from (encoder.report_row(*excerpt(one, max_turns, rng)) for _ in range(EXCERPTS))


def excerpt(shown: Demonstration, max_turns: int, rng: random.Random) -> tuple[list[Message], dict[str, Any]]:
    """Return the reflector's conversation on some turns about the one that the report names, and the report with their
    numbers."""
    named, turns = shown.report["retry_from_step"], shown.turns
    begin, end = max(0, named - rng.randrange(*BEFORE)), min(len(turns), named + rng.randrange(*AFTER))
    first = begin if rng.random() < TRUE_NUMBERS else rng.randrange(max_turns - (end - begin))
    shown_turns = [(turn.observation, turn.reply) for turn in turns[begin:end]]
    if begin:
        shown_turns[0] = (
            f"{turns[0].observation}\n{shown_turns[0][0]}",
            shown_turns[0][1],
        )  # what is asked for stands in the first observation
    final = turns[end].observation if end < len(turns) else shown.final
    number = named - begin + first
    summary = shown.report["trajectory_summary"].replace(f" at turn {named} ", f" at turn {number} ")
    return (
        reflection_messages(shown_turns, final, float(shown.won), first),
        {**shown.report, "trajectory_summary": summary, "retry_from_step": number},
    )
