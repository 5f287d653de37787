"""Pages of the whole store: its runs, runs side by side, the SQL box."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse

from r3l.audit.desk import AtDesk
from r3l.audit.lines import Line, branch_difference, differing_settings, iterations, known_line, listed
from r3l.audit.pages import iteration_charts
from r3l.audit.sandbox import ROWS, SECONDS, ask
from r3l.errors import StoreError

router = APIRouter()
SIDE_BY_SIDE = 6
LINKED = ("trajectory_id", "base_id", "retry_id", "distilled_id", "reflection_id", "parent_id", "source_id", "subject_id")


@router.get("/")
def runs(desk: AtDesk) -> HTMLResponse:
    """The runs of the store, newest first, each with its branches below it."""
    return desk.page("runs.html", rows=desk.overview.rows())


@router.get("/compare")
def compare(desk: AtDesk, line: Annotated[list[str] | None, Query()] = None) -> HTMLResponse:
    """Runs and branches over one another: charts, last figures, and the settings in which they differ."""
    there = listed(desk.reader.store)
    chosen = [known_line(desk.reader, Line.parse(text)) for text in dict.fromkeys(line or [])][:SIDE_BY_SIDE]
    past = [(str(one), iterations(desk.of(one), one)) for one in chosen]
    return desk.page(
        "compare.html", there=there, chosen=chosen, past=past, charts=iteration_charts(past) if len(past) > 1 else [],
        settings=differing_settings(desk.reader, chosen) if len(chosen) > 1 else [], most=SIDE_BY_SIDE,
        change=branch_difference(desk.reader, chosen),
    )  # fmt: skip


@router.get("/sql")
def sql(desk: AtDesk, q: Annotated[str, Query()] = "") -> HTMLResponse:
    """The SQL box, and the answer where a question was asked."""
    answer, wrong = None, ""
    if q.strip():
        try:
            answer = ask(desk.reader, q)
        except StoreError as error:
            wrong = str(error)
    seen = {"query": q, "answer": answer, "wrong": wrong, "questions": desk.questions, "rows": ROWS, "seconds": SECONDS, "linked": LINKED}
    return desk.page("sql.html", status=400 if wrong else 200, **seen)
