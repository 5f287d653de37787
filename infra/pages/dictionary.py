"""The data dictionary: data/README.md, made from the records and the views' own comments."""

import duckdb

from r3l.stages import STAGES, stages_that
from r3l.store.catalog import MACROS, VIEWS, build, view_sql
from r3l.store.check import INVARIANTS, invariant_sql
from r3l.store.index.contents import Contents
from r3l.store.tables.columns import TableColumn, duck_type
from r3l.store.tables.schemas import PLACE, TABLES, VERSIONS
from r3l.system.visible import table_cell

HEAD = """# Data dictionary

Made by `python -m infra.pages.dictionary` from `r3l/records/`, `r3l/store/views/` and `r3l/store/invariants/`; a test keeps it so.

The tables of a stage are in `<store>/<run>/[branch=<b>/]iteration=00007/<stage>/[shard=003/]`: one `part-<table>-<content>.parquet` per
table, and the manifest `stage.json`, which is written last. Readers use only what a manifest names. `r3l sql "..."` runs a query; worked
questions are in `queries/`. Besides its own columns, every table has those of its place: run, branch and shard.

A table or view without a schema, such as `base`, shows each run without its branches, or, with `r3l sql --branch NAME`, this branch of each
run. The schema `lines` shows all runs and all branches; a branch includes the stages that it takes over from its run. The schema `stored`
shows the tables as they are stored, each row once. A stage that is damaged is left out, and `left_out` says so of its run.

## What can be relied on

- A part is named by its content, and the manifest has its rows, bytes and sha256. A damaged part is found before it is used, and is made
  again.
- A stage is reused only if its fingerprint is the same (stage, version, columns, settings, parents' fingerprints, policy, seed) and what it
  was made from is unchanged. Its digest depends on its rows alone: equal rows have the same digest, whatever the wall time.
- Each iteration has one writer, which holds `writer.lock` with its host and process. The lock of a dead process is taken over. Readers need
  no lock.
- A policy is used only if its files are those that its update wrote. If one is lost or changed, r3l names it and repeats its update.
- Every attempt has a seed. If `transformers_local` samples a shard again on the same kind of processor, ids and log-probabilities are the
  same bits, whatever else the engine does (on a CPU with a C compiler; elsewhere, and beside older rows, except for rounding).
  vLLM's rounding depends on the rest of its batch, unless `engine.batch_invariant` is set. `r3l check RUN --sample-again 3` samples random
  shards again and measures how far the replies agree, with any engine; `r3l bisect A B` finds where two runs part. `machine` in `stages`
  is the processor, libraries and threads of the process that committed a stage.
- An update that is repeated with as many processes and threads on the same kind of machine writes the same policy, optimiser state and
  canary, bit for bit. With another number of processes the order of a sum differs: gradients agree to a millionth of their length.
- A stage of an older version is read as the present version. A newer one is refused by name.
- `r3l replay` writes into `branch=<name>/` and never changes what it replays. `r3l prune` empties the heavy columns of old iterations, or
  deletes their policies, and says what can't be replayed any more. `r3l export` writes one nested file.
- The root is a folder or `s3://bucket/prefix` (keys and endpoint from the `AWS_...` variables; local copies in `R3L_CACHE`).

Without r3l, the files of a stage that its manifest names are plain Parquet, readable by anything.
"""


def dictionary() -> str:
    sections = [HEAD, stage_chain(), place(), "## Tables"]
    sections += [
        f"### {table}\n\nWritten by: {', '.join(writers(table))}.\n\n{rows(columns)}"
        for table, columns in TABLES.items()
    ]
    sections += [
        "## Views",
        view_pages(),
        "## Invariants",
        "`r3l check RUN` runs each; none may return a row.",
        invariants(),
    ]
    return "\n\n".join(section.strip() for section in sections) + "\n"


def stage_chain() -> str:
    """Draw what each stage reads and writes, in the order of the pipeline."""
    chain = [
        f"| `{name}` | {', '.join(stage.parents) or '–'} | {', '.join(stage.tables)} |"
        for name, stage in STAGES.items()
    ]
    return "\n".join(["## Stages\n", "| stage | reads the stages | writes the tables |", "|---|---|---|", *chain])


def writers(table: str) -> list[str]:
    stages = list(STAGES) if table == "events" else stages_that(lambda stage: table in stage.tables)
    return [f"{stage} (version {VERSIONS[stage]})" for stage in stages]


def place() -> str:
    return f"## Place\n\n{rows(PLACE)}"


def rows(columns: list[TableColumn]) -> str:
    lines = [
        f"| `{c.name}` | {duck_type(c.type)}{', may be null' if c.nullable else ''} | {table_cell(c.meaning)} |"
        for c in columns
    ]
    return "\n".join(["| column | type | meaning |", "|---|---|---|", *lines])


def comment(sql: str) -> str:
    """Join the comment lines that an SQL file begins with."""
    lines = []
    for line in sql.splitlines():
        if not line.startswith("--"):
            break
        lines.append(line.removeprefix("--").strip())
    return " ".join(lines)


def view_pages() -> str:
    """Describe each view by its question and its columns, as DuckDB sees them over an empty store."""
    connection = empty()
    pages = [f"### stages\n\nOne row per manifest.\n\n{shape(connection, 'stages')}"]
    pages += [f"### {view}\n\n{comment(view_sql(view))}\n\n{shape(connection, view)}" for view in VIEWS]
    pages.append(f"### Macros\n\n{comment(view_sql(MACROS))}\n\n{macros()}")
    return "\n\n".join(pages)


def macros() -> str:
    """Write how each macro is called."""
    calls = [
        line.removeprefix("CREATE MACRO ") for line in view_sql(MACROS).splitlines() if line.startswith("CREATE MACRO ")
    ]
    return "\n".join(f"- `{call.partition(' AS TABLE')[0]}`" for call in calls)


def empty() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    build(connection, Contents())
    return connection


def shape(connection: duckdb.DuckDBPyConnection, view: str) -> str:
    columns = connection.execute(f"SELECT column_name, column_type FROM (DESCRIBE {view})").fetchall()
    return ", ".join(f"`{name}` {type_}" for name, type_ in columns)


def invariants() -> str:
    return "\n".join(f"- {comment(invariant_sql(name))}" for name in INVARIANTS)


if __name__ == "__main__":
    print(dictionary(), end="")
