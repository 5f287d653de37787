"""Pages about a run's tasks: success by type, one task over the iterations, two attempts side by side."""

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from r3l.audit import tasks
from r3l.audit.web.app_state import CurrentState, OfLine
from r3l.audit.web.line_routes import Short

router = APIRouter(prefix="/run/{run}")


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
