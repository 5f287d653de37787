"""Make the pictures of README.md anew: `python -m tests.browser.pictures [FOLDER]` (data/pictures unless one is named).

The panes are those of the run that ships, photographed in headless Chromium; the live panel shows that run's counts as
they stood in the middle of its retries.
"""

from __future__ import annotations

import io
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

from PIL import Image
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console

from flows.cli.display import Display
from r3l.exploration.progress import Progress
from r3l.store.catalog import connect
from r3l.store.stage import Store
from tests.browser.screenshots import BEST, SAMPLE
from tests.browser.serving import opened, served

RUN = "sample"
ITERATION = 1
SECONDS = 21.0  # into the iteration, about the time at which this is seen on two cores
WIDTH, HEIGHT = 1280, 800
COLOURS = 96  # a palette: half the bytes, no visible difference
COUNTS = """
SELECT kind, count(*) AS planned, sum(turns) AS turns, sum(response_tokens) AS tokens, sum(reward) AS reward
FROM trajectories WHERE branch = '' AND iteration = ? AND kind IN ('base', 'retry') GROUP BY kind
"""


def in_the_middle(store: Store) -> Progress:
    """Return the counts of the run's second iteration when half of its retries were done."""
    progress = Progress()
    with connect(store) as connection:
        rows = connection.execute(COUNTS, [ITERATION]).fetchall()
        reflections = connection.execute(
            "SELECT count(*), sum(len(response_ids)) FROM reflections WHERE branch = '' AND iteration = ?", [ITERATION]
        ).fetchone()
        tasks = connection.execute(
            "SELECT count(*) FROM tasks WHERE branch = '' AND iteration = ?", [ITERATION]
        ).fetchone()
    counts: dict[str, tuple[float, ...]] = {kind: tuple(map(float, found)) for kind, *found in rows}
    assert reflections
    assert tasks
    progress.add("engine", planned=1, done=1)
    progress.add("tasks", planned=tasks[0], done=tasks[0], shards=1)
    progress.add("shards", planned=2)
    planned, turns, tokens, reward = counts["base"]
    whole = {"whole": planned, "whole_reward": reward}  # of groups whose attempts are all done
    progress.add("base", planned=planned, done=planned, turns=turns, tokens=tokens, reward=reward, shards=2, **whole)
    progress.add("reflections", planned=reflections[0], done=reflections[0], tokens=reflections[1], shards=2)
    planned, *sums = counts["retry"]
    half = planned // 2
    turns, tokens, reward = (total * half / planned for total in sums)
    progress.add("retries", planned=planned, done=half, turns=turns, tokens=tokens, reward=reward)
    return progress


class Still(Display):
    """The panel without speeds: nothing is being sampled here."""

    def eta_texts(self, counts: dict[str, dict[str, float]]) -> list[str]:
        return []


def panel(store: Store) -> str:
    """Return the live panel as SVG, in fonts that the reader's machine has."""
    console = Console(record=True, width=88, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    display = Still(console, f"r3l · run {RUN} · iteration {ITERATION}", in_the_middle(store))
    display.phase = "running"
    display.began -= SECONDS
    console.print(display)
    without_web_fonts = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    return console.export_svg(title="r3l iterate --run sample", code_format=without_web_fonts, unique_id="r3l")


def panes(store: Store, folder: Path) -> None:
    """Photograph the panes of the best retry at its pivot, light and dark."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome") or "chromium"
    with served(store) as (address, reader):
        retry = quote(reader.of(RUN).rows(BEST)[0]["retry_id"], safe="")
        for scheme in ("light", "dark"):
            with tempfile.TemporaryDirectory() as profile, opened(chromium, Path(profile), WIDTH, scheme) as page:
                page.goto(f"{address}/run/{RUN}/open?id={retry}")
                top: Any = page.locator(".shades").first.bounding_box()
                picture = page.screenshot(
                    clip={"x": 0, "y": top["y"] - 8, "width": WIDTH, "height": HEIGHT},
                    full_page=True,
                    animations="disabled",
                )
            image = Image.open(io.BytesIO(picture)).convert("RGB").quantize(COLOURS)
            image.save(folder / f"panes-{scheme}.png", optimize=True)


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else SAMPLE.parent / "pictures"
    folder.mkdir(parents=True, exist_ok=True)
    store = Store.open(str(SAMPLE))
    (folder / "panel.svg").write_text(panel(store), encoding="utf-8")
    panes(store, folder)
    for path in sorted(folder.iterdir()):
        print(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
