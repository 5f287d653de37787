"""A process that answers SQL of users: ``python -m r3l.audit.web.sandbox_process <store> <runs and branch> <bytes>``.
JSON lines in and out.

For each question a line says that the store is connected to, and another one has the answer. The kernel ends the
process past its time, whether its parent lives or not, and refuses memory beyond its own at the start plus <bytes>.
"""

import json
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from decimal import Decimal
from typing import Any

import duckdb
import psutil

from r3l.audit.pages import CELL, cell
from r3l.errors import R3LError, StoreError
from r3l.store.query import connect_for_users, one_select
from r3l.store.stage import Store

GRACE_SECONDS = 1.0  # the parent's clock comes first


def fetch(cursor: duckdb.DuckDBPyConnection, query: str, rows: int) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Run a query: the column names and the first rows. In a read-only transaction: a SELECT may hold a DELETE in its
    WITH."""
    try:
        cursor.execute("BEGIN TRANSACTION READ ONLY")
        relation = cursor.sql(one_select(query))
        return list(relation.columns), relation.limit(rows).fetchall()
    # DuckDB may cut its message within a character
    except (duckdb.Error, RuntimeError, MemoryError, UnicodeDecodeError) as error:
        raise StoreError(f"this query can't be run: {error or 'it takes too much memory'}") from error
    finally:
        cursor.close()


def json_value(value: Any, limit: int = CELL) -> Any:
    """Write a value as JSON: numbers as numbers (a Decimal as a list of its text), everything else as the text of a
    cell."""
    if value is None or isinstance(value, bool | int | float) or (isinstance(value, str) and len(value) <= limit):
        return value
    return [str(value)] if isinstance(value, Decimal) else cell(value, limit)


@contextmanager
def writing_nothing() -> Iterator[None]:
    """Forbid writing files: neither by an escape from DuckDB nor by its spilling to disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def main() -> None:
    root, (runs, branch), memory = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
    answers, store = sys.stdout.buffer, None
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl + C ends the parent, and that ends this one's input
    for line in sys.stdin.buffer:
        question = json.loads(line)
        try:
            first, store = store is None, store or Store.open(root, reading=True)
            connection = connect_for_users(store, runs, branch=branch, question=question["sql"])
            if first:
                # a system without such a limit is left alone
                with suppress(OSError, ValueError):
                    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
                    resource.setrlimit(resource.RLIMIT_AS, (psutil.Process().memory_info().vms + memory, hard))
            answers.write(b"{}\n")
            answers.flush()
            # SIGALRM ends a process that does not handle it
            signal.setitimer(signal.ITIMER_REAL, question["seconds"] + GRACE_SECONDS)
            left_out = dict(connection.execute("FROM left_out").fetchall())
            with writing_nothing():
                columns, rows = fetch(connection, question["sql"], question["rows"] + 1)
            limit = sys.maxsize if question["whole"] else CELL
            shown = [[json_value(value, limit) for value in row] for row in rows]
            message = json.dumps({"columns": columns, "rows": shown, "left_out": left_out})
        except (R3LError, duckdb.Error) as error:
            message = json.dumps({"error": str(error)})
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)  # also after a refusal: the next question may come later
        answers.write(message.encode() + b"\n")
        answers.flush()


if __name__ == "__main__":
    main()
