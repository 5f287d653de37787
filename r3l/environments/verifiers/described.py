"""What a verifiers environment says of itself, read by a process of its own: ``python -m
r3l.environments.verifiers.described``, settings on its standard input, JSON on its output.

Loading an environment imports model clients, sets signal handlers and may only be done in a main thread; the process
that plans and trains does none of that.
"""

import json
import subprocess
import sys
from functools import lru_cache
from typing import Any

from r3l.config.environments.adapters import VerifiersSettings
from r3l.environments.verifiers.tasksets import taskset_of
from r3l.errors import R3LError, WorldError
from r3l.system.child_environment import PYTHON, child_environment
from r3l.system.seeds import derive

TIMEOUT_S = 600  # a data set may have to be fetched
MARK = "\x1eDESCRIBED\x1e"  # before the answer: an environment may print


@lru_cache(maxsize=8)
def describe(settings_json: str) -> dict[str, Any]:
    """Read `of` the environment. Raise `WorldError` with what the process says where there is none."""
    try:
        process = subprocess.run(
            [*PYTHON, "-m", "r3l.environments.verifiers.described"],
            input=settings_json,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            env=child_environment(),
        )
    except subprocess.TimeoutExpired as error:
        raise WorldError(f"the environment was not loaded within {TIMEOUT_S} s") from error
    _, mark, text = process.stdout.rpartition(MARK)
    if not mark:
        raise WorldError(f"the environment could not be described: {process.stderr.strip()[-1000:]}")
    answer: dict[str, Any] = json.loads(text)
    if "error" in answer:
        raise WorldError(str(answer["error"]))
    return answer


def of(settings: VerifiersSettings) -> dict[str, Any]:
    """Collect system prompt, tools, and the rows of each split, which are parted by the seed."""
    rows, system_prompt, tools = taskset_of(settings)
    rows.sort(key=lambda row: derive(settings.tasks_seed, "verifiers", json.dumps(row)))
    number = min(settings.heldout_tasks, len(rows) // 2)
    heldout, train = rows[:number], rows[number:][: settings.train_tasks]
    return {"system_prompt": system_prompt, "tools": tools, "rows": {"train": train, "heldout": heldout}}


def main() -> None:
    try:
        answer = of(VerifiersSettings.model_validate_json(sys.stdin.read()))
    except R3LError as error:
        answer = {"error": str(error)}
    sys.stdout.write(MARK + json.dumps(answer))


if __name__ == "__main__":
    main()
