"""A trajectory and a run, for the terminal. Text of models is shown as text: no markup, no control codes."""

from contextlib import closing

from rich.columns import Columns
from rich.console import Group as Stack
from rich.console import RenderableType
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from r3l.audit.attempts import Attempt, Panes, find, group, panes
from r3l.audit.figures import in_format, number, seconds, signed, size
from r3l.audit.findings import account, stages
from r3l.audit.lines import Line, iterations, known_line, lines, writer
from r3l.audit.reader import Reader, Row
from r3l.audit.text.untrusted import excerpt, report_fields, shorten
from r3l.audit.weights import ShadeScale, Trained
from r3l.errors import StoreError
from r3l.store.damage import made_elsewhere
from r3l.store.failures import FAILURES, failing_stages
from r3l.store.figures import standing_alarms
from r3l.store.genealogy import iteration_of
from r3l.store.layout import StageKey, line_folder
from r3l.store.metrics import FOLLOWED
from r3l.store.stage import Store

# Background of a reply: raised and lowered, from a little to the most.
UP = ("", "#1c2a44", "#20355e", "#254278", "#2a4f92", "#305fb4")
DOWN = ("", "#3d2a1a", "#54361c", "#6c431f", "#855022", "#a26026")
SHOWN = 2  # iterations whose figures stand side by side in `r3l status`


def show(store: Store, trajectory_id: str, line: Line | None = None) -> RenderableType:
    """Draw a trajectory's conversation with its pivot marked, the reflection beside it, weights as shading.

    Without a line the id is looked for in every run. Raise StoreError where it is in none, or in several.
    """
    every = Reader(store, at=iteration_of(trajectory_id))
    try:
        where = line or only_line(every, trajectory_id)
        line_folder(where.run, where.branch)  # a name that no run can have is looked for nowhere
        reader = every.of(where.run)
        hit = find(reader, where, trajectory_id)
        if hit is None:
            with closing(Reader(store)) as unrestricted:
                known_line(unrestricted, where)
            raise StoreError(f"{trajectory_id}: no trajectory or reflection of {where} has this id")
        whole = group(reader, where, hit.iteration, hit.group_id, hit.trajectory_id)
        attempt = whole.attempt(trajectory_id)
        row = next(member for member in whole.members if member["trajectory_id"] == hit.trajectory_id)
        return conversation(where, row, attempt, panes(reader, whole, attempt))
    finally:
        every.close()


def only_line(reader: Reader, id_: str) -> Line:
    """Find the one run that has this id; branches are asked for by name."""
    runs = [Line(run) for run in reader.store.runs()]
    having = [line for line in runs if find(reader.of(line.run), line, id_)]
    if len(having) != 1:
        there = (
            f"is in {', '.join(map(str, having))}; choose by --run"
            if having
            else f"is in none of {', '.join(map(str, runs)) or 'no runs'}"
        )
        raise StoreError(f"{id_}: {there}")
    return having[0]


def conversation(line: Line, row: Row, attempt: Attempt, seen: Panes) -> RenderableType:
    """Draw the whole view: what it came to, the turns, and the reflection to their right."""
    training_row = seen.trained.get(row["trajectory_id"])
    parts: list[RenderableType] = [heading(line, row, attempt, training_row, seen.lacks_texts(row))]
    pivot = seen.pivot if attempt.retry else None
    turns = dict(seen.of(row))
    if row["kind"] in ("retry", "continuation"):
        parent_turns = seen.turns.get(row["parent_id"], {})
        turns = {**{k: turn for k, turn in parent_turns.items() if k < (pivot or 0)}, **turns}
    views: list[RenderableType] = []
    scale = seen.scale(training_row)
    for k, turn in sorted(turns.items()):
        if k == pivot:
            views.append(Rule(f"pivot {k}", style="magenta"))
        views.append(draw_turn(turn, training_row, scale, differs=k == seen.diverges))
    views.append(Text.assemble(("end  ", "dim"), (excerpt(row["final_observation"]).head, "italic")))
    if attempt.reflection is None:
        return Stack(*parts, *views)
    table = Table.grid(expand=True, padding=(0, 1))
    table.add_column(ratio=3)
    table.add_column(ratio=2)
    table.add_row(Stack(*views), reflection_panel(attempt.reflection))
    return Stack(*parts, table)


def heading(line: Line, row: Row, attempt: Attempt, trained: Trained | None, lacks_texts: bool) -> RenderableType:
    text = Text.assemble(
        (row["trajectory_id"], "bold"), f"  of {line}, task ", (shorten(row["task_id"], 80), "bold"), "\n"
    )
    text.append(f"reward {number(row['reward'], 2)}", style="green" if row["success"] else "red")
    text.append(f"  {row['status']}  {row['turns']} turns, {number(row['response_tokens'])} tokens")
    if attempt.gain is not None:
        text.append(f"  gain of the retry {signed(attempt.gain)}")
    if row["rule"] is not None:
        text.append(f"\nadvantage {signed(row['advantage'])} ({row['rule']}; ")
        text.append(f"group mean {number(row['group_mean'])}, std {number(row['group_std'])})")
        text.append("; each turn has its own" if row["by_turn"] else "")
    text.append(
        f"\ntrained: {trained.row['role']}, {number(trained.row['trained_tokens'])} tokens"
        if trained
        else "\nnot trained on"
    )
    if trained and trained.pruned:
        text.append("; its tokens were pruned")
    if lacks_texts:
        text.append("\nthe texts of its turns were pruned")
    if row["reason"]:
        text.append(f"\n{shorten(row['reason'], 300)}", style="dim")
    return Panel(text, border_style="dim")


def draw_turn(turn: Row, trained: Trained | None, scale: ShadeScale, differs: bool) -> RenderableType:
    """Draw one turn: number, observation, the reply on a ground as strong as its weight x advantage."""
    effect = trained.effect(turn["turn"]) if trained else 0.0
    is_masked = (
        trained is not None
        and trained.aligned
        and turn["turn"] in trained.weights
        and not any(trained.weights[turn["turn"]])
    )
    ground = (UP if effect > 0 else DOWN)[scale.level(effect)]
    weight, style = f"w·Â {signed(effect, 4)}" if effect else "no weight", ""
    if is_masked:
        weight, style = "masked", "dim"
    if ground:
        style = f"#f4f6fa on {ground}"
    text = Text(clip(turn["observation"]), style="dim")
    reply = Text(clip(turn["response"]), style=style)
    reply.append(f"  {weight}{', first divergence' if differs else ''}", style="dim")
    row = Table.grid(padding=(0, 1))
    row.add_row(Text(f"{turn['turn']:>3}", style="bold magenta" if differs else "bold"), Stack(text, reply, ""))
    return row


def clip(content: str) -> str:
    """Cut a text for one turn: its beginning and end, and how much is left out."""
    cut = excerpt(content, 2_000, 300)
    return f"{cut.head}… {number(cut.hidden)} characters …{cut.tail}" if cut.hidden else cut.head


def reflection_panel(reflection: Row) -> RenderableType:
    text = Text(
        f"{reflection['status']}, says {reflection['outcome'] or '–'}, pivot {number(reflection['pivot_turn'])}\n"
    )
    text.append(f"{shorten(reflection['decision'], 200)}\n", style="bold")
    for name, value in report_fields(reflection["report"]) or [("reply", reflection["text"])]:
        text.append(f"\n{shorten(name, 80)}\n", style="magenta").append(f"{clip(value)}\n")
    title = "reflection" if reflection["source"] == "policy" else f"reflection by the {reflection['source']}"
    return Panel(text, title=title, border_style="magenta")


def status(store: Store, run: str, branch: str = "") -> RenderableType:
    """Draw where a run stands: the stages of its newest iteration, its figures beside those before, its account. Raise
    StoreError."""
    reader = Reader(store, [run], newest=SHOWN)
    try:
        line = known_line(reader, Line(run, branch))
        past = iterations(reader, line)
        newest = (
            past[-1]["iteration"]
            if past
            else max(row["last_iteration"] for row in lines(reader) if row["branch"] == branch)
        )
        stage_rows = stages(reader, line, newest)
        return Stack(
            Text.assemble((str(line), "bold"), f"  iteration {newest}, {progress(store, line, newest, stage_rows)}"),
            Text(writer(reader, line, newest) or "nobody is writing it", style="dim"),
            *([Text(past[-1]["no_step"], style="yellow")] if past and past[-1]["no_step"] else []),
            *failures(reader, line, newest),
            *(Text(f"alarm: {advice}", style="yellow") for advice in standing_alarms(store, run, branch)),
            Columns(
                [stage_table(stage_rows), figure_table(past[-SHOWN:]), account_table(account(reader, line, newest))],
                padding=(0, 3),
            ),
        )
    finally:
        reader.close()


def progress(store: Store, line: Line, iteration: int, stage_rows: list[Row]) -> str:
    if any(row["stage"] == "updates" for row in stage_rows):
        return "done"
    imported = made_elsewhere(store, StageKey(line.run, line.branch, iteration, "tasks", None))
    return "imported, without an update" if imported else "not done yet"


def failures(reader: Reader, line: Line, iteration: int) -> list[RenderableType]:
    """Write a line for each stage of the iteration of which attempts ended by errors of the engine or the
    environment."""
    failing = failing_stages(reader.cursor(FAILURES))
    return [
        Text(f"{stage}: {shorten(what, 300)}", style="red" if too_many else "yellow")
        for run, branch, number, stage, what, too_many in failing
        if (run, branch, number) == (line.run, line.branch, iteration)
    ]


def plain_table(title: str, name: str, *figures: str) -> Table:
    """Make a table without lines: names to the left, figures to the right."""
    table = Table(name, title=title, title_justify="left", title_style="bold", header_style="dim", box=None)
    for figure in figures:
        table.add_column(figure, justify="right")
    return table


def stage_table(done: list[Row]) -> Table:
    table = plain_table("committed stages", "stage", "shards", "rows", "size", "seconds")
    for row in done:
        table.add_row(
            row["stage"], str(row["shards"]), number(row["rows"]), size(row["bytes"]), seconds(row["seconds"])
        )
    return table


def figure_table(past: list[Row]) -> Table:
    table = plain_table("figures", "figure", *(f"iteration {row['iteration']}" for row in past))
    for metric in (one for one in FOLLOWED if one.shown):
        if any(row[metric.column] is not None for row in past):
            table.add_row(metric.name, *(in_format(row[metric.column], metric.format) for row in past))
    return table


def account_table(rows: list[Row]) -> Table:
    table = plain_table("account", "attempts of", "all", "trained", "led on", "dropped", "unaccounted")
    for row in rows:
        unaccounted = Text(number(row["unaccounted"]), style="red" if row["unaccounted"] else "green")
        table.add_row(
            row["stage"], *(number(row[name]) for name in ("attempts", "trained", "led_on", "dropped")), unaccounted
        )
    return table
