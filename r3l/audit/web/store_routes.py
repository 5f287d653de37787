"""Pages of the whole store: its runs, runs side by side, the SQL box."""

import csv
import io
from collections.abc import Sequence
from decimal import Decimal
from typing import Annotated, Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from fastapi import APIRouter, HTTPException, Query, Request, Response
from fastapi.responses import HTMLResponse

from r3l.audit.charts.answers import answer_chart
from r3l.audit.charts.iterations import compared_charts
from r3l.audit.figures import absent
from r3l.audit.lines import (
    Line,
    branch_difference,
    differing_settings,
    known_line,
    list_lines,
    where_they_part,
    writer,
)
from r3l.audit.reader import Reader, Row
from r3l.audit.text.glossary import GLOSSARY
from r3l.audit.web.access import from_other_site
from r3l.audit.web.app_state import CurrentState
from r3l.audit.web.sandbox import ROWS, SECONDS, Answer
from r3l.errors import StoreError
from r3l.store.metrics import FOLLOWED, Metric
from r3l.store.tables.schemas import TABLES

router = APIRouter()
SIDE_BY_SIDE = 6
DOWNLOADED = 1_000_000  # rows of a file
LOOKED_AT = 20  # lines whose lock is looked at: the newest, as each is a file to read
LINKED = (
    "trajectory_id",
    "base_id",
    "retry_id",
    "distilled_id",
    "reflection_id",
    "parent_id",
    "source_id",
    "subject_id",
)


@router.get("/")
def runs(app_state: CurrentState) -> HTMLResponse:
    """Show the runs of the store, newest first, each with its branches below it."""
    rows, left_out = app_state.overview.rows()
    last = {row["line"]: row["last_iteration"] or 0 for row in rows[:LOOKED_AT]}
    live = {line for line, iteration in last.items() if writer(app_state.reader, line, iteration)}
    return app_state.page("runs.html", rows=rows, live=live, left_out=left_out)


@router.get("/words")
def words(app_state: CurrentState) -> HTMLResponse:
    """Return what each word of the pages means."""
    return app_state.page("words.html", words=GLOSSARY)


@router.get("/compare")
def compare(app_state: CurrentState, line: Annotated[list[str] | None, Query()] = None) -> HTMLResponse:
    """Compare runs and branches: charts, last figures, and the settings in which they differ."""
    there = list_lines(app_state.reader.store)
    compared_lines = [known_line(app_state.reader, Line.parse(text)) for text in dict.fromkeys(line or [])][
        :SIDE_BY_SIDE
    ]
    answers = [app_state.overview.line(one) for one in compared_lines]
    past = [(str(row["line"]), row["past"]) for row, _ in answers]
    standing = {row["line"]: row["standing"] for row, _ in answers}
    return app_state.page(
        "compare.html",
        there=there,
        chosen=compared_lines,
        left_out={run: why for _, left_out in answers for run, why in left_out.items()},
        past=past,
        standing=standing,
        charts=compared_charts(past, [(str(one), standing[one].curves) for one in compared_lines])
        if len(past) > 1
        else [],
        settings=differing_settings(app_state.reader, compared_lines) if len(compared_lines) > 1 else [],
        most=SIDE_BY_SIDE,
        part=where_they_part(app_state.reader, compared_lines),
        change=branch_difference(app_state.reader, compared_lines),
        figures=compared_figures([rows[-1] for _, rows in past if rows]),
    )


def compared_figures(newest: Sequence[Row]) -> list[Metric]:
    """List the figures that one of these iterations has: those that differ first."""
    shown = [metric for metric in FOLLOWED if metric.shown or metric.source == "iterations"]
    measured = [metric for metric in shown if not all(absent(row[metric.column]) for row in newest)]
    return sorted(measured, key=lambda metric: len({row[metric.column] for row in newest}) == 1)


Chosen = Annotated[str, Query(max_length=200)]


@router.get("/sql")
def sql(
    app_state: CurrentState,
    request: Request,
    q: Annotated[str, Query()] = "",
    run: Chosen = "",
    x: Chosen = "",
    y: Annotated[list[Annotated[str, Query(max_length=200)]] | None, Query()] = None,
    by: Chosen = "",
) -> HTMLResponse:
    """Show the SQL box, and the answer where a question was asked. A link of another site fills the box in and asks
    nothing."""
    answer, wrong, status = None, "", 200
    if q.strip() and from_other_site(request.headers, following=False):
        wrong, status = "This question came from a page of another site. Read it, then run it.", 403
    elif q.strip():
        try:
            answer = app_state.box_of(run).ask(q)
        except StoreError as error:
            wrong, status = str(error), 400
    context = {
        "query": q,
        "axes": {name: value for name, value in (("x", x), ("y", y), ("by", by)) if value},
        "run": run,
        "runs": [str(one) for one in list_lines(app_state.reader.store)],
        "answer": answer,
        "left_out": answer.left_out if answer else {},
        "chart": answer_chart(answer.columns, answer.rows, answer.numeric, x, y or (), by) if answer else None,
        "wrong": wrong,
        "questions": app_state.questions,
        "schema": schema(app_state.reader),
        "rows": ROWS,
        "seconds": SECONDS,
        "linked": LINKED,
    }
    return app_state.page("sql.html", status=status, **context)


@router.get("/sql/answer.{kind}")
def download(
    app_state: CurrentState,
    request: Request,
    kind: Literal["csv", "parquet"],
    q: Annotated[str, Query()],
    run: Chosen = "",
) -> Response:
    """Send the answer as a file."""
    if from_other_site(request.headers, following=False):
        raise HTTPException(403, "This question came from a page of another site.")
    answer = app_state.box_of(run).ask(q, rows=DOWNLOADED, whole=True)
    if answer.more:
        raise HTTPException(413, f"The answer has more than {DOWNLOADED:,} rows; use r3l sql or r3l export.")
    content, media = (
        (as_csv(answer), "text/csv") if kind == "csv" else (as_parquet(answer), "application/vnd.apache.parquet")
    )
    return Response(content, media_type=media, headers={"Content-Disposition": f'attachment; filename="answer.{kind}"'})


COLUMNS = """
SELECT table_name, list(column_name ORDER BY column_index) AS columns, list(data_type ORDER BY column_index) AS types
FROM duckdb_columns() WHERE schema_name = 'main' AND NOT internal GROUP BY table_name ORDER BY table_name
"""


def schema(reader: Reader) -> list[Row]:
    """List the views with their columns, types and, where the dictionary has it, meaning."""
    tables = []
    for row in reader.remembered(COLUMNS):
        meanings = {column.name: column.meaning for column in TABLES.get(row["table_name"], ())}
        columns = zip(row["columns"], row["types"], strict=True)
        tables.append(
            {"name": row["table_name"], "columns": [(name, kind, meanings.get(name, "")) for name, kind in columns]}
        )
    return tables


ACTS = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet takes a text that begins so for a formula


def as_csv(answer: Answer) -> bytes:
    """Write UTF-8 with a head line. A text that a spreadsheet would run as a formula gets an apostrophe before it."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(answer.columns)
    writer.writerows([harmless(value) for value in row] for row in answer.rows)
    return out.getvalue().encode(errors="replace")


def harmless(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(ACTS) else value


def as_parquet(answer: Answer) -> bytes:
    """Write columns of numbers, truths or texts; of the text of their values where they are mixed."""
    arrays, names = [], []
    for k, name in enumerate(answer.columns):
        values = [float(row[k]) if isinstance(row[k], Decimal) else row[k] for row in answer.rows]
        try:
            arrays.append(pa.array(values))
        except (pa.ArrowInvalid, pa.ArrowTypeError, UnicodeEncodeError):
            arrays.append(
                pa.array([None if value is None else str(value).encode(errors="replace").decode() for value in values])
            )
        names.append(name if name not in names else f"{name}_{k}")
    out = io.BytesIO()
    pq.write_table(pa.table(arrays, names=names), out)
    return out.getvalue()
