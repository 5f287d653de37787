"""How far runs of an experiment agree with those whose stages are kept beside its results: stage by stage, bit for bit.

`python -m r3l.lab.study.again STORE RUN...` prints what is to be kept.
"""

import json
import sys
from pathlib import Path
from typing import Any

from r3l.store.differences.first_difference import Line
from r3l.store.layout import StageRef
from r3l.store.stage import Store
from r3l.system.machine import other_machine

STAGES = "stages.json"
SHOWN = 16  # digits of a digest


def stages_of_run(store: Store, run: str) -> dict[str, Any]:
    """Gather the digests of a run's stages in the order in which they are made, and the machine of the first one."""
    refs = list(Line(store, run).stages().values())
    digests = {_place(ref): ref.digest[:SHOWN] for ref in refs}
    return {"machine": store.manifest(refs[0]).get("machine"), "stages": digests}


def _place(ref: StageRef) -> str:
    return f"iteration {ref.iteration}, {ref.stage}{f' shard {ref.shard}' if ref.shard else ''}"


def agreement(store: Store, run: str, file: Path) -> str:
    """Say how far a run agrees with the kept one; empty where none is kept."""
    kept = json.loads(file.read_text(encoding="utf-8")).get(run) if file.is_file() else None
    if kept is None:
        return ""
    now = stages_of_run(store, run)
    places = [*kept["stages"]]
    alike = next((n for n, place in enumerate(places) if now["stages"].get(place) != kept["stages"][place]), None)
    if alike is None:
        return f"all {len(places)} stages equal to the kept ones, bit for bit"
    machines = other_machine(kept["machine"], now["machine"])
    made_on = "".join(f"; {name} {then or 'none'}, here {here or 'none'}" for name, (then, here) in machines.items())
    return f"differs from the kept run in {places[alike]}, the first {alike} of {len(places)} stages are equal{made_on}"


if __name__ == "__main__":
    run_store = Store.open(sys.argv[1], reading=True)
    print(json.dumps({run: stages_of_run(run_store, run) for run in sys.argv[2:]}, indent=1))
