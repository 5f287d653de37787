"""The index of the results: one line per experiment, and the arms that the main comparisons share."""

import json
from pathlib import Path

MAIN = {"main_alfworld": "ALFWorld", "main_household": "household"}  # experiment -> environment
RERUN = (
    "**How far a rerun agrees.** These runs were sampled when the last digits of a reply still depended on the others in its batch. "
    "Run again, one draws the same tasks and random numbers, and agrees until a last digit decides a token; from there on it differs "
    "as a run of another seed does. Runs of the present code come out again bit for bit on the same kind of machine "
    "([what can be relied on](../README.md#what-can-be-relied-on)): `r3l compare` says so of two runs of `phase` whose stages are "
    "[kept](phase-laptop/stages.json), and `r3l bisect` finds where two part."
)


def index(folder: Path) -> str:
    """Write README.md of the folder: one line per experiment, and the arms of the main comparisons."""
    lines = [
        "# Results",
        "",
        "Each experiment has a .json file with all its figures, which `r3l compare` writes. `r3l results` makes this page, the pages "
        "of the experiments and their pictures anew from these files.",
        "",
        RERUN,
        "",
    ]
    lines += ["| experiment | runs | starting policies | learning rates | pictures |", "|---|---|---|---|---|"]
    for file in sorted(folder.glob("*.json")):
        record = json.loads(file.read_text())
        of = record["experiment"]["sizes"][record["size"]]
        policies = {cell["seed"] % (len(of["policies"]) or 1) for cell in record["cells"]}
        rates = sorted({cell["rate"] for cell in record["cells"] if cell["rate"] is not None})
        names = sorted(one.name for one in (folder / file.stem).glob("*.svg"))
        pictures = ", ".join(f"[{name.removesuffix('.svg')}]({file.stem}/{name})" for name in names)
        rate_text = ", ".join(f"{rate:g}" for rate in rates)
        size = "" if record["size"] == "laptop" else f" (size `{record['size']}`)"
        lines.append(
            f"| [{record['experiment']['title']}]({file.stem}.md){size} | {len(record['cells'])} | {len(policies)} | {rate_text} | {pictures} |"
        )
    return "\n".join([*lines, *main_arms(folder)]) + "\n"


def main_arms(folder: Path) -> list[str]:
    """Write the table of the arms that the main comparisons share, one column per comparison and learning rate; an arm
    need not have been run at each rate."""
    columns: dict[str, dict[str, str]] = {}
    arm_sets: list[set[str]] = []
    for name, title in MAIN.items():
        file = folder / f"{name}-laptop.json"
        summaries = json.loads(file.read_text())["summaries"] if file.is_file() else []
        arm_sets += [{one["arm"] for one in summaries}] if summaries else []
        for rate in sorted({one["rate"] for one in summaries}):
            columns[f"{title}, {rate:g}"] = {
                one["arm"]: f"{one['area']:.3f}, {one['plateau']:.3f}" for one in summaries if one["rate"] == rate
            }
    if not columns:
        return []
    common_arms = [arm for arm in max(columns.values(), key=len) if all(arm in arms for arms in arm_sets)]
    return [
        "",
        "## The main comparisons",
        "",
        "Each cell has the mean held-out success over training and the plateau, which is the mean over the last third of the "
        "iterations, by environment and learning rate. The pages of the experiments have errors, pictures and every run.",
        "",
        f"| arm | {' | '.join(columns)} |",
        f"|{'---|' * (len(columns) + 1)}",
        *(
            f"| {arm} | {' | '.join(column.get(arm, 'not run') for column in columns.values())} |"
            for arm in common_arms
        ),
    ]
