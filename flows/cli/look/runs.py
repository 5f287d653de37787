"""`r3l runs`: the runs of a store."""

from rich.table import Table

from flows.cli.options import Root
from flows.cli.screen.answers import cell, warn_of_left_out
from flows.cli.screen.console import screen
from r3l.audit.standing import held_out_tiles, points
from r3l.audit.web.overview import Overview
from r3l.store.stage import Store


def runs(store: Root = "") -> None:
    """List the runs of the store."""
    rows, left_out = Overview(Store.open(store, reading=True)).rows()
    warn_of_left_out(left_out)
    table = Table("run", "branch", "method, policy, environment", header_style="bold")
    for name in ("iterations", "last commit (UTC)", "base success", "held-out success"):
        table.add_column(name, justify="right")
    table.add_column("newest iteration")
    for row in rows:
        newest = row["past"][-1] if row["past"] else {"base_success": None, "no_step": None}
        rate = "" if newest["base_success"] is None else f"{points(newest['base_success'])} %"
        tile = next(held_out_tiles(row["standing"].curves), None)
        table.add_row(
            *map(cell, (row["run"], row["branch"], row["standing"].about())),
            *(str(row["iterations"]), row["last_commit"][:16].replace("T", " "), rate),
            cell(f"{tile.value} {row['standing'].curves[0].benchmark}" if tile else ""),
            cell(newest["no_step"] or ""),
        )
    screen().print(table)
