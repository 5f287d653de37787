"""Processor time of a command by process and room, from samples of `py-spy`.

py-spy record --rate 100 --format raw --subprocesses --output FILE -- .venv/bin/r3l iterate --policy embedded
python -m tests.benchmarks.profile_by_room FILE

A sample belongs to the innermost room of the project in its stack. What a room imports is counted apart. Threads that
wait for something are left out; one that waits for a core counts as at work, so the machine should do nothing else.
"""

import re
import sys
from collections import Counter
from pathlib import Path

WAITS = (
    *("wait (threading", "wait (concurrent", "_worker (concurrent", "select (selectors", "poll (selectors"),
    *("_read (r3l/pipeline/update/output", "wait_for_jobs (r3l", "paths (r3l/training/parallel"),
    *("read (r3l/environments/workers/process", "<listcomp> (r3l/environments/workers/worker"),
    *("main (r3l/environments/workers/worker", "_wait_for_tstate_lock", "get (queue", "accept (socket"),
    *("readinto (socket", "_try_wait (subprocess"),
)
PROCESSES = {"r3l.training": "update", "r3l.environments.workers": "worlds", "flows.serving.tied": "Prefect's server"}
ROOM = re.compile(r"\((r3l|flows)/([^/: ]+)(?:/([^/: ]+))?[^:]*?(?::\d+)?\)$")


def main(path: Path) -> None:
    samples: Counter[tuple[str, str]] = Counter()
    for line in path.read_text().splitlines():
        stack, _, count = line.rpartition(" ")
        frames = stack.split(";")
        calls = [frame for frame in frames if not frame.startswith(("process ", "thread "))]
        if not calls or any(wait in calls[-1] for wait in WAITS):
            continue
        command = next((frame for frame in reversed(frames) if frame.startswith("process ")), "")
        process = next((name for module, name in PROCESSES.items() if module in command), "the run's process")
        samples[process, room_of(calls)] += int(count)
    total = samples.total()
    print("| process | room | share |\n|---|---|---|")
    for (process, room), count in samples.most_common(24):
        print(f"| {process} | {room} | {count / total:.1%} |")
    print(f"{total} samples; by process:")
    for process in dict.fromkeys(process for process, _ in samples):
        print(process, f"{sum(count for (owner, _), count in samples.items() if owner == process) / total:.1%}")


def room_of(calls: list[str]) -> str:
    """Name the innermost room of the project in a stack, and whether it imports."""
    rooms = [(place, match) for place, call in enumerate(calls) if (match := ROOM.search(call))]
    place, match = rooms[-1] if rooms else (0, None)
    imports = any("importlib" in call for call in calls[place:])
    name = "/".join(filter(None, match.groups())) if match else "libraries alone"
    return f"imports, by {name}" if imports else name


if __name__ == "__main__":
    main(Path(sys.argv[1]))
