"""`r3l runs`: the runs of a store."""

from __future__ import annotations

from rich.table import Table

from flows.cli.options import Root
from flows.cli.screen.answers import cell, warn_of_left_out
from flows.cli.screen.console import screen
from r3l.store.figures import LINES, remembered
from r3l.store.stage import Store

NEWEST = """
SELECT run, branch, arg_max(base_success, iteration) AS base_success, coalesce(arg_max(no_step, iteration), '') AS note
FROM lines.iterations GROUP BY run, branch
"""


def runs(store: Root = "") -> None:
    """List the runs of the store."""
    figures = remembered(Store.open(store, reading=True), "runs", {"lines": LINES, "newest": NEWEST})
    warn_of_left_out(figures.left_out)
    table = Table("run", "branch", header_style="bold")
    for name in ("iterations", "last commit (UTC)", "base success, newest"):
        table.add_column(name, justify="right")
    table.add_column("newest iteration")
    rows = [(row, answers["newest"]) for answers in figures.runs.values() for row in answers["lines"]]
    for row, newest in sorted(rows, key=lambda pair: pair[0]["last_commit"], reverse=True):
        its = next((one for one in newest if one["branch"] == row["branch"]), {"base_success": None, "note": ""})
        rate = "" if its["base_success"] is None else f"{100 * its['base_success']:.1f} %"
        last = row["last_commit"][:16].replace("T", " ")
        table.add_row(cell(row["run"]), cell(row["branch"]), str(row["iterations"]), last, rate, cell(its["note"]))
    screen().print(table)
