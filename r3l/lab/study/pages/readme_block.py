"""The evidence of README.md, between two marks: three sentences whose figures come from the kept results."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from r3l.errors import ConfigError
from r3l.lab.study.claims import Claim, Results, answer, differences, gap, starts
from r3l.lab.study.compare import mean
from r3l.lab.study.phase_map import places
from r3l.lab.study.verdicts import Gap

BEGIN, END = "<!-- evidence: made by `r3l results` -->", "<!-- end of evidence -->"
SLOW, FAST = 3e-4, 1e-3  # the two learning rates of the map
HARDEST = "-latent-1-"  # in the names of policies that were shown no treatment
FORGETS = (1.0, 0.98, 0.95)  # shares of the treatments that the policies of `kin` leave out


def with_evidence(page: str, folder: Path) -> str:
    """Replace what stands between the marks of a page by the sentences from the kept results in `folder`.

    Raises:
        ConfigError: the page does not have each mark once, in order.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end) or BEGIN in after or END in after:
        raise ConfigError(
            f"README.md: expected the marks {BEGIN!r} and {END!r} once each; put them around the evidence"
        )
    return f"{before}{BEGIN}\n{evidence(folder)}\n{END}{after}"


def evidence(folder: Path) -> str:
    """Write the sentences as Markdown, from the kept results in `folder`."""
    kin, phase, controls, keeps, smollm2 = (
        json.loads((folder / f"{name}-laptop.json").read_text())
        for name in ("kin", "phase", "controls", "keeps", "smollm2")
    )
    held = [json.loads(file.read_text()) for file in sorted(folder.glob("smollm2_held-*.json"), reverse=True)]
    sentences = [lead(kin, phase), source(controls), f"{keep(keeps)} {late(keeps)} {pretrained(smollm2, held)}"]
    return "\n".join(f"{at}. {sentence}" for at, sentence in enumerate(sentences, 1))


def lead(kin: Results, phase: Results) -> str:
    """Say where R3L leads GRPO: at points of the dial in small steps and at equal turns, and where attempts win."""
    (ours, theirs, never), (_, _, seldom), (_, _, at_times) = (over_grpo(kin, forgets) for forgets in FORGETS)
    slow, fast = (places(phase, "GRPO", rate)[-1] for rate in (SLOW, FAST))
    hardest, *easier = (f"{100 * forgets:.0f} %" for forgets in FORGETS)
    return (
        f"**Where unguided attempts hardly ever win, R3L leads.** From {never.policies} household policies that were "
        f"shown no treatment in {hardest} of the tasks that need one, ten iterations in small steps give {ours:.3f} "
        f"with R3L and {theirs:.3f} with GRPO after equally many turns, {interval(never)}; in {' and '.join(easier)}, "
        f"{interval(seldom)} and {interval(at_times)} ([kin](data/results/kin-laptop.md)). "
        f"Where {percent(slow.p)} of the attempts win, the difference is {interval(slow.over)} at {SLOW:g} and "
        f"{interval(fast.over)} at {FAST:g} ([350 runs](data/results/phase-laptop.md))."
    )


def over_grpo(kin: Results, forgets: float) -> tuple[float, float, Gap]:
    """Average R3L's success, GRPO's after as many turns, and their difference over the policies of a point."""
    seeds = [seed for seed, policy in starts(kin).items() if f"-{forgets:g}-" in policy]
    claim = Claim(claim="", paper="", arm="R3L", against="GRPO with R3L's turns", measure="at_equal_turns", seeds=seeds)
    pairs, over = differences(kin, claim), gap(kin, claim)
    if over is None:
        raise ConfigError(f"kin's results hold no runs of R3L and GRPO at F = {forgets:g}")
    return mean([ours for ours, _ in pairs.values()]), mean([theirs for _, theirs in pairs.values()]), over


def source(controls: Results) -> str:
    """Say what a retry needs: its guidance and its pivot."""
    rows = answer(controls, "By starting policy", SLOW)
    share_won = {
        name: mean([row["won"] for row in rows if row["retries"] == name]) for name in {row["retries"] for row in rows}
    }
    failures = sum(row["n"] for row in rows if row["retries"] == "own pivot, own guidance")
    return (
        f"**Retries need their guidance and their pivot.** Of {failures} stored failures guided retries win "
        f"{share_won['own pivot, own guidance']:.3f}, the same pivots without guidance "
        f"{share_won['own pivot no guidance']:.3f}, "
        f"guided retries from random pivots {share_won['random pivot own guidance']:.3f} "
        "([controls](data/results/controls-laptop.md))."
    )


def keep(keeps: Results) -> str:
    """Say what forty iterations leave of what was learned, by the last two evaluations: mean and range over the
    policies that did not choose the setting (seeds 1 to 4), the fall of the one that did (seed 0), and the means where
    a tenth of the treatments was shown (seeds 5 to 9)."""
    runs = ("keeps.r3l-in-small-steps", "keeps.r3l.lr0.001")
    kept, fell = (keeps["curves"][f"{run}.s0"] for run in runs)
    (small, single), (shown_small, shown_single) = (
        [[end(keeps["curves"][f"{run}.s{seed}"]) for seed in seeds] for run in runs]
        for seeds in (range(1, 5), range(5, 10))
    )
    return (
        f"**In small steps policies keep what they learn, a pretrained one if a penalty holds it.** From {len(small)} "
        f"household policies that were shown no treatment, forty iterations in small steps end at {mean(small):.2f} "
        f"({min(small):.2f} to {max(small):.2f}), in single steps at {mean(single):.2f} ({min(single):.2f} to "
        f"{max(single):.2f}); the one that chose the setting falls in single steps from {fell['4']:.2f} after five "
        f"iterations to {end(fell):.2f}, and goes from {kept['4']:.2f} to {end(kept):.2f} in small ones. From "
        f"{len(shown_small)} that were shown a tenth of the treatments small steps end no higher, "
        f"{mean(shown_small):.2f} and {mean(shown_single):.2f} ([keeps](data/results/keeps-laptop.md))."
    )


def late(keeps: Results) -> str:
    """Say what R3L and its rivals have after ten and after forty iterations in small steps, from the policies without a
    treatment that all of them began from, without the one that chose the setting (seed 0)."""
    curves_by_arm = [
        {
            seed: keeps["curves"].get(f"keeps.{arm}-in-small-steps.s{seed}")
            for seed, at in starts(keeps).items()
            if HARDEST in at and seed != 0
        }
        for arm in ("r3l", "reflect-grpo", "grpo")
    ]
    seeds = [seed for seed in curves_by_arm[0] if all(curves[seed] for curves in curves_by_arm)]
    ours, reflecting, plain = (
        f"{mean([curves[seed]['9'] for seed in seeds]):.2f} and {mean([end(curves[seed]) for seed in seeds]):.2f}"
        for curves in curves_by_arm
    )
    return (
        f"Others come later: from {len(seeds)} that were shown none R3L has {ours} after ten and after forty "
        f"iterations, Reflect-GRPO from the pivot {reflecting}, GRPO {plain}."
    )


def end(curve: Mapping[str, float]) -> float:
    """Average the last two evaluations of a run."""
    return mean([curve[at] for at in sorted(curve, key=int)[-2:]])


def pretrained(smollm2: Results, held: Sequence[Results]) -> str:
    """Say how a pretrained model fares: in single steps, mean over the seeds at the start, halfway and at the end; and
    held to its start, in each size of the experiment, from each policy that did not choose the setting."""
    single = ", ".join(
        f"{mean([curve[at] for name, curve in smollm2['curves'].items() if '.r3l.' in name]):.2f}"
        for at in ("-1", "3", "7")
    )
    curves_by_arm = [
        [
            curve
            for size in held
            for name, curve in sorted(size["curves"].items())
            if f".{arm}." in name and not name.endswith(".s0")
        ]
        for arm in ("r3l", "grpo")
    ]
    ours, theirs = (
        " and ".join(f"from {curve['-1']:.2f} to {curve[max(curve, key=int)]:.2f}" for curve in curves)
        for curves in curves_by_arm
    )
    iterations = 1 + max(int(at) for curve in curves_by_arm[0] for at in curve)
    return (
        f"SmolLM2-135M wins {single} after 0, 4 and 8 single steps, mean of three seeds; in short steps that a penalty "
        f"holds to the start, it goes {ours} in {iterations} iterations, and GRPO in the same steps {theirs} "
        "([page](data/results/smollm2.md))."
    )


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def interval(over: Gap) -> str:
    low, high = over.interval
    return f"{over.mean:+.3f} ({low:+.3f} to {high:+.3f})"
