"""A run's trend as one SVG image for the Prefect UI, which shows images and drops inline SVG: it brings its own colours
and ground."""

import base64
from collections.abc import Sequence
from typing import Any

from r3l.audit.charts.charts import HEIGHT, WIDTH
from r3l.audit.charts.iterations import CHARTS, alone, with_values
from r3l.audit.lines import Line

SHOWN = ("Reward", "Improvement rate", "Loss", "Entropy")
NEWEST = 200  # iterations
HEAD = 40  # pixels above each chart: title and legend
COLOURS = ("#2563c9", "#d9730d", "#12876b")
STYLE = """text{font:11px system-ui,sans-serif;fill:#5d6878}.head{font-size:13px;font-weight:600;fill:#1b2330}
.tick.y{text-anchor:end}.tick.x,.title.x,.none{text-anchor:middle}
.grid,.axis{stroke:#e2e6ec}.axis{stroke:#8b95a5}.line{fill:none;stroke-width:1.8}
""" + "".join(f".line.c{k}{{stroke:{colour}}}.dot.c{k},.key.c{k}{{fill:{colour}}}" for k, colour in enumerate(COLOURS))


def image(line: Line, past: Sequence[dict[str, Any]]) -> str:
    """Draw the charts of the audit app, two by two, over the newest iterations, as an image in Markdown."""
    newest = past[-NEWEST:]
    charts = with_values([chart for chart in CHARTS if chart.title in SHOWN], newest)
    panels = "".join(
        panel(alone(chart, newest, hover=False), 12 + k % 2 * (WIDTH + 24), 8 + k // 2 * (HEIGHT + HEAD + 8))
        for k, chart in enumerate(charts)
    )
    width, height = 2 * WIDTH + 48, (len(charts) + 1) // 2 * (HEIGHT + HEAD + 8) + 8
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">'
        f"<style>{STYLE}</style>"
        f'<rect width="{width}" height="{height}" rx="8" fill="#fff"/>{panels}</svg>'
    )
    return f"![trend of {line}](data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()})"


def panel(chart: dict[str, Any], x: int, y: int) -> str:
    """Draw a chart with its title and the names of its lines above it."""
    names, at = [], x + 4
    for k, name in enumerate(chart["legend"]):
        names.append(
            f'<rect class="key c{k}" x="{at}" y="{y + 26}" width="10" height="3"/>'
            f'<text x="{at + 14}" y="{y + 31}">{name}</text>'
        )
        at += 24 + 7 * len(name)
    place = f'<svg class="chart" x="{x}" y="{y + HEAD}" width="{WIDTH}" height="{HEIGHT}"'
    return f'<text class="head" x="{x + 4}" y="{y + 15}">{chart["title"]}</text>{"".join(names)}' + str(
        chart["svg"]
    ).replace('<svg class="chart"', place, 1)
