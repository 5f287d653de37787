"""Make the pictures of README.md anew: `python -m tests.browser.pictures [--folder FOLDER]`.

The panes are those of the run that ships, in headless Chromium. The live panel is that of an iteration which is played
for it, when half of the retries have ended: a minute.

`--store STORE --run RUN --retry ID ...` makes panes of other attempts, `panes-1.png` and so on, and nothing else.
"""

import argparse
import io
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from PIL import Image

from r3l.store.stage import Store
from tests.browser.screenshots import BEST, SAMPLE, panel
from tests.browser.serving import opened, served, started

RUN = "sample"
WIDTH, HEIGHT = 1280, 800
COLOURS = 96  # a palette: half the bytes, no visible difference


def without_web_fonts(svg: str) -> str:
    """Return the SVG with the reader's own fonts: no picture loads anything from elsewhere."""
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)


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
            clip={"x": 0, "y": top["y"] - 8, "width": WIDTH, "height": HEIGHT},
            full_page=True,
            animations="disabled",
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
