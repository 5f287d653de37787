"""The run's own log: shown in the Prefect UI where there is a run, on the logger `r3l.flows` elsewhere."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

from prefect import get_run_logger
from prefect.exceptions import MissingContextError

REASONS = 4  # most frequent ones in a line of the log; the tables have all


def log() -> logging.Logger | logging.LoggerAdapter[logging.Logger]:
    try:
        return get_run_logger()
    except MissingContextError:
        return logging.getLogger("r3l.flows")


def told(stage: str, tables: dict[str, Any]) -> str:
    """What a stage came to, in one line: its rows, the mean reward, how attempts ended, what was dropped or skipped and why."""
    parts = [", ".join(f"{len(rows)} {name}" for name, rows in tables.items() if len(rows) and name != "events") or "no rows"]
    attempts = list(tables.get("trajectories", []))
    if attempts:
        parts.append(f"mean reward {sum(one.reward for one in attempts) / len(attempts):.3f}")
    ends = Counter(str(one.status) for name in ("trajectories", "reflections") for one in tables.get(name, []))
    reasons = Counter(f"{one.event}: {one.reason}" for one in tables.get("events", []))
    parts += [", ".join(f"{count} {what}" for what, count in counts.most_common(REASONS)) for counts in (ends, reasons) if counts]
    return f"{stage}: {'; '.join(parts)}"
