"""The state of a line in a few tiles and a line on its health. Its pages begin with it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from r3l.audit import figures
from r3l.audit.held_out import Curve, held_out
from r3l.audit.lines import Line, saved_policy
from r3l.audit.reader import Row
from r3l.intervals import difference
from r3l.store.stage import Store

ABOUT_BY_ITERATION = """
SELECT run, branch, arg_max(settings ->> '$.method.kind', iteration) FILTER (stage = 'credit') AS method,
       arg_max(settings ->> '$.environment.kind', iteration) FILTER (stage = 'base') AS environment,
       max(iteration) AS iteration, list(DISTINCT iteration) FILTER (stage = 'updates') AS updated,
       arg_max(stage, committed_at) AS newest_stage
FROM stages GROUP BY run, branch, stages.iteration ORDER BY run, branch, stages.iteration
"""
FEW_PARSE = 0.5  # of reflections; fewer leave most bases without a retry
FELL = 0.25  # points by which the share that parses may fall from one iteration to the next


@dataclass(frozen=True, slots=True)
class Tile:
    """One figure: its value, its change (`points`: in percentage points) and what it is measured on."""

    name: str
    value: str
    note: str = ""
    change: str = ""


@dataclass(frozen=True, slots=True)
class Standing:
    """What a line is, and its state."""

    method: str = ""
    policy: str = ""
    environment: str = ""
    state: str = ""
    curves: tuple[Curve, ...] = ()

    def about(self) -> str:
        return " · ".join(filter(None, (self.method, self.policy, self.environment)))

    def tiles(self, past: Sequence[Row]) -> list[Tile]:
        """Make the tiles: held-out success first, then the newest iteration."""
        return [*held_out_tiles(self.curves), *(iteration_tiles(past) if past else ())]

    def health(self, past: Sequence[Row]) -> list[str]:
        """List what is wrong with the newest iteration; empty where nothing is."""
        return list(complaints(past)) if past else []


def held_out_tiles(curves: Sequence[Curve]) -> Iterator[Tile]:
    for curve in curves:
        now, before = curve.newest, curve.before
        low, high = now.interval
        value = f"{points(now.rate)} % [{points(low)}–{points(high)}]"
        change = ""
        if before:
            low, high = difference((now.rate, now.independent), (before.rate, before.independent))
            since = f"[{100 * low:+.0f} to {100 * high:+.0f}] since iteration {before.iteration}"
            change = change_of(now.rate, before.rate, since)
        where = "the starting policy" if now.iteration < 0 else f"iteration {now.iteration}"
        name = "held-out success" if curve == curves[0] else curve.benchmark
        yield Tile(name, value, f"{now.solved} of {now.episodes} tasks, {where}, {curve.benchmark}", change)


def iteration_tiles(past: Sequence[Row]) -> Iterator[Tile]:
    now, before = past[-1], past[-2] if len(past) > 1 else {}
    if now["base_success"] is not None:
        change = change_of(now["base_success"], before.get("base_success"))
        yield Tile("base success", f"{points(now['base_success'])} %", f"of {now['bases']:,} attempts", change)
    if now["retries"]:
        change = change_of(now["retry_improvement"], before.get("retry_improvement"))
        yield Tile("retries improved", f"{points(now['retry_improvement'])} %", f"of {now['retries']:,}", change)
    if now["groups"]:
        yield Tile("mixed groups", f"{now['mixed_groups']} of {now['groups']}", "whose rewards differ")
    if not figures.absent(now["kl_start"]):
        yield Tile("KL to the start", figures.short_number(now["kl_start"]), "k3 estimate, nats per token")


def complaints(past: Sequence[Row]) -> Iterator[str]:
    now = past[-1]
    if now["step"] is not None and not now["trained_tokens"]:
        yield "no step taken"
    if now["groups"] and not now["mixed_groups"]:
        yield "no group has mixed rewards"
    rates = [row["parse_rate"] for row in past if row["parse_rate"] is not None]
    if now["parse_rate"] is not None and (now["parse_rate"] < FEW_PARSE or max(rates[-2:]) - rates[-1] > FELL):
        fell = "fell to" if len(rates) > 1 and rates[-2] > rates[-1] else "are"
        yield f"reflections that parse {fell} {points(now['parse_rate'])} %"


def points(share: float) -> str:
    return f"{100 * share:.0f}"


def change_of(now: float, before: float | None, since: str = "") -> str:
    """Write ▲ +6 points, ▼ −6 points, or = if both round to the same."""
    if figures.absent(before) or before is None:
        return ""
    points_moved = round(100 * now) - round(100 * before)
    sign = "= ±"
    if points_moved:
        sign = "▲ +" if points_moved > 0 else "▼ −"
    return f"{sign}{abs(points_moved)} points {since}".strip()


def policy_of(store: Store, row: Row) -> str:
    """Find the policy's name for a row of ABOUT_BY_ITERATION, as saved with its iteration; empty where none is."""
    return str(saved_policy(store, Line(row["run"], row["branch"]), row["iteration"]).get("name", ""))


def standings_of(about: Sequence[Row], counts: Sequence[Row]) -> dict[Line, Standing]:
    """Make the standings from rows of ABOUT_BY_ITERATION, one per line, and of COUNTS. A branch has its run's method,
    policy and environment if its own stages do not name them."""
    curves = held_out(counts)
    by_line: dict[Line, Standing] = {}
    for row in about:
        one = Line(row["run"], row["branch"])
        above = by_line.get(Line(one.run), Standing())
        by_line[one] = Standing(
            row["method"] or above.method,
            row["policy"] or above.policy,
            row["environment"] or above.environment,
            state_of_line(row),
            tuple(curves.get(one, ())),
        )
    return by_line


def state_of_line(row: Row) -> str:
    """Say how far the newest iteration came."""
    if row["iteration"] < 0:
        return "starting policy evaluated"
    is_done = row["iteration"] in (row["updated"] or ())
    return (
        f"iteration {row['iteration']} done"
        if is_done
        else f"iteration {row['iteration']}: up to {row['newest_stage']}"
    )
