"""The SQL cookbook: data/queries/README.md, made from the worked questions and what they answer on the run that
ships."""

from pathlib import Path
from typing import Any

from infra.pages.dictionary import comment
from r3l.store.catalog import connect
from r3l.store.query import query
from r3l.store.stage import Store

DATA = Path(__file__).parents[2] / "data"
ROWS, CELL = 8, 48
HEAD = """# Questions to a run, in SQL

`python -m infra.pages.cookbook` makes this page from the `.sql` files of this folder, and a test compares them. The answers are from
[`sample_run`](../sample_run/README.md), a real run of two iterations that ships with the repository. To ask a question on any store:

```sh
.venv/bin/r3l sql --file data/queries/02_pivots_that_paid_off.sql --store data/sample_run
.venv/bin/r3l audit data/sample_run        # the page SQL has all questions, to run and to change
.venv/bin/marimo edit data/queries/explore.py   # a notebook to continue from; needs uv pip install -e '.[notebook]'
```

The tables and views are described in [the data dictionary](../README.md). A view without a schema, such as `base`, shows each run without its
branches, so that nothing is counted twice. `--branch NAME` shows a branch, and the schema `lines` (`lines.base`) all runs and branches.
"""


def cookbook(store: Store, folder: Path = DATA / "queries") -> str:
    """Write the whole page: each question, its SQL, and the first rows of its answer on `store`."""
    with connect(store) as connection:
        connection.execute("SET threads = 1")  # sums of floats in one order
        sections = [HEAD]
        for path in sorted(folder.glob("*.sql")):
            sql = path.read_text(encoding="utf-8")
            body = "\n".join(line for line in sql.splitlines() if not line.startswith("--")).strip()
            table = query(connection, sql)
            head = f"## {int(path.name.split('_')[0])}. {comment(sql)}\n\n`{path.name}`"
            sections.append(f"{head}\n\n```sql\n{body}\n```\n\n{answer(table.column_names, table.to_pylist())}")
    return "\n\n".join(section.strip() for section in sections) + "\n"


def answer(names: list[str], rows: list[dict[str, Any]]) -> str:
    """Write a Markdown table of the first rows, and how many more there are."""
    if not rows:
        return "No rows in this run."
    lines = [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}"]
    lines += [f"| {' | '.join(answer_cell(row[name]) for name in names)} |" for row in rows[:ROWS]]
    more = f"\n\n… and {len(rows) - ROWS} more rows." if len(rows) > ROWS else ""
    return "\n".join(lines) + more


def answer_cell(value: Any) -> str:
    """Write one line of Markdown that can't be markup: text of models stands in it."""
    if value is None or value != value:  # NaN is not itself
        return ""
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    text = " ".join(text.split())
    text = text if len(text) <= CELL else text[: CELL - 1] + "…"
    return "".join(f"\\{mark}" if mark in "|\\`*<[" else mark for mark in text)


if __name__ == "__main__":
    print(cookbook(Store.open(str(DATA / "sample_run"))), end="")
