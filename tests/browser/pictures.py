"""Make the pictures of README.md anew: `python -m tests.browser.pictures [FOLDER]` (data/pictures unless one is named).

The panes are those of the run that ships, in headless Chromium. The live panel is that of an iteration which is played
for it, when half of the retries have ended: a minute.
"""

from __future__ import annotations

import io
import re
import shutil
import sys
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


def panes(store: Store, folder: Path) -> None:
    """Photograph the panes of the best retry at its pivot, light and dark."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome") or "chromium"
    with served(store) as (address, reader), started(chromium) as browser:
        retry = quote(reader.of(RUN).rows(BEST)[0]["retry_id"], safe="")
        for scheme in ("light", "dark"):
            with opened(browser, WIDTH, scheme) as page:
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
    panes(store, folder)
    shown = panel(folder / "panel.svg")
    shown.write_text(without_web_fonts(shown.read_text(encoding="utf-8")), encoding="utf-8")
    for path in sorted(folder.iterdir()):
        print(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
