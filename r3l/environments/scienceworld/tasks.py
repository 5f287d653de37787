"""Which ScienceWorld tasks there are: the paper's split by task type, the first half of each type's variations.

Train has 17 task types and 2,294 tasks, test the 13 other types and 1,308 tasks (paper, Experimental Setup).
"""

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from r3l.config.environments import ScienceWorldSettings
from r3l.environments.base import DataPlan, OnProgress
from r3l.errors import WorldError

# Variations of each type as the simulator counts them; a split takes the first half (rounded down).
TRAIN_VARIATIONS = {
    "boil": 30,
    "melt": 30,
    "change-the-state-of-matter-of": 30,
    "use-thermometer": 540,
    "measure-melting-point-known-substance": 436,
    "power-component": 20,
    "test-conductivity": 900,
    "find-living-thing": 300,
    "find-plant": 300,
    "grow-plant": 126,
    "chemistry-mix": 32,
    "chemistry-mix-paint-secondary-color": 36,
    "lifespan-shortest-lived": 125,
    "identify-life-stages-2": 10,
    "inclined-plane-determine-angle": 168,
    "inclined-plane-friction-named-surfaces": 1386,
    "mendelian-genetics-known-plant": 120,
}
TEST_VARIATIONS = {
    "freeze": 30,
    "measure-melting-point-unknown-substance": 300,
    "power-component-renewable-vs-nonrenewable-energy": 20,
    "test-conductivity-of-unknown-substances": 600,
    "find-non-living-thing": 300,
    "find-animal": 300,
    "grow-fruit": 126,
    "chemistry-mix-paint-tertiary-color": 36,
    "lifespan-longest-lived": 125,
    "lifespan-longest-lived-then-shortest-lived": 125,
    "identify-life-stages-1": 14,
    "inclined-plane-friction-unnamed-surfaces": 162,
    "mendelian-genetics-unknown-plant": 480,
}
SPLITS = {"train": TRAIN_VARIATIONS, "test": TEST_VARIATIONS}


def variations(split: str) -> list[tuple[str, int]]:
    """List (task type, variation) of every task of a split, in a fixed order; "heldout" is another name of "test".

    Raises:
        WorldError: an unknown split.
    """
    split = "test" if split == "heldout" else split
    if split not in SPLITS:
        raise WorldError(f"ScienceWorld split {split!r}: expected one of {', '.join(SPLITS)}")
    return [(task_type, variation) for task_type, total in SPLITS[split].items() for variation in range(total // 2)]


def prepare_simulator(
    settings: ScienceWorldSettings, root: Path, download: bool, progress: OnProgress, wanted: Sequence[str]
) -> DataPlan:
    """Look for the package and Java, and compare the simulator's own counts of variations with those of the split."""
    from r3l.environments.scienceworld.java import MACHINES, jar_path

    jar = jar_path()
    simulator = MACHINES.get(settings.memory_mb).borrow()
    names = [str(name) for name in simulator.getTaskNames()]
    variation_counts = {}
    for number, name in enumerate(names, 1):
        variation_counts[name] = int(simulator.getTaskMaxVariations(name))
        progress("count variations", number, len(names))
    MACHINES.stop()
    paper_counts = {name: total for split in SPLITS.values() for name, total in split.items()}
    if variation_counts != paper_counts:
        other = sorted(
            name for name in {*variation_counts, *paper_counts} if variation_counts.get(name) != paper_counts.get(name)
        )
        raise WorldError(
            f"ScienceWorld {version('scienceworld')} has another number of variations than the paper's split needs "
            f"({', '.join(other)}): pip install 'scienceworld==1.2.3'"
        )
    return DataPlan(
        "easy", tuple(SPLITS), (jar,), {"train": 2294, "test": 1308}, (f"scienceworld {version('scienceworld')}",)
    )
