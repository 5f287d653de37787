"""Demonstrations as supervised rows, encoded exactly as rollouts are: same prompts, same chat format, same positions.

attempt     opening(system, observation 0) + reply 0 + following(observation 1) + reply 1 ...
reflection  opening(reflection prompt, transcript) + report
            (continued: the attempt's ids + following(feedback, reward, reflection prompt) + report)
retry       the attempt's ids before the pivot + following(guidance, observation p) + reply p ...
            (pivot 0: opening(system + guidance, observation 0) + reply 0 ...)
"""

import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from r3l.engines.chat_format import ChatFormat, Message
from r3l.exploration.prompting import continued_messages, guidance, reflection_messages
from r3l.lab.warm_start.alfworld.demonstrations import Demonstration, DemoTurn

READ = 0.15  # weight of what the policy reads: observations teach it to copy
# weight of the words below in thoughts: whether the target is listed is one token, and the rest follows from it
DECIDED = 4.0
DECISIONS = {"yes", "no", "have", "done"}
IDLE = 3
PIVOT = 4.0  # weight of turn numbers in reports: a token each, and the whole retry hangs on them
RETRIES = 0.5  # of `rows_once`: retries in place of failed attempts


@dataclass(frozen=True, slots=True)
class DemoRow:
    """ids and the weight of predicting each of them, aligned."""

    kind: Literal["attempt", "reflection", "retry"]
    ids: list[int]
    weights: list[float]


class RowEncoder:
    """An encoder with caches, because the same observation occurs thousands of times.

    pivot, read_reported: the weights of turn numbers in reports, and of the attempts that are reported on.
    continued: reflections continue the attempt's conversation (rollout.reflection_context).
    """

    def __init__(
        self, chat: ChatFormat, system: str, pivot: float = PIVOT, read_reported: float = READ, continued: bool = False
    ) -> None:
        self.chat, self.system, self.pivot, self.read_reported = chat, system, pivot, read_reported
        self.continued = continued
        self.read: dict[str, list[int]] = {}
        self.replies: dict[str, list[int]] = {}
        self.decisions = {token for word, token in chat.tokenizer.get_vocab().items() if word.lstrip("Ġ") in DECISIONS}

    def rows(self, demonstration: Demonstration) -> Iterator[DemoRow]:
        yield self.attempt(without_tail(demonstration.turns))
        yield self.reflection(demonstration)
        if demonstration.retry:
            yield self.retry(demonstration)

    def rows_once(self, demonstration: Demonstration, rng: random.Random) -> Iterator[DemoRow]:
        """Make rows like `rows`, but no turn twice: of an attempt and the retry from its pivot, one by chance, trained
        on as a whole."""
        yield self.reflection(demonstration)
        if demonstration.retry and rng.random() < RETRIES:
            yield self.retry(demonstration, whole=True)
        else:
            yield self.attempt(without_tail(demonstration.turns))

    def attempt(self, turns: list[DemoTurn]) -> DemoRow:
        row = self.opened("attempt", self.system, turns[0])
        self.extend(row, turns[1:])
        return row

    def drill(self, turns: list[DemoTurn]) -> DemoRow:
        """Encode a drill: thoughts are always trained on, actions only where they are not arbitrary."""
        row = self.opened("attempt", self.system, turns[0])
        for turn in turns[1:]:
            self.add_observation(row, turn)
            ids = self.reply(turn.reply)
            acting = self.reply(turn.reply.partition("</think>")[2])
            self.add(row, ids, self.deciding(ids)[: -len(acting)] + [0.0 if turn.stray else 1.0] * len(acting))
        return row

    def reflection(self, demonstration: Demonstration) -> DemoRow:
        if self.continued:
            return self.continued_reflection(demonstration)
        turns = [(turn.observation, turn.reply) for turn in demonstration.turns]
        return self.report_row(
            reflection_messages(turns, demonstration.final, float(demonstration.won)), demonstration.report
        )

    def continued_reflection(self, demonstration: Demonstration) -> DemoRow:
        """Encode a report behind its attempt. What is read weighs as in a transcript, but stray actions weigh nothing,
        because here they stand where the policy acts."""
        turns, reward = demonstration.turns, float(demonstration.won)
        attempt_row = self.attempt(turns)
        row = DemoRow(
            "reflection", attempt_row.ids, [min(weight, self.read_reported) for weight in attempt_row.weights]
        )
        question_ids = self.chat.following(continued_messages(len(turns), demonstration.final, reward))
        self.add(row, question_ids, [self.read_reported] * len(question_ids))
        self.add_report(row, json.dumps(demonstration.report))
        return row

    def report_row(self, messages: list[Message], report: dict[str, Any]) -> DemoRow:
        ids = self.chat.opening(messages)
        row = DemoRow("reflection", ids, self.reading(ids, self.read_reported))
        self.add_report(row, json.dumps(report))
        return row

    def retry(self, demonstration: Demonstration, whole: bool = False) -> DemoRow:
        """Encode the retry of a demonstration. `whole`: the turns before the pivot are trained on, too."""
        pivot, text = demonstration.report["retry_from_step"], guidance(json.dumps(demonstration.report))
        if pivot == 0:
            row = self.opened("retry", f"{self.system}\n\n{text}", demonstration.retry[0])
        else:
            prefix = self.attempt(demonstration.turns[:pivot])
            row = DemoRow("retry", prefix.ids, prefix.weights if whole else [0.0] * len(prefix.ids))
            first = demonstration.retry[0]
            between = self.chat.following(
                [{"role": "system", "content": text}, {"role": "user", "content": first.observation}]
            )
            self.add(row, between, [0.0] * len(between))
            self.add_reply(row, first)
        self.extend(row, demonstration.retry[1:])
        return row

    def opened(self, kind: Literal["attempt", "retry"], system: str, turn: DemoTurn) -> DemoRow:
        messages: list[Message] = [{"role": "system", "content": system}, {"role": "user", "content": turn.observation}]
        ids = self.chat.opening(messages)
        row = DemoRow(kind, ids, self.reading(ids))
        self.add_reply(row, turn)
        return row

    def extend(self, row: DemoRow, turns: Iterable[DemoTurn]) -> None:
        for turn in turns:
            self.add_observation(row, turn)
            self.add_reply(row, turn)

    def add_observation(self, row: DemoRow, turn: DemoTurn) -> None:
        if turn.observation not in self.read:
            self.read[turn.observation] = self.chat.following([{"role": "user", "content": turn.observation}])
        ids = self.read[turn.observation]
        self.add(row, ids, [READ] * len(ids))

    def add_reply(self, row: DemoRow, turn: DemoTurn) -> None:
        """Add a reply, which is trained on unless it is stray: then it is context to recover from, never an example."""
        ids = self.reply(turn.reply)
        self.add(row, ids, [0.0] * len(ids) if turn.stray else self.deciding(ids))

    def add_report(self, row: DemoRow, text: str) -> None:
        ids = self.reply(text)
        words = [self.chat.tokenizer.decode([token]).strip() for token in ids]
        self.add(
            row,
            ids,
            [
                self.pivot if word.isdigit() and before.endswith(("Turn", "turn", '":')) else 1.0
                for before, word in zip(["", *words], words, strict=False)
            ],
        )

    def reply(self, text: str) -> list[int]:
        """Encode a reply as an engine samples it: the text's ids and the end-of-turn token."""
        if text not in self.replies:
            self.replies[text] = [*self.chat.tokenizer.encode(text, add_special_tokens=False), self.chat.stop_ids[0]]
        return self.replies[text]

    def deciding(self, ids: list[int]) -> list[float]:
        return [DECIDED if token in self.decisions else 1.0 for token in ids]

    def reading(self, ids: list[int], read: float = READ) -> list[float]:
        """Weigh what is read: nothing up to the end of the system prompt, which is the same everywhere, `read` after
        it."""
        system = ids.index(self.chat.stop_ids[0]) + 1
        return [0.0] * system + [read] * (len(ids) - system)

    @staticmethod
    def add(row: DemoRow, ids: list[int], weights: list[float]) -> None:
        row.ids.extend(ids)
        row.weights.extend(weights)


def without_tail(turns: list[DemoTurn]) -> list[DemoTurn]:
    """Cut an attempt that believes it is done after the `IDLE`th such turn: more of the same teaches nothing."""
    idle = [number for number, turn in enumerate(turns) if "done.</think>" in turn.reply]
    return turns[: idle[IDLE - 1] + 1] if len(idle) >= IDLE else turns
