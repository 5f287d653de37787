"""The smallest real iteration: two tasks, N = 4, the embedded policy on the real ALFWorld engine."""

from pathlib import Path
from typing import Any

from r3l.config import Config, compose

SMALL = ["rollout.tasks=2", "rollout.group_size=4", "rollout.tasks_per_shard=1", "environment.max_turns=10"]


def small_config(store: Path | str, *assignments: str, **top: Any) -> Config:
    return compose(assignments=[*SMALL, f"store.root={store}", *assignments], run="small", **top)


def served_config(store: Path | str, url: str, *assignments: str, **top: Any) -> Config:
    """In the household, sampled by the server at `url`."""
    household = ("environment.kind=household", "environment.level=easy", "environment.reply_tokens=80")
    return small_config(store, "engine.kind=vllm_server", f'engine.urls="{url}"', *household, *assignments, **top)
