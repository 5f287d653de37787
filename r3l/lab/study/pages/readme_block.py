"""The evidence of README.md, between two marks: three sentences whose figures come from the kept results."""

import json
from pathlib import Path

from r3l.errors import ConfigError
from r3l.lab.study.claims import Results, answer
from r3l.lab.study.compare import mean
from r3l.lab.study.phase_map import Place, dial, places
from r3l.lab.study.verdicts import Gap

BEGIN, END = "<!-- evidence: made by `r3l results` -->", "<!-- end of evidence -->"
SLOW, FAST = 3e-4, 1e-3  # the two learning rates of the map


def with_evidence(page: str, folder: Path) -> str:
    """Replace what stands between the marks of a page.

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
    phase, controls, keeps, smollm2 = (
        json.loads((folder / f"{name}-laptop.json").read_text()) for name in ("phase", "controls", "keeps", "smollm2")
    )
    sentences = [lead(phase), source(controls), f"{keep(keeps)} {fall(smollm2)}"]
    return "\n".join(f"{at}. {sentence}" for at, sentence in enumerate(sentences, 1))


def lead(phase: Results) -> str:
    """Say where R3L leads GRPO: both ends of the dial, at both learning rates."""
    slow, fast = places(phase, "GRPO", SLOW), places(phase, "GRPO", FAST)
    ours, theirs = (ends(phase, arm, slow[0]) for arm in ("r3l", "grpo"))
    return (
        f"**Where unguided attempts hardly ever win, R3L leads.** From {len(slow[0].gaps)} household policies that win "
        f"{percent(slow[0].p)}, twelve steps at {SLOW:g} give {ours:.3f} with R3L and {theirs:.3f} with GRPO, "
        f"{interval(slow[0].over)}; at {FAST:g} the difference is {interval(fast[0].over)}. "
        f"Where {percent(slow[-1].p)} win, it is {interval(slow[-1].over)} and {interval(fast[-1].over)} "
        "([350 runs](data/results/phase-laptop.md))."
    )


def ends(phase: Results, arm: str, place: Place) -> float:
    """Average an arm's success after the last step at a point of the dial, at the slow rate."""
    curves = (phase["curves"][f"phase.{arm}.s{seed}"] for seed in dial(phase)[place.forgets])
    return mean([curve[max(curve, key=int)] for curve in curves])


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
    """Say what forty iterations leave of what was learned: the last two evaluations, mean over the policies that did
    not choose the setting."""
    ends_by_step = {
        step: [
            mean([curve[at] for at in sorted(curve, key=int)[-2:]])
            for name, curve in keeps["curves"].items()
            if name.rpartition(".s")[0] == run and name.rpartition(".s")[2] in ("1", "2", "3", "4")
        ]
        for step, run in (("small", "keeps.r3l-in-small-steps"), ("single", "keeps.r3l.lr0.001"))
    }
    small, single = ends_by_step["small"], ends_by_step["single"]
    return (
        f"**In small steps small policies keep what they learn; a pretrained one does not yet.** From {len(small)} "
        f"household policies that win nothing, forty iterations in small steps end at {mean(small):.2f} "
        f"({min(small):.2f} to {max(small):.2f}), in single steps at {mean(single):.2f} ({min(single):.2f} to "
        f"{max(single):.2f}) ([keeps](data/results/keeps-laptop.md))."
    )


def fall(smollm2: Results) -> str:
    """Say how a pretrained model fares: mean over the seeds at the start, halfway and at the end."""
    ours, theirs = (
        ", ".join(
            f"{mean([curve[at] for name, curve in smollm2['curves'].items() if f'.{arm}.' in name]):.2f}"
            for at in ("-1", "3", "7")
        )
        for arm in ("r3l", "grpo")
    )
    return (
        f"SmolLM2-135M wins {ours} after 0, 4 and 8 steps of R3L and {theirs} "
        "with GRPO, mean of three seeds: its guided retries win less and less ([page](data/results/smollm2.md))."
    )


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def interval(over: Gap) -> str:
    low, high = over.interval
    return f"{over.mean:+.3f} ({low:+.3f} to {high:+.3f})"
