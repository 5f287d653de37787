"""The page of an exam: a table of ways to give credit, the two questions about pivots, and a picture."""

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path

from r3l.errors import ConfigError
from r3l.lab.exam.records import Exam
from r3l.lab.exam.scores import Interval, Pivots, Score, interval, pivots, ranks
from r3l.lab.exam.truth import VINE, reliability
from r3l.lab.exam.ways import OWN, UNMASKED
from r3l.store.files.local import replace_text

Scored = Mapping[str, Sequence[Score]]


FIGURES = {
    "rank": "rank correlation",
    "cosine": "cosine",
    "gradient": "cosine of gradients",
    "wrong": "wrong sign",
    "silent": "no credit",
}


def table(scored: Scored) -> list[tuple[str, list[Interval]]]:
    """List (way, its `FIGURES` over policies), the highest correlation first."""
    rows = [(name, [interval([getattr(one, figure) for one in scored[name]]) for figure in FIGURES]) for name in scored]
    return sorted(rows, key=lambda row: -row[1][0].mean)


def page(exams: Sequence[Exam], scored: Scored, picture: str = "") -> str:
    """Write the page as Markdown; `picture` is its address, where there is one."""
    rows = table(scored)
    lines = ["# The credit exam", "", about(exams, scored), "", *sureness(exams), ""]
    lines += [f"| way to give credit | {' | '.join(FIGURES.values())} |", "|---" * (1 + len(FIGURES)) + "|"]
    lines += [f"| {name} | {' | '.join(str(one) for one in figures)} |" for name, figures in rows]
    lines += [
        "",
        "Means over policies with 95 % intervals (Student's t). Rank correlation: Spearman's, over turns. Cosine: between the masses "
        "(advantage / |τ|, summed over the tokens of a reply and over the members that share it) that the way and the truth put on turns, which is the "
        "cosine of the updates if those of different turns are orthogonal. Cosine of gradients: the same between the two updates' gradients, "
        "by the policy's own weights in float32, group by group, on average over groups whose truth is not 0; of a group to which a way "
        "gives no credit it is 0. A way with a teacher weighs single tokens: it stands here with the mean over a reply. "
        "The ridge regression of the true advantage on features of turns was fitted on the other policies' turns. Wrong sign and no credit: "
        "shares of the absolute true advantage on turns that the way credits with the opposite sign, and not at all.",
        "",
        *([f"![rank correlation with the true advantage]({picture})", ""] if picture else []),
        "## Is R3L's pivot where the truth falls most?",
        "",
        *pivot_lines([one for exam in exams if (one := pivots(exam.groups))]),
        "",
        "## Does masking the prefix help?",
        "",
        mask_line(scored),
    ]
    return "\n".join(lines) + "\n"


def about(exams: Sequence[Exam], scored: Scored) -> str:
    members = [one for exam in exams for group in exam.groups for one in group.members]
    states = {(exam.name, state) for exam in exams for group in exam.groups for own in group.states for state in own}
    played = sum(len(rewards) for exam in exams for group in exam.groups for rewards in group.rewards.values())
    turns = sum(one.turns for one in next(iter(scored.values())))
    return (
        f"{len(members)} trajectories of {sum(len(exam.groups) for exam in exams)} groups, sampled by "
        f"{len(exams)} {'policies' if len(exams) > 1 else 'policy'} ({', '.join(exam.name for exam in exams)}): {turns} turns, "
        f"{len(states)} different states. From each state the policy that sampled it played on, {played} episodes in all. The true "
        "advantage of a turn is the mean reward of the continuations after it less that of those before it; after the "
        f"last turn stands the trajectory's own reward. The first {VINE} continuations of a state are VinePPO's own, the "
        "truth is made of the others. Every way is asked about the same members, bases and stitched trajectories, "
        "whatever it would have sampled itself."
    )


def sureness(exams: Sequence[Exam]) -> list[str]:
    """Say how reliable the truth is."""
    each, groups = [reliability(exam.groups) for exam in exams], [group for exam in exams for group in exam.groups]
    counts = sorted({int(exam.settings["continuations"]) - VINE for exam in exams})
    return [
        f"Split-half reliability of the true advantages (Spearman-Brown), with {', '.join(map(str, counts))} continuations "
        f"a state: {reliability(groups):.2f} over all turns; by policy "
        f"{', '.join(f'{one:.2f}' for one in each)}. Of their ranks: {reliability(groups, ranks):.2f}. Where that is far lower, a few large advantages "
        "are sure and the order of the small ones is not: then the cosine tells more than the rank correlation."
    ]


def pivot_lines(found: Sequence[Pivots]) -> list[str]:
    """Answer where pivots lie, in means over policies."""
    if not found:
        return ["No base was retried."]
    figure = {name: interval([getattr(one, name) for one in found]) for name in Pivots.__slots__ if name != "bases"}
    return [
        f"Of {sum(one.bases for one in found)} retried bases, the pivot is the turn of the largest fall in {figure['exact']}, and "
        f"within one of it in {figure['near']}; a turn drawn evenly is it in {figure['guess']}. Mean true advantage of the "
        f"pivot's turn: {figure['at_pivot']}; of the turn that the environment's oracle names: {figure['at_oracle']}; of all turns: "
        f"{figure['at_any']}; of the turn that falls most by one half of the continuations, measured by the other: "
        f"{figure['at_worst']}."
    ]


def mask_line(scored: Scored) -> str:
    """Compare R3L with R3L that masks nothing, policy by policy."""
    pairs = list(zip(scored[OWN], scored[UNMASKED], strict=True))
    change = {name: interval([getattr(own, name) - getattr(other, name) for own, other in pairs]) for name in FIGURES}
    return (
        f"R3L less R3L without a mask (its pivot at the first turn), in the same groups: rank correlation {change['rank']}, cosine {change['cosine']}, cosine of gradients {change['gradient']}, share "
        f"of the absolute truth with the wrong sign {change['wrong']}, without credit {change['silent']}."
    )


def write_page(exams: Sequence[Exam], scored: Scored, file: Path) -> None:
    """Write the page, and beside it its picture.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise ConfigError("--page draws a picture by matplotlib: install the extra r3l[experiments]")
    picture = file.with_suffix("") / "scores.svg"
    picture.parent.mkdir(parents=True, exist_ok=True)
    draw(scored, picture)
    replace_text(file, page(exams, scored, f"{file.stem}/scores.svg"))


def draw(scored: Scored, picture: Path) -> None:
    """Draw the rank correlations as points with intervals, the highest above."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    rows = table(scored)[::-1]
    with matplotlib.rc_context({"svg.hashsalt": "r3l", "svg.fonttype": "none", "font.size": 9}):
        figure, axes = pyplot.subplots(figsize=(7, 0.8 + 0.3 * len(rows)), layout="constrained")
        for place, (name, (rank, *_)) in enumerate(rows):
            half = rank.half if len(scored[name]) > 1 else 0.0
            axes.errorbar(rank.mean, place, xerr=half, fmt="o", color="tab:blue", capsize=3)
            each = [one.rank for one in scored[name]]
            axes.plot(each, [place] * len(each), ".", color="0.6", markersize=4, zorder=0)
        axes.set_yticks(range(len(rows)), [row[0] for row in rows])
        axes.axvline(0, color="0.8", linewidth=1)
        axes.set_xlabel(
            "rank correlation with the true advantage (mean over policies, 95 % interval; small: each policy)"
        )
        figure.savefig(picture, metadata={"Date": None})
        pyplot.close(figure)
