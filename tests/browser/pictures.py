"""Make the pictures of README.md anew: `python -m tests.browser.pictures [--folder FOLDER]`.

The panes are those of the run that ships, in headless Chromium. The live panel is that of an iteration which is played
for it, when half of the retries have ended: a minute.

`--store STORE --run RUN --retry ID ...` makes panes of other attempts, `panes-1.png` and so on, and nothing else.
"""

import argparse
import io
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from PIL import Image

from flows.cli.screen.console import CleanConsole
from flows.cli.screen.display import Display
from flows.cli.screen.eta import expected_attempts
from flows.cli.terminal import title
from r3l.config import compose
from r3l.exploration.progress import Progress
from r3l.pipeline.iteration import open_iteration, run_stages
from r3l.pipeline.runner import Threads
from r3l.store.stage import Store
from tests.browser.serving import opened, served, started

RUN = "sample"
SAMPLE = Path(__file__).parents[2] / "data" / "sample_run"
BEST = "SELECT retry_id, task_id FROM pivots WHERE branch = '' ORDER BY gain DESC, pivot_turn DESC LIMIT 1"
WIDTH, HEIGHT = 1280, 800
COLOURS = 96  # a palette: half the bytes, no visible difference


def without_web_fonts(svg: str) -> str:
    """Return the SVG with the reader's own fonts: no picture loads anything from elsewhere."""
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)


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


@contextmanager
def browsing(store: Store) -> Iterator[tuple[str, Any, Any]]:
    """Yield the address of an audit app, its reader and a browser."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome") or "chromium"
    with served(store) as (address, reader), started(chromium) as browser:
        yield address, reader, browser


def panes(browser: Any, address: str, run: str, retry: str, scheme: str, file: Path) -> None:
    """Photograph the panes of a retry at its pivot."""
    with opened(browser, WIDTH, scheme) as page:
        page.goto(f"{address}/run/{run}/open?id={quote(retry, safe='')}")
        top: Any = page.locator(".shades").first.bounding_box()
        picture = page.screenshot(
            clip={"x": 0, "y": top["y"] - 8, "width": WIDTH, "height": HEIGHT}, full_page=True, animations="disabled"
        )
    Image.open(io.BytesIO(picture)).convert("RGB").quantize(COLOURS).save(file, optimize=True)


def of_the_readme(folder: Path) -> None:
    with browsing(Store.open(str(SAMPLE))) as (address, reader, browser):
        retry = reader.of(RUN).rows(BEST)[0]["retry_id"]
        for scheme in ("light", "dark"):
            panes(browser, address, RUN, retry, scheme, folder / f"panes-{scheme}.png")
    shown = panel(folder / "panel.svg")
    shown.write_text(without_web_fonts(shown.read_text(encoding="utf-8")), encoding="utf-8")


def of_retries(store: str, run: str, retries: Sequence[str], folder: Path) -> None:
    with browsing(Store.open(store)) as (address, _, browser):
        for number, retry in enumerate(retries, 1):
            panes(browser, address, run, retry, "light", folder / f"panes-{number}.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=SAMPLE.parent / "pictures")
    parser.add_argument("--store", default="")
    parser.add_argument("--run", default="")
    parser.add_argument("--retry", nargs="+", default=[])
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    if asked.retry:
        of_retries(asked.store, asked.run, asked.retry, asked.folder)
    else:
        of_the_readme(asked.folder)
    for path in sorted(asked.folder.glob("*.*g")):
        print(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
