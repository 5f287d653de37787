"""The pipeline's log. Prefect is told to show the logger `r3l` in its UI (`flows/prefect_settings.py`)."""

import logging
from collections import Counter
from typing import Any

REASONS = 4  # most frequent ones in a line of the log; the tables have all


def log() -> logging.Logger:
    """Find the logger of the pipeline."""
    return logging.getLogger("r3l.pipeline")


def log_line(stage: str, tables: dict[str, Any]) -> str:
    """Say what a stage came to, in one line: its rows, the mean reward, how attempts ended, what was dropped or skipped
    and why."""
    parts = [
        ", ".join(f"{len(rows)} {name}" for name, rows in tables.items() if len(rows) and name != "events") or "no rows"
    ]
    attempts = list(tables.get("trajectories", []))
    if attempts:
        parts.append(f"mean reward {sum(one.reward for one in attempts) / len(attempts):.3f}")
    ends = Counter(str(one.status) for name in ("trajectories", "reflections") for one in tables.get(name, []))
    reasons = Counter(f"{one.event}: {one.reason}" for one in tables.get("events", []))
    parts += [
        ", ".join(f"{count} {what}" for what, count in counts.most_common(REASONS))
        for counts in (ends, reasons)
        if counts
    ]
    return f"{stage}: {'; '.join(parts)}"
