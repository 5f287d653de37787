"""Screenshots of every page of the audit app and of the report, for people to look at:

    python -m tests.browser.screenshots OUT [--store STORE] [--only PART]

Each page is taken at 1440 and 420 px, light and dark, as OUT/<page>-<width>-<scheme>.png. The store is data/sample_run
unless one is named.

    python -m tests.browser.screenshots OUT --only panel

plays an iteration and writes the live panel of the terminal as OUT/panel.svg: a minute.
"""

import argparse
import io
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from urllib.parse import quote

from playwright.sync_api import Page

from flows.cli.screen.console import CleanConsole
from flows.cli.screen.display import Display
from flows.cli.screen.eta import expected_attempts
from flows.cli.terminal import title
from r3l.audit.report import write_report
from r3l.config import compose
from r3l.exploration.progress import Progress
from r3l.pipeline.iteration import open_iteration, run_stages
from r3l.pipeline.runner import Threads
from r3l.store.stage import Store
from tests.browser.serving import opened, served, started

SAMPLE = Path(__file__).parents[2] / "data" / "sample_run"
WIDTHS, SCHEMES = (1440, 420), ("light", "dark")
BEST = "SELECT retry_id, task_id FROM pivots WHERE branch = '' ORDER BY gain DESC, pivot_turn DESC LIMIT 1"


def addresses(run: str, branches: list[str], retry: str, task: str) -> dict[str, str]:
    """Pages by name."""
    lines = [run, *(f"{run}/{branch}" for branch in branches)]
    at = f"/run/{quote(run, safe='')}"
    return {
        "runs": "/",
        "iterations": at,
        "groups": f"{at}/groups",
        "panes": f"{at}/open?id={quote(retry, safe='')}",
        "tasks": f"{at}/tasks",
        "task": f"{at}/task?id={quote(task, safe='')}",
        "tokens": f"{at}/tokens?source={quote(retry, safe='')}&iteration={retry.split('/')[0].split('=')[1]}",
        "reflections": f"{at}/reflections",
        "account": f"{at}/account",
        "words": "/words",
        "sql": "/sql",
        "answer": "/sql?q=" + quote("SELECT iteration, base_reward, retry_reward FROM iterations WHERE branch = ''"),
        "compare": "/compare?" + "&".join(f"line={quote(line, safe='')}" for line in lines[:6]),
    }


def take(page: Page, address: str, path: Path) -> None:
    """One page, whole, and what does not fit in its window."""
    page.goto(address)
    page.screenshot(path=str(path), full_page=True, animations="disabled")
    wide = page.evaluate("document.documentElement.scrollWidth")
    if wide > page.viewport_size["width"]:
        print(f"{path.name}: {wide} px wide")


def every(out: Path, store: Store, pages: dict[str, str], only: str) -> Iterator[Path]:
    chromium = shutil.which("chromium") or shutil.which("google-chrome") or "chromium"
    wanted = {name: address for name, address in pages.items() if only in name}
    with started(chromium) as browser:
        for width, scheme in product(WIDTHS, SCHEMES):
            with opened(browser, width, scheme) as page:
                for name, address in wanted.items():
                    path = out / f"{name}-{width}-{scheme}.png"
                    take(page, address, path)
                    yield path


def panel(path: Path) -> Path:
    """Play an iteration, and write the live panel as SVG as it stands when half of the retries have ended."""
    with tempfile.TemporaryDirectory() as folder:
        config = compose(run="demo", assignments=[f"store.root={folder}"])
        console = CleanConsole(file=io.StringIO(), force_terminal=True, width=96, record=True)
        display = Display(console, f"{title(config)} · iteration 0", Progress())
        display.planned, display.phase = expected_attempts(config), "running"
        with open_iteration(config, Store.open(folder), 0, progress=display.progress, runner=Threads()) as bench:
            playing = threading.Thread(target=run_stages, args=(bench,))
            playing.start()
            while playing.is_alive() and not half_way(display.progress.snapshot().get("retries", {})):
                time.sleep(0.1)
            console.print(display)
            path.write_text(console.export_svg(title="r3l iterate"))
            playing.join()
    return path


def half_way(counts: dict[str, float]) -> bool:
    return counts.get("done", 0) >= max(4.0, counts.get("planned", 0) / 2)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("out", type=Path)
    asked.add_argument("--store", default=str(SAMPLE))
    asked.add_argument("--run", default="", help="the run to look at; empty: the first")
    asked.add_argument("--only", default="", help="pages whose name has this in it")
    given = asked.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    if given.only == "panel":
        print(panel(given.out / "panel.svg"))
        return
    store = Store.open(given.store)
    run = given.run or store.runs()[0]
    with served(store) as (address, reader):
        best = reader.of(run).rows(BEST)[0]
        pages = {
            name: address + path
            for name, path in addresses(run, store.branches(run), best["retry_id"], best["task_id"]).items()
        }
        pages["report"] = write_report(store, run, given.out / "report.html").absolute().as_uri()
        for path in every(given.out, store, pages, given.only):
            print(path)


if __name__ == "__main__":
    main()
