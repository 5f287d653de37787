"""Replies that no one would think of: a report, mutated at random. The same seed gives the same replies."""

import json
import random
from collections.abc import Callable, Iterator

KEYS = ("trajectory_summary", "root_cause_analysis", "trajectory_outcome", "improvement_suggestion", "retry_from_step")
ODD_VALUES = (
    "9999999999", "-9999999999", "2147483647", "2147483648", "-2147483648", "-2147483649", "1e10", "1e400", "-1e400",
    "3.0", "2.5", "-0", '"9999999999"', '"3"', '"3.0"', '"1_0"', '"\\u0663"', '"nan"', '"1e10"', "NaN", "Infinity",
    "-Infinity", "null", "true", "[]", "{}", '""', "9" * 310, "-" + "9" * 310, "9" * 5_000, f'"{"9" * 310}"',
    f'"{"9" * 5_000}"', "0." + "1" * 5_000, "1" + "0" * 308 + ".0", '"\\ud800"', '"\\udfff\\ud800"', '"\\u0000"',
    '"\ud800"', "[" * 70 + "]" * 70, "[" * 1_000 + "]" * 1_000, '{"a":' * 1_000 + "1" + "}" * 1_000, "[" * 100_000,
    '"' + "a" * 100_000 + '"', "undefined", "0x10", "+3", "003", "1,000", '{"retry_from_step": 1}', "/* */ 1", "'1'",
)  # fmt: skip
ODD_PIECES = (
    "{", "}", "[", "]", '"', "\\", ",", ":", "\n", "\x00", "\x1b[2J", "\ud800", "\\ud800", "\ufeff", "[/x]", "}{",
    "```json\n", "9" * 400,
)  # fmt: skip
Mutation = Callable[[random.Random, str], str]


def report(chance: random.Random) -> str:
    """A report whose keys hold proper values mostly, and odd ones now and then."""
    proper = [
        '"s"',
        '"c"',
        chance.choice(['"success"', '"failure"', '"success_but_inefficient"']),
        '"go"',
        str(chance.randrange(6)),
    ]
    pairs = [
        f'"{key}": {chance.choice(ODD_VALUES) if chance.random() < 0.06 else text}'
        for key, text in zip(KEYS, proper, strict=True)
    ]
    if chance.random() < 0.15:
        pairs.append(f"{json.dumps(chance.choice((*KEYS, 'more', '')))}: {chance.choice(ODD_VALUES)}")
    if chance.random() < 0.1:
        chance.shuffle(pairs)
        del pairs[chance.randrange(len(pairs)) :]
    return "{" + ", ".join(pairs) + "}"


def cut(chance: random.Random, reply: str) -> str:
    return reply[: chance.randrange(len(reply) + 1)]


def insert(chance: random.Random, reply: str) -> str:
    place = chance.randrange(len(reply) + 1)
    return reply[:place] + chance.choice(ODD_PIECES) + reply[place:]


def delete(chance: random.Random, reply: str) -> str:
    begin = chance.randrange(len(reply) + 1)
    return reply[:begin] + reply[begin + chance.randrange(1, 20) :]


def swap(chance: random.Random, reply: str) -> str:
    letters = list(reply)
    for _ in range(chance.randrange(1, 4)):
        if letters:
            letters[chance.randrange(len(letters))] = chr(
                chance.choice((chance.randrange(128), chance.randrange(0x11_0000)))
            )
    return "".join(letters)


def prose(chance: random.Random, reply: str) -> str:
    return f"Well: {reply} and {reply if chance.random() < 0.3 else 'so on'}"


MUTATIONS: tuple[Mutation, ...] = (cut, insert, delete, swap, prose)


def replies(count: int, seed: int) -> Iterator[str]:
    """`count` replies, each a report with up to three mutations."""
    chance = random.Random(seed)
    for _ in range(count):
        reply = report(chance)
        for _ in range(chance.choice((0, 0, 0, 1, 1, 2, 3))):
            reply = chance.choice(MUTATIONS)(chance, reply)
        yield reply
