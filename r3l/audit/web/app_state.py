"""What every route works with: the reader, the templates, the worked questions."""

from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import Depends, Query, Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment

from r3l.audit.lines import Line, known_line, list_lines
from r3l.audit.overview import Overview
from r3l.audit.reader import Reader
from r3l.audit.web.sandbox import Question, SqlBox

BOXES = 3  # runs and branches that have a box of their own, each with a process


@dataclass(frozen=True, slots=True)
class AppState:
    """One per app."""

    reader: Reader
    overview: Overview
    templates: Environment
    questions: list[Question]
    box: SqlBox
    boxes: dict[str, SqlBox] = field(default_factory=dict)  # of one run or branch each, the one asked last at the end

    def page(self, template: str, status: int = 200, **seen: Any) -> HTMLResponse:
        """Render a page. `line` in `seen` gives it the tabs of that run, and says what is left out of it."""
        line = seen.get("line")
        if line and "left_out" not in seen:
            seen["left_out"] = self.of(line).left_out()
        content = self.templates.get_template(template).render(
            {"line": None, "left_out": {}, "store": self.reader.store.root} | seen
        )
        return HTMLResponse(content, status_code=status)

    def line_page(self, template: str, line: Line, tab: str, **seen: Any) -> HTMLResponse:
        """Render a page of one run or branch, with the others to change to."""
        return self.page(template, line=line, tab=tab, others=list_lines(self.reader.store), **seen)

    def close(self) -> None:
        """Close the files and the processes that answer SQL."""
        self.reader.close()
        for box in (self.box, *self.boxes.values()):
            box.close()

    def box_of(self, line: str) -> SqlBox:
        """Find the SQL box whose views show this run or branch; each run's own line where none is named. Raise
        StoreError."""
        if not line:
            return self.box
        one = known_line(self.reader, Line.parse(line))
        box = self.boxes.pop(line, None) or SqlBox(self.reader.store, [one.run], branch=one.branch)
        self.boxes[line] = box
        for oldest in list(self.boxes)[:-BOXES]:
            self.boxes.pop(oldest).close()
        return box

    def of(self, line: Line, at: int | None = None) -> Reader:
        """Find the reader for questions about one run, or one iteration of it."""
        return self.reader.of(line.run, at)


def current_state(request: Request) -> AppState:
    app_state: AppState = request.app.state.audit
    return app_state


CurrentState = Annotated[AppState, Depends(current_state)]


def line_of(app_state: CurrentState, run: str, branch: Annotated[str, Query(max_length=100)] = "") -> Line:
    return known_line(app_state.reader, Line(run, branch))


OfLine = Annotated[Line, Depends(line_of)]


def whole_number(text: str) -> int | None:
    """Read a field of a form: empty, or no number, is none."""
    digits = text.strip()
    return int(digits) if digits.lstrip("-").isdecimal() and len(digits) < 10 else None
