"""Every table as a list of columns, made from its record: Arrow schemas, DuckDB views and the data dictionary read
it."""

import pyarrow as pa

from r3l.records import Column
from r3l.stages import RECORDS, STAGES
from r3l.store.tables.columns import TableColumn, columns_of

TABLES: dict[str, list[TableColumn]] = {table: columns_of(record) for table, record in RECORDS.items()}


def arrow_schema(table: str, rare: bool = True) -> pa.Schema:
    """Make the Arrow schema of a table; without `rare` that of its identity."""
    columns = [column for column in TABLES[table] if rare or not column.said.rare]
    return pa.schema([pa.field(column.name, column.type, nullable=column.nullable) for column in columns])


def newest(stage: str, rare: bool) -> int:
    """Find the version of the newest column that a stage writes."""
    columns = [column for table in (*STAGES[stage].tables, "events") for column in TABLES[table]]
    return max(column.said.since for column in columns if rare or not column.said.rare)


# The version of what each stage writes, that of its newest column: r3l/store/tables/versions.py reads the older ones,
# newer ones are refused.
VERSIONS: dict[str, int] = {stage: newest(stage, rare=True) for stage in STAGES}
# The version that its identity names: stages of this one and of later ones have the same.
IDENTITY_VERSIONS: dict[str, int] = {stage: newest(stage, rare=False) for stage in STAGES}
RARE = frozenset(column.name for columns in TABLES.values() for column in columns if column.said.rare)
# Events that tell of the machine, not of an attempt: they account for no attempt, and are left out of content digests.
INCIDENTS = ("engine_retry", "engine_restarted", "worker_restarted", "canary", "sampled_again")
# Columns that differ between two runs of the same work: left out of content digests.
VOLATILE = frozenset(column.name for columns in TABLES.values() for column in columns if column.said.volatile)
# Columns that every view has beside the stored ones: they come from the place of the file.
PLACE = [
    TableColumn("run", pa.string(), Column("the run's name")),
    TableColumn("branch", pa.string(), Column("empty: the run itself; else the replay or fork")),
    TableColumn("shard", pa.int32(), Column("shard of the batch; null for stages of the whole batch"), nullable=True),
]
