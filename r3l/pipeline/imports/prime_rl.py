"""prime-rl's episodes: `RUN/rollouts/step_7/train/effective/traces.jsonl`, one file for each batch that it trained on.

A line is an episode of verifiers (of earlier versions one of its traces). A trace is a graph of messages; each holds
the token ids that it adds, its mask, and of the sampled ones log-probabilities and advantages, rounded to four
decimals. A path from the first message to a last one is what prime-rl trains as one sequence, and an attempt here. A
reply that two paths share is trained in the first one alone.
"""

import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from r3l.errors import StoreError
from r3l.pipeline.imports.sample import Sample, Tokens, as_text, content_of, json_lines, number, reply_of, tokens_of

STEP = re.compile(r"/step_([0-9]+)/")
FILE = "train/effective/traces.jsonl"


def rows(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the episodes of a file, or of the steps below a folder, with the step that the file's place tells."""
    for file in [path] if path.is_file() else sorted(path.rglob(FILE)):
        step = STEP.search(file.absolute().as_posix())
        for where, row in json_lines(file):
            yield where, (int(step[1]) if step else None, row)


def samples(where: str, row: tuple[int | None, dict[str, Any]]) -> Iterator[Sample]:
    """Yield the attempts of an episode: the paths of the traces that are trained."""
    step, episode = row
    dispatched = ((episode.get("run") or {}).get("work") or {}).get("step")
    group = (episode.get("group") or {}).get("id")
    for trace in episode.get("traces", [episode]):
        agent = trace.get("agent") or {}
        if not agent.get("trainable", True):
            continue
        nodes, reward, done = trace["nodes"], reward_of(where, trace), set[int]()
        for path in paths(where, nodes):
            tokens = sequence(where, [(place, nodes[place]) for place in path], done)
            texts = conversation([nodes[place] for place in path])
            yield Sample(
                step=int(number({"step": dispatched if step is None else step}, "step", where)),
                prompt=texts[0][0] if texts else "",
                turns=texts,
                reward=reward,
                about={"task": (trace.get("task") or {}).get("data")},
                group=f"{group} {agent.get('name')}" if group else "",
                tokens=tokens,
            )


def reward_of(where: str, trace: dict[str, Any]) -> float:
    """Add up the rewards of a trace by their weights, as verifiers does; one that was not computed counts nothing."""
    rewards = [one for one in trace["rewards"].values() if one is not None]
    return math.fsum(number(one, "score", where) * number({"weight": 1.0} | one, "weight", where) for one in rewards)


def paths(where: str, nodes: Sequence[dict[str, Any]]) -> Iterator[list[int]]:
    """Yield the places of the nodes on the way to each that no other follows. Raise `StoreError` where a parent does
    not stand before its child."""
    for own, node in enumerate(nodes):
        if (parent := node.get("parent")) is not None and (type(parent) is not int or not 0 <= parent < own):
            raise StoreError(f"{where}: node {own} has the parent {parent!r:.80}, expected a node before it")
    parents = {node.get("parent") for node in nodes}
    for last in range(len(nodes)):
        if last not in parents:
            path: list[int] = []
            place: Any = last
            while place is not None:
                path.append(place)
                place = nodes[place].get("parent")
            yield path[::-1]


def sequence(where: str, path: Sequence[tuple[int, dict[str, Any]]], done: set[int]) -> Tokens | None:
    """Put the tokens of a path together, and note in `done` which replies it trains; None where there are none."""
    ids, mask, logprobs, advantages = list[Any](), list[Any](), list[Any](), list[Any]()
    for place, node in path:
        own, sampled = node.get("token_ids") or [], node.get("mask") or []
        ids += own
        logprobs += over(where, sampled, node.get("logprobs"))
        advantages += over(where, sampled, node.get("advantages"))
        mask += [False] * len(sampled) if place in done else sampled
        if any(sampled):
            done.add(place)
    told = any(node.get("advantages") is not None for _, node in path)
    worth = [0.0 if one is None else one for one in advantages] if told else None
    return tokens_of(where, ids, mask, logprobs, worth) if ids else None


def over(where: str, mask: Sequence[Any], values: Sequence[Any] | None) -> list[Any]:
    """Spread values of the sampled tokens over all tokens of a message; None where there are none."""
    if values is not None and values and len(values) != sum(map(bool, mask)):
        raise StoreError(f"{where}: {len(values)} values for the {sum(map(bool, mask))} sampled tokens of a message")
    left = iter(values or [])
    return [next(left, None) if one else None for one in mask]


def conversation(nodes: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    """Part the messages of a path into turns: what came since the last sampled reply, and the reply."""
    turns: list[tuple[str, str]] = []
    seen: list[dict[str, Any]] = []
    for node in nodes:
        if node.get("sampled"):
            turns.append((as_text(seen) if not turns else "\n".join(map(content_of, seen)), reply_of(node["message"])))
            seen = []
        else:
            seen.append(node["message"])
    return turns
