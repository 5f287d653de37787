"""Running counts of what exploration does, for a progress display. Safe to use from many threads."""

import threading
import time
from collections import defaultdict
from collections.abc import Callable


class Progress:
    """Counts per stage: `planned` and `done` attempts (of an update: micro-batches), `turns`, `tokens`, those of done
    attempts, `reward` (a sum), finished `shards`, and when it began."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        self._doing: dict[str, str] = {}
        self._waiting: dict[str, Callable[[], object]] = {}

    def on_first(self, stage: str, call: Callable[[], object]) -> None:
        """Call `call` when `stage` is first heard of."""
        self._waiting[stage] = call

    def add(self, stage: str, **amounts: float) -> None:
        if call := self._waiting.pop(stage, None):
            call()
        with self._lock:
            counts = self._counts[stage]
            counts.setdefault("began", time.monotonic())
            for name, amount in amounts.items():
                counts[name] += amount

    def put(self, stage: str, **amounts: float) -> None:
        """Set counts, where their source knows the sums."""
        with self._lock:
            self._counts[stage].update(amounts)

    def say(self, stage: str, doing: str) -> None:
        """Say in words what the stage is doing."""
        with self._lock:
            self._doing[stage] = doing

    def doing(self, stage: str) -> str:
        """Repeat what the stage said last, or nothing."""
        with self._lock:
            return self._doing.get(stage, "")

    def finish(self, stage: str) -> None:
        with self._lock:
            self._counts[stage]["ended"] = time.monotonic()

    def ended(self, stage: str) -> bool:
        """Tell whether the stage was said to be finished."""
        with self._lock:
            return "ended" in self._counts.get(stage, {})

    def snapshot(self) -> dict[str, dict[str, float]]:
        """Copy the counts: stage -> name -> count."""
        with self._lock:
            return {stage: dict(counts) for stage, counts in self._counts.items()}


def mean_reward(counts: dict[str, float]) -> str:
    """Write the mean reward of a stage in words, with bounds while attempts go on; empty where there is none.

    Attempts that win end early, and shards whose attempts win end before others. So a mean over what has ended starts
    too high, also one over whole shards. The attempts under way may come to anything from 0 to 1, which bounds the mean
    over all.
    """
    planned, done = counts.get("planned", 0.0), counts.get("done", 0.0)
    if not done or "reward" not in counts:
        return ""
    if done >= planned:
        return f"{counts['reward'] / done:.2f}"
    return f"{counts['reward'] / planned:.2f}–{(counts['reward'] + planned - done) / planned:.2f}"
