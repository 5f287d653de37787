"""An update over several nodes: the first node gets the job and announces its place; the others wait for it and join by
torchrun.

All nodes see the job's files under the same paths. Variables: torchrun's own PET_NNODES, PET_NODE_RANK, PET_MASTER_ADDR
and PET_MASTER_PORT, and R3L_JOB_POINTER, a file on the shared volume. `python -m r3l.training.parallel.nodes` is what a
further node runs.
"""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

from r3l.errors import TrainingError
from r3l.store.files.local import replace_text
from r3l.system.child_environment import PYTHON, importable

POINTER = "R3L_JOB_POINTER"
WAIT_S = 3600.0


def several() -> bool:
    """Tell whether this process is on one of several nodes (PET_NNODES is a number, or least:most)."""
    return os.environ.get("PET_NNODES", "1").rpartition(":")[2] not in {"", "1"}


def command(spec: Path, processes: int) -> list[str]:
    """Make the command that starts the job on this node: plain Python for one process, else torchrun, which meets the
    other nodes where there are any."""
    job = ["-m", "r3l.training", "--job", str(spec)]
    if processes == 1 and not several():
        return [*PYTHON, *job]
    alone = [] if several() else ["--standalone", "--local-addr=127.0.0.1"]  # a host need not know its own name
    return [*PYTHON, "-m", "torch.distributed.run", f"--nproc-per-node={processes}", *alone, *job]


def announce(spec: Path) -> None:
    """Announce the place of the written job to the other nodes, if there are any."""
    if several() and (pointer := os.environ.get(POINTER)):
        replace_text(Path(pointer), str(spec.absolute()))


def join_command(wait_s: float = WAIT_S, pause: Callable[[float], None] = time.sleep) -> list[str]:
    """Wait until the first node has announced its job, and make the command by which this node joins.

    Raises:
        TrainingError: no pointer is set, or none was written within `wait_s` seconds.
    """
    pointer = os.environ.get(POINTER)
    if not pointer:
        raise TrainingError(
            f"{POINTER} is not set: a further node of an update needs the file by which the first one names its job"
        )
    until = time.monotonic() + wait_s
    while not Path(pointer).is_file():
        if time.monotonic() > until:
            raise TrainingError(
                f"{pointer} was not written within {wait_s:g} s: check that the first node started and shares this "
                "volume"
            )
        pause(0.5)
    spec = Path(Path(pointer).read_text())
    return command(spec, int(json.loads(spec.read_text())["training"]["processes"]))


if __name__ == "__main__":
    line = join_command()
    os.execve(line[0], line, importable(os.environ))
