"""Pages of one run or branch: iterations, groups, the four panes, reflections, the account, tokens."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse, PlainTextResponse, RedirectResponse

from r3l.audit import findings, tasks
from r3l.audit.attempts import find, group, neighbours, panes
from r3l.audit.charts.iterations import iteration_charts
from r3l.audit.groups import SORTS, Filter, choices, group_page
from r3l.audit.lines import Line, line_url, writer
from r3l.audit.reader import Reader
from r3l.audit.tokens import token_page
from r3l.audit.web.app_state import CurrentState, OfLine, whole_number
from r3l.errors import StoreError
from r3l.store.figures import standing_alarms

router = APIRouter(prefix="/run/{run}")
EVENTS = 100
Short = Annotated[str, Query(max_length=400)]
PageNumber = Annotated[int, Query(ge=0, le=10**7)]


@router.get("")
def overview(app_state: CurrentState, line: OfLine, at: Short = "") -> HTMLResponse:
    """Show where the line stands, its iterations over time, and the optimiser step and stages of one of them, the
    newest if none is named."""
    row, left_out = app_state.overview.line(line)
    past, standing = row["past"], row["standing"]
    newest = past[-1]["iteration"] if past else 0
    number = whole_number(at)
    iteration = newest if number is None else number
    reader = app_state.of(line, iteration)  # of a long run all others need not be opened
    return app_state.line_page(
        "iterations.html",
        line,
        "",
        past=past,
        standing=standing,
        alarms=standing_alarms(reader.store, *line.place),
        charts=iteration_charts(past, standing.curves, line),
        at=iteration,
        writer=writer(reader, line, newest),
        steps=reader.rows(findings.STEPS, [*line.place, iteration]),
        trained=reader.rows(findings.TRAINED_ROWS, [*line.place, iteration]),
        stages=findings.stages(reader, line, iteration),
        left_out=reader.left_out() | left_out,
    )


@router.get("/groups")
def groups(
    app_state: CurrentState,
    line: OfLine,
    iteration: Short = "",
    task_type: Short = "",
    status: Short = "",
    mixed: Literal["", "yes", "no"] = "",
    gain: Literal["", "better", "worse", "none"] = "",
    text: Short = "",
    sort: Short = "iteration",
    down: Literal["0", "1"] = "1",
    page: PageNumber = 0,
) -> HTMLResponse:
    """Show the table of groups."""
    table_filter = Filter(
        whole_number(iteration),
        task_type,
        status,
        mixed,
        gain,
        text,
        sort if sort in SORTS else "iteration",
        down == "1",
        page,
    )
    table_page = group_page(app_state.of(line), line, table_filter)
    return app_state.line_page(
        "groups.html", line, "groups", asked=table_filter, shown=table_page, choices=choices(app_state.of(line), line)
    )


@router.get("/group")
def viewer(app_state: CurrentState, line: OfLine, id: Short, iteration: int, attempt: Short = "") -> HTMLResponse:
    """Show the four panes."""
    reader = app_state.of(line, iteration)
    shown_group = group(reader, line, iteration, id, attempt)
    shown_attempt = shown_group.attempt(attempt)
    context = {
        "panes": panes(reader, shown_group, shown_attempt),
        "beside": neighbours(reader, shown_group),
        "left_out": reader.left_out(),
    }
    return app_state.line_page("group.html", line, "groups", group=shown_group, attempt=shown_attempt, **context)


@router.get("/open")
def open_id(app_state: CurrentState, line: OfLine, id: Short) -> RedirectResponse:
    """Go to the panes of a trajectory or reflection."""
    hit = find(app_state.of(line), line, id)
    if hit is None:
        raise StoreError(f"{id}: no trajectory or reflection of {line} has this id")
    return RedirectResponse(line_url(line, "group", id=hit.group_id, iteration=hit.iteration, attempt=id))


@router.get("/reflections")
def reflections(app_state: CurrentState, line: OfLine, iteration: Short = "", fault: Short = "") -> HTMLResponse:
    """Show claims against outcomes, gain by pivot, and the reflections that misled."""
    at = whole_number(iteration)
    return app_state.line_page(
        "reflections.html",
        line,
        "reflections",
        at=at,
        fault=fault,
        faults=findings.FAULTS,
        confusion=findings.confusion(app_state.of(line), line, at),
        pivots=findings.by_pivot(app_state.of(line), line, at),
        accuracy=findings.accuracy(app_state.of(line), line, at),
        worst=findings.worst_reflections(app_state.of(line), line, at, fault),
    )


@router.get("/account")
def account(
    app_state: CurrentState,
    line: OfLine,
    iteration: Short = "",
    stage: Short = "",
    event: Short = "",
    reason: Short = "",
    page: PageNumber = 0,
) -> HTMLResponse:
    """Show where attempts went, and every event by its reason."""
    at, event_filter = whole_number(iteration), {"stage": stage, "event": event, "reason": reason}
    rows = findings.events(app_state.of(line), line, at, event_filter, page, EVENTS)
    return app_state.line_page(
        "account.html",
        line,
        "account",
        at=at,
        chosen=event_filter,
        page=page,
        more=len(rows) > EVENTS,
        events=rows[:EVENTS],
        account=findings.account(app_state.of(line), line, at),
        reasons=findings.reasons(app_state.of(line), line, at),
    )


@router.get("/tokens")
def tokens(
    app_state: CurrentState, line: OfLine, source: Short, iteration: int, page: PageNumber = 0, every: bool = False
) -> HTMLResponse:
    """Show a training row token by token: why was this token trained with this weight?"""
    reader = app_state.of(line, iteration)
    shown = token_page(reader, line, iteration, source, page, every)
    return app_state.line_page("tokens.html", line, "groups", source=source, shown=shown, left_out=reader.left_out())


@router.get("/text")
def text(
    app_state: CurrentState,
    line: OfLine,
    id: Short,
    part: Literal["observation", "response", "final", "reflection"],
    turn: int = 0,
) -> PlainTextResponse:
    """Show a text whole, as it was stored: plain text, in a sandbox of its own, so that a browser does nothing with
    it."""
    headers = {
        "Content-Security-Policy": "default-src 'none'; sandbox",
        "Content-Disposition": 'inline; filename="text.txt"',
    }
    return PlainTextResponse(text_in_store(app_state.of(line), line, id, part, turn), headers=headers)


TEXTS = {
    "observation": "SELECT observation FROM lines.turns WHERE run = ? AND branch = ? AND trajectory_id = ? "
    "AND turn = ?",
    "response": "SELECT response FROM lines.turns WHERE run = ? AND branch = ? AND trajectory_id = ? AND turn = ?",
    "final": "SELECT final_observation FROM lines.trajectories WHERE run = ? AND branch = ? AND trajectory_id = ? "
    "AND ? IS NOT NULL",
    "reflection": "SELECT text FROM lines.reflections WHERE run = ? AND branch = ? AND reflection_id = ? "
    "AND ? IS NOT NULL",
}


def text_in_store(reader: Reader, line: Line, id_: str, part: str, turn: int) -> str:
    """Read a text. Raise StoreError where there is no such text."""
    rows = reader.rows(TEXTS[part], [*line.place, id_, turn])
    if not rows:
        raise StoreError(f"{id_}: no {part} of turn {turn} in {line}")
    return str(next(iter(rows[0].values())))


@router.get("/tasks")
def task_types(app_state: CurrentState, line: OfLine, task_type: Short = "") -> HTMLResponse:
    """Show the success by task type and iteration, and the tasks that were sampled most often."""
    reader = app_state.of(line)
    heats = [
        ("held-out tasks", tasks.heat(reader, line, "evaluation")),
        ("training tasks (bases)", tasks.heat(reader, line)),
    ]
    context = {"heats": heats, "often": tasks.often(reader, line, task_type), "task_type": task_type}
    return app_state.line_page("tasks.html", line, "tasks", **context)


@router.get("/task")
def one_task(app_state: CurrentState, line: OfLine, id: Short, a: Short = "", b: Short = "") -> HTMLResponse:
    """Show one task's attempts over the iterations; two of them side by side where two are chosen."""
    reader = app_state.of(line)
    attempts = tasks.attempts(reader, line, id)
    both = tasks.pair(reader, line, a, b) if a and b else None
    return app_state.line_page("task.html", line, "tasks", task=id, by_iteration=attempts, a=a, b=b, pair=both)
