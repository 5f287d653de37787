"""The alarms of a line that stand now, in words. What rings, and why: r3l/store/views/alarms.sql."""

from __future__ import annotations

from r3l.store.figures import remembered
from r3l.store.stage import Store

STANDING = "SELECT run, branch, iteration, alarm, advice FROM lines.alarms WHERE standing ORDER BY run, branch, alarm"


def standing_alarms(store: Store, run: str, branch: str = "") -> list[str]:
    """Read the past of the run, once per state of it: alarms compare with the start, the best or the first third."""
    answers = remembered(store, "alarms", {"standing": STANDING}, [run]).runs.get(run, {"standing": []})
    return [row["advice"] for row in answers["standing"] if row["branch"] == branch]
