"""Which goals are for training and which for testing: the paper's rule, WebShop's own, and one for small catalogues."""

from r3l.errors import WorldError

# rule -> split -> (first goal, end); an end of None is the last goal.
RULES: dict[str, dict[str, tuple[int, int | None]]] = {
    "paper": {"train": (0, 4096), "test": (4096, 4196)},
    "webshop": {"test": (0, 500), "dev": (500, 1500), "train": (1500, None)},
}


def split_goals(rule: str, split: str, goals: int) -> range:
    """Number the goals of a split. `scaled` is WebShop's rule in tenths: test the first, dev the second, train the
    rest. "heldout" is another name of "test".

    Raises:
        WorldError: an unknown split, or fewer goals than the rule needs.
    """
    split = "test" if split == "heldout" else split
    tenth = goals // 10
    splits = RULES.get(rule, {"test": (0, tenth), "dev": (tenth, 2 * tenth), "train": (2 * tenth, None)})
    if split not in splits:
        raise WorldError(f"WebShop split {split!r}: the rule {rule!r} has {', '.join(splits)}")
    goals_needed = max(end or first + 1 for first, end in splits.values())
    if goals < goals_needed:
        raise WorldError(
            f"WebShop's split rule {rule!r} needs {goals_needed} goals, this catalogue has {goals}: "
            "set environment.split_rule=scaled, or take more products"
        )
    first, end = splits[split]
    return range(first, goals if end is None else end)
