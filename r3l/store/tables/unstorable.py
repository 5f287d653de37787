"""Attempts that a table can't hold: each becomes an event, so that what one reply says never stops its shard."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from r3l.errors import StoreError
from r3l.records import Event
from r3l.stages import STAGES
from r3l.store.layout import StageKey
from r3l.store.tables.parts import MISFITS, Misfit, Rows, to_table
from r3l.store.tables.schemas import TABLES

# Tables of sampled attempts, with the column that names the attempt. The rows of an attempt stay or go together.
ATTEMPTS = {table: column.name for table, columns in TABLES.items() for column in columns if column.said.names_attempt}
SHOWN = 200  # characters of a value that the event shows
log = logging.getLogger("r3l.store")


def whole(key: StageKey, tables: Mapping[str, Rows]) -> dict[str, Rows]:
    """Complete the tables of the stage by the empty ones (they get no file). Raise StoreError for a table that the
    stage doesn't write."""
    table_names = (*STAGES[key.stage].tables, "events")
    if foreign := set(tables) - set(table_names):
        raise StoreError(f"stage {key.stage} writes {', '.join(table_names)}, not {', '.join(sorted(foreign))}")
    return {table: tables.get(table, []) for table in table_names}


def storable(key: StageKey, tables: Mapping[str, Rows]) -> dict[str, pa.Table]:
    """Convert the tables of a stage to their schemas, without the attempts that can't be stored; each of those is an
    event.

    Raises:
        StoreError: the rows are of another table, or the stage samples nothing.
        Misfit: none of a table's several rows can be stored. Then the program is at fault, not a reply.
    """
    try:
        return {table: to_table(table, rows) for table, rows in tables.items()}
    except Misfit:
        if not set(STAGES[key.stage].tables) <= set(ATTEMPTS) or any(
            isinstance(rows, pa.Table) for rows in tables.values()
        ):
            raise
        misfits = {table: misfits_of(key, table, rows) for table, rows in tables.items()}
        if any(len(misfits[table]) == len(rows) > 1 for table, rows in tables.items()):
            raise
    events = [event for table in tables for event in misfits[table]]
    for event in events:
        log.warning("stage %s: %s left out: %s", key, event.subject_id, event.reason)
    left_out = {event.subject_id for table in ATTEMPTS for event in misfits.get(table, [])}
    rows_of = {
        table: [row for row in rows if storable_text(value(row, ATTEMPTS[table])) not in left_out]
        for table, rows in tables.items()
        if table in ATTEMPTS
    }
    storable_events = [row for row in tables["events"] if not faults("events", row)]
    both = pa.concat_tables([to_table("events", storable_events), to_table("events", events)])
    return {table: to_table(table, rows) for table, rows in rows_of.items()} | {"events": both}


def misfits_of(key: StageKey, table: str, rows: Sequence[Any]) -> list[Event]:
    """Make an event for each row with values that their columns can't hold."""
    misfits = []
    for row in rows:
        if wrong := faults(table, row):
            subject = storable_text(value(row, ATTEMPTS.get(table, "subject_id")))
            values = "; ".join(f"{name} = {storable_text(value(row, name))[:SHOWN]}" for name in wrong)
            reason = f"its row of {table} can't be stored: " + "; ".join(
                f"{name}: {why}" for name, why in wrong.items()
            )
            misfits.append(Event(key.iteration, key.stage, subject, "unstorable", reason, values))
    return misfits


def faults(table: str, row: Any) -> dict[str, str]:
    """Find the columns that can't hold the row's values, each with the reason."""
    reasons = {}
    for column in TABLES[table]:
        try:
            pa.array([value(row, column.name)], column.type).validate(full=True)
        except MISFITS as error:
            reasons[column.name] = storable_text(error)
    return reasons


def value(row: Any, name: str) -> Any:
    return row[name] if isinstance(row, Mapping) else getattr(row, name)


def storable_text(value: object) -> str:
    """Write the value as text that UTF-8 can hold. Python writes out no integer of more than 4,300 digits."""
    if isinstance(value, int) and value.bit_length() > 4_096:
        return f"an integer of {value.bit_length()} bits"
    return str(value).encode("utf-8", "backslashreplace").decode()
