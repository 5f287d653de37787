"""One table against the field: `python -m tests.benchmarks.table [--only NAME ...] [--quick] [--page FILE]`.

Each row is measured by a process of its own, both sides in turns. The table is printed, and written into the marked
section of data/PERFORMANCE.md; rows that were not asked for stay as they are. All figures are costs, so that the ratio
(rival / r3l) says how many times as much the rival needs.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.benchmarks.table.form import Found, from_dict, parse, put, render
from tests.benchmarks.table.rows import ALL_CORES, ROWS

ROOT = Path(__file__).parents[3]


def measured(name: str, quick: bool) -> list[Found] | None:
    """One row's lines; None where its process failed and has said why."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH", ""), str(ROOT / ".venv-rivals")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    if name not in ALL_CORES:
        environment |= {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    words = [sys.executable, "-m", "tests.benchmarks.table.rows", name, *(["--quick"] if quick else [])]
    with tempfile.TemporaryDirectory() as cache:
        environment["R3L_CACHE"] = cache
        done = subprocess.run(words, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    return None if done.returncode else [from_dict(one) for one in json.loads(done.stdout.splitlines()[-1])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = list(ROWS)
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--quick", action="store_true", help="each row so small that its figures are not to be quoted")
    parser.add_argument("--page", type=Path, default=ROOT / "data/PERFORMANCE.md")
    options = parser.parse_args()
    failed = []
    for name in options.only:
        began = time.monotonic()
        found = measured(name, options.quick)
        if found is None:
            failed.append(name)
        else:
            put(options.page, name, found, names, options.quick)
        print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    for heads, rows in parse(options.page.read_text()).items():
        print(render(rows, heads), end="\n\n")
    if failed:
        sys.exit(f"failed, their lines are as they were: {', '.join(failed)}")


if __name__ == "__main__":
    main()
