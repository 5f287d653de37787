"""How many lies `r3l check` sees: corruptions of meaning, each planted in a copy of a healthy run with every hash in
order.

    python -m tests.benchmarks.planted [--store FOLDER --run NAME] [--only NAME] [--quick]

Without a store, a run is made first: two iterations of the household, a replay into a branch, an evaluation.
"""

import argparse
import tempfile
import time
from pathlib import Path

from r3l.judge.verdict import judge
from r3l.pipeline.tools import Tools
from r3l.store.stage import Store
from tests.support.forgery import Forgery
from tests.support.healthy_run import RUN, healthy_run
from tests.support.lies import LIES, Lie


def tried(source: Path, run: str, lie: Lie, quick: bool, tools: Tools) -> tuple[list[str], float]:
    """Plant a lie; return what is found of it, and the seconds that took. Raise `StopIteration` where the run has no
    row that it could be told of."""
    with tempfile.TemporaryDirectory(dir=source.parent) as folder:  # on the same disk, so that files can be linked
        forged = Forgery.copy(source, run, Path(folder))
        lie(forged)
        forged.write()
        began = time.perf_counter()
        verdict = judge(Store.open(folder, reading=True), run, quick, tools)
        return [str(one) for one in verdict.findings], time.perf_counter() - began


def honest(run: Forgery) -> None:
    """Change nothing: writing a run anew is no lie."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", type=Path)
    parser.add_argument("--run", default=RUN)
    parser.add_argument("--only", default="")
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args()
    tools = Tools()
    with tempfile.TemporaryDirectory() as folder:
        source = asked.store or healthy_run(Path(folder) / "store")
        told(source, asked.run, [one for one in LIES if asked.only in one.__name__], asked.quick, tools)
    tools.close()


def told(source: Path, run: str, lies: list[Lie], quick: bool, tools: Tools) -> None:
    """Print of each lie whether it is found, and by what."""
    missed, without = [], []
    for lie in (honest, *lies):
        try:
            findings, seconds = tried(source, run, lie, quick, tools)
        except StopIteration:
            without.append(lie.__name__)
            continue
        if lie is not honest and not findings:
            missed.append(lie.__name__)
        first = (findings or ["-"])[0]
        print(f"{'found' if findings else 'clean'} {seconds:5.1f} s  {lie.__name__}: {first:.150}", flush=True)
    tried_lies = len(lies) - len(without)
    print(f"{tried_lies - len(missed)} of {tried_lies} found; missed: {', '.join(missed) or 'none'}")
    print(f"this run has no row for: {', '.join(without) or 'none'}")


if __name__ == "__main__":
    main()
