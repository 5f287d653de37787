"""The page of an experiment: tables of its results as Markdown, and the same as JSON."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from r3l.lab.study.compare import Summary
from r3l.lab.study.experiment import Experiment
from r3l.lab.study.kept import Rows
from r3l.lab.study.pages.chosen_rate import chosen_rate_section
from r3l.lab.study.pages.equal_turns import equal_turns_section
from r3l.lab.study.pages.lines import pictures_of, plotted_rate
from r3l.lab.study.pages.map_picture import draw_map
from r3l.lab.study.pages.pictures import can_draw, draw
from r3l.lab.study.phase_map import drawn_places, map_section, predicted_crossing
from r3l.lab.study.results import Results, kept_alone
from r3l.lab.study.text import at_rate, with_error
from r3l.store.files.local import replace_text

BAND = (
    "Means over starting policies; band: the thick line's standard error over them, where there are several. At most seven arms are "
    "shown: R3L with the paper's settings (else the first arm), the one that all are held against if there is one, and those with "
    "the most success over training, of the arms that were run with all of the thick one's seeds."
)
NAMED = 12  # runs that are missing; more are only counted


def page(results: Results) -> str:
    experiment = results.experiment
    lines = [
        f"# {experiment.title}",
        "",
        f"Answers to: {experiment.paper}. Size `{results.size}`, made by `r3l compare {experiment.name}"
        f"{'' if results.size == 'laptop' else f' --size {results.size}'}`.",
        "",
        budget(results),
        "",
        experiment.knowledge,
        *plan_quotes(experiment),
        "",
    ]
    lines += missing(results.unfinished, len(results.cells))
    if results.kept:
        note = "; the questions below were asked when the store held them" if results.answers else ""
        lines += [f"{len(results.kept)} of the {len(results.cells)} runs are taken from kept results{note}.", ""]
    at_equal_turns = equal_turns_section(record := figures(results))
    lines += at_equal_turns or tables(results)  # which would pool the points of the dial
    for title, rate, rows in results.answers:
        lines += [f"## {title}{at_rate(rate)}", "", *rows_table(rows), ""]
    picture_lines = [*map_section(record, results_name(experiment, results.size)), *pictures(results)]
    return "\n".join([*lines, *picture_lines, *curves(results)]) + "\n"


def tables(results: Results) -> list[str]:
    """Write the arms' figures: a table a learning rate, and one of each arm at the rate chosen for it."""
    lines, level = [], results.experiment.level
    for rate in results.experiment.sizes[results.size].learning_rates():
        if summaries := [one for one in results.summaries if one.rate == rate]:
            heading = [] if rate is None else [f"## Learning rate {rate:g}", ""]
            lines += [*heading, *table(summaries, level), ""]
    if results.rates_start_apart():
        lines += ["Not all learning rates began from the same policies: within a rate the arms did.", ""]
    return [*lines, *chosen_rate_section(results)]


def missing(runs: Sequence[str], runs_made: int) -> list[str]:
    """Say which runs were not made, and how many were."""
    names = f"{', '.join(runs[:NAMED])}{', …' if len(runs) > NAMED else ''}"
    return [f"Not run, or not to the end: {len(runs)} of {len(runs) + runs_made} runs ({names}).", ""] if runs else []


def plan_quotes(experiment: Experiment) -> list[str]:
    """Quote what was written before the runs."""
    parts = (("Prediction", experiment.prediction), ("Analysis", experiment.analysis))
    return [line for name, text in parts if text for line in ("", f"**{name}.** {text}")]


def budget(results: Results) -> str:
    first, of = results.experiment.cells(results.size)[0].config, results.experiment.sizes[results.size]
    iterations = f"{of.iterations} iteration{'s' * (of.iterations > 1)}"
    return (
        f"Every arm has the same budget: {iterations} of {first.rollout.tasks} tasks with at most N = "
        f"{first.rollout.group_size} trajectories per task, unless the arm's name says otherwise (the columns say what was used; "
        f"Critique-GRPO's refinements come on top, as in the paper). {results.test_episodes} held-out episodes at T "
        f"{first.evaluation.temperature:g} per point. Plateau: their mean over the last third of the iterations; the rise to it: "
        "from the third before."
    )


def table(summaries: Sequence[Summary], level: float) -> list[str]:
    with_rates = any(one.rate is not None for one in summaries)
    names = [
        "arm",
        *(["learning rate"] if with_rates else []),
        "policies (runs)",
        "start",
        "final ± s.e.",
        "area under the curve ± s.e.",
        "plateau ± s.e.",
        "rise to it ± s.e.",
        f"iterations to {level:g}",
        f"turns to {level:g}",
        "trajectories per iteration",
        "tokens per iteration",
    ]
    lines = [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}"]
    for one in summaries:
        rate = f" {one.rate:g} |" if one.rate is not None else ""
        lines.append(
            f"| {one.arm} |{rate} {one.policies} ({one.seeds}) | {one.start:.3f} | {with_error(one.final, one.final_error)} | "
            f"**{with_error(one.area, one.area_error)}** | {with_error(one.plateau, one.plateau_error)} | "
            f"{with_error(one.rise, one.rise_error, '+')} | {count_text(one.iterations)} | {count_text(one.turns)} | {one.episodes:.0f} | "
            f"{one.tokens:.0f} |"
        )
    return lines


def count_text(value: float) -> str:
    return "never" if math.isinf(value) else f"{value:.0f}"


def rows_table(rows: Rows) -> list[str]:
    """Write any answer as a table; numbers with three places."""
    if not rows:
        return ["(no rows)"]
    names = list(rows[0])
    row_lines = [" | ".join(number_cell(row[name]) for name in names) for row in rows]
    return [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}", *(f"| {line} |" for line in row_lines)]


def number_cell(value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def pictures(results: Results) -> list[str]:
    folder = results_name(results.experiment, results.size)
    lines = [f"![{one.y_title} by {one.x_title}]({folder}/{one.name}.svg)" for one in pictures_of(results)]
    return [f"## Pictures{at_rate(plotted_rate(results))}", "", BAND, "", *lines, ""] if lines else []


def curves(results: Results) -> list[str]:
    points = sorted({point for curve in results.curves.values() for point in curve})
    if not points:
        return ["No run has all its iterations yet."]
    lines = [
        "## Test success by iteration (-1: the starting policy)",
        "",
        f"| run | {' | '.join(map(str, points))} |",
        f"|---|{'---|' * len(points)}",
    ]
    return lines + [
        f"| {run} | {' | '.join(f'{curve[at]:.3f}' if at in curve else '' for at in points)} |"
        for run, curve in sorted(results.curves.items())
    ]


def results_name(experiment: Experiment, size: str) -> str:
    return f"{experiment.name}-{size}"


def file_of(folder: Path, experiment: Experiment, size: str) -> Path:
    """Name the file in which the figures are kept."""
    return folder / f"{results_name(experiment, size)}.json"


def write_results(folder: Path, results: Results) -> Path:
    """Write EXPERIMENT-SIZE.md, .json and a folder of pictures, each file atomically. The result is the page's path."""
    folder.mkdir(parents=True, exist_ok=True)
    replace_text(file_of(folder, results.experiment, results.size), json.dumps(figures(results), indent=1) + "\n")
    return write_shown(folder, results)


def write_again(file: Path) -> Path:
    """Write the page, the pictures and the summaries of a kept file anew; what was measured stays as it is. The result
    is the page's path. Raise `ConfigError` where the file is not what `r3l compare` writes."""
    results = kept_alone(file)
    record = json.loads(file.read_text()) | {"summaries": figures(results)["summaries"]}
    replace_text(file, json.dumps(record, indent=1) + "\n")
    return write_shown(file.parent, results)


def write_shown(folder: Path, results: Results) -> Path:
    """Write the page and its pictures."""
    name = results_name(results.experiment, results.size)
    (folder / name).mkdir(parents=True, exist_ok=True)
    replace_text(folder / f"{name}.md", page(results))
    for picture in pictures_of(results) if can_draw() else ():
        replace_text(folder / name / f"{picture.name}.svg", draw(picture))
    record = figures(results)
    if can_draw() and (places_of_rate := drawn_places(record)):
        replace_text(
            folder / name / "map.svg",
            draw_map(places_of_rate, "GRPO", results.experiment.title, predicted_crossing(record)),
        )
    return folder / f"{name}.md"


def figures(results: Results) -> dict[str, Any]:
    """Gather all that the page and the pictures are made from; what is not a number is null."""
    record: dict[str, Any] = finite(
        {
            "experiment": results.experiment.model_dump(mode="json"),
            "size": results.size,
            "unfinished": results.unfinished,
            "test_episodes": results.test_episodes,
            "summaries": [asdict(one) for one in results.summaries],
            "configs": {
                cell.config.run: cell.config.model_dump(mode="json", exclude={"store"}) for cell in results.cells[:1]
            },
            "cells": [
                {"run": cell.config.run, "arm": cell.arm.name, "seed": cell.seed, "rate": cell.rate}
                for cell in results.cells
            ],
            "policies": results.policies,
            "curves": results.curves,
            "metrics": results.metrics,
            "answers": [one._asdict() for one in results.answers],
        }
    )
    return record


def finite(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 6) if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): finite(one) for key, one in value.items()}
    return [finite(one) for one in value] if isinstance(value, list | tuple) else value
