"""Attacks by what a model writes."""

from pathlib import Path

from r3l.store.layout import StageKey
from r3l.store.stage import Store
from tests.attacks.outcomes import Outcomes
from tests.properties.test_reply_fuzz import SHARD, shards


def hostile_replies(folder: Path, outcomes: Outcomes, tries: int) -> None:
    """Mutated reflections: each is a row (parsed, or invalid with the reason) or an event, and its shard is
    committed."""
    store = Store.open(str(folder))
    for number, rows in enumerate(shards(max(SHARD, tries), seed=23)):
        stored, told = {}, set()
        with outcomes.attempt(f"the commit of {SHARD} replies"):
            ref = store.commit(StageKey("fuzz", "", 0, "reflections", number), {"reflections": rows}, fingerprint="f")
            stored = {row["reflection_id"]: row for row in store.read(ref, "reflections").to_pylist()}
            told = {event["subject_id"] for event in store.read(ref, "events").to_pylist()}
        for row in rows:
            with outcomes.attempt(f"a reply that begins {row.text!r:.60}"):
                kept = stored.get(row.reflection_id)
                assert kept is not None or row.reflection_id in told, "neither a row nor an event"
                assert kept is None or bool(kept["reason"]) == (kept["status"] == "invalid"), "invalid without reason"
