"""Hints for an ALFWorld errand, from vague to precise: what matters, what it takes, and where it is."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from r3l.environments.alfworld.errand import KNOWN, Errand
from r3l.environments.household.hints import VAGUE


def hints(task_type: str, about: Mapping[str, Any], game_file: Path) -> Sequence[str]:
    """Write three hints, of which the first one is the same for all errands and the last one says where the object lies
    at the start; the first alone for other kinds of tasks. `about`: the game's `pddl_params`."""
    if task_type not in KNOWN or about.get("object_sliced"):
        return [VAGUE]
    errand = Errand.of(task_type, about)
    treatment = f", {errand.treatment[0]} it with a {errand.treatment[1]}" if errand.treatment else ""
    plan = f"You need to find a {errand.target}{treatment}, and bring it to a {errand.parent}."
    places = lying(about["object_target"], json.loads(game_file.read_text())["pddl_problem"])
    return (
        [VAGUE, plan, f"{plan} At the start, there is one in or on a {' and a '.join(places)}."]
        if places
        else [VAGUE, plan]
    )


def lying(target: str, problem: str) -> list[str]:
    """List the kinds of receptacles in or on which objects of a kind lie at the start."""
    kinds = re.findall(rf"\(inReceptacle {target}_bar\S* (\w+?)_bar", problem)
    return sorted({kind.lower() for kind in kinds})
