"""Which ScienceWorld tasks there are: the paper's split by task type, the first half of each type's variations.

Train has 17 task types and 2,294 tasks, test the 13 other types and 1,308 tasks (paper, Experimental Setup).
"""

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
