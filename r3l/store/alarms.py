"""The alarms of a line that stand now, in words. What rings, and why: r3l/store/views/alarms.sql."""

from __future__ import annotations

from r3l.store.catalog import connect
from r3l.store.stage import Store

STANDING = "SELECT iteration, alarm, advice FROM lines.alarms WHERE run = ? AND branch = ? AND standing ORDER BY alarm"


def standing_alarms(store: Store, run: str, branch: str = "") -> list[str]:
    """Read the whole past of the line: an alarm compares with the start, the best or the first third."""
    with connect(store, [run], question=STANDING) as connection:
        return [advice for _, _, advice in connection.execute(STANDING, [run, branch]).fetchall()]
