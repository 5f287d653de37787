"""The progress artifact of an iteration, while it goes on."""

import threading
import time
from uuid import UUID

import httpx
from prefect.artifacts import create_progress_artifact, update_progress_artifact
from prefect.exceptions import PrefectHTTPStatusError

from r3l.exploration.progress import Progress, mean_reward
from r3l.pipeline.logs import log
from r3l.stages import STAGES

EVERY_S = 3.0  # an update is a request to the server: most finished shards of a quick stage need none


class Live:
    """Tell the server how far an iteration is, whenever a shard of a stage is finished."""

    def __init__(self, key: str, iteration: int, progress: Progress) -> None:
        self.iteration, self.progress = iteration, progress
        begins = f"iteration {iteration} begins"
        self._artifact: UUID = create_progress_artifact(progress=0.0, key=key, description=begins)  # type: ignore[assignment]
        self._lock, self._told = threading.Lock(), time.monotonic()

    def tell(self) -> None:
        """Update the artifact, unless that was done a moment ago or is being done. A server that does not answer is
        told the next time."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            if time.monotonic() - self._told >= EVERY_S:
                share, words = how_far(self.progress.snapshot())
                self._put(100.0 * share, words)
        finally:
            self._lock.release()

    def end(self, words: str) -> None:
        """Say what it came to."""
        with self._lock:
            self._put(100.0, words)

    def _put(self, percent: float, words: str) -> None:
        try:
            update_progress_artifact(self._artifact, percent, description=f"{words} · iteration {self.iteration}")
        except (httpx.HTTPError, PrefectHTTPStatusError) as error:
            log().info("Prefect's server took no sign of progress (%s)", error)
        self._told = time.monotonic()


def how_far(counts: dict[str, dict[str, float]]) -> tuple[float, str]:
    """Measure the share of the iteration's stages and shards that are finished, and say in words what was finished
    last."""
    shards = max(1.0, counts.get("shards", {}).get("planned", 0.0))
    ever = [name for name, stage in STAGES.items() if not stage.apart and (not stage.optional or counts.get(name))]
    parts = {name: shards if STAGES[name].sharded else 1.0 for name in ever}
    parts_done = {name: min(counts.get(name, {}).get("shards", 0.0), parts[name]) for name in ever}
    words = [stage_line(name, parts_done[name], parts[name], counts[name]) for name in ever if parts_done[name]]
    return sum(parts_done.values()) / sum(parts.values()), " · ".join(words[-2:]) or "begins"


def stage_line(name: str, parts_done: float, parts: float, counts: dict[str, float]) -> str:
    """Write a line like ``base 3 of 4 shards, mean reward 0.31–0.44``."""
    words = f"{name} {parts_done:.0f} of {parts:.0f} shards" if parts > 1 else name
    reward = mean_reward(counts)
    return f"{words}, mean reward {reward}" if reward else words
