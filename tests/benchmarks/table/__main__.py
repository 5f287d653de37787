"""One table against the field: `python -m tests.benchmarks.table [--only NAME ...] [--quick] [--avx2] [--page
FILE]`.

Each row is measured by a process of its own, both sides in turns. The table is printed, and written into the marked
section of data/PERFORMANCE.md; rows that were not asked for stay as they are. All figures are costs, so that the ratio
(rival / r3l) says how many times as much the rival needs. With --avx2 torch, oneDNN, OpenBLAS and the C compiler are
told that this processor has AVX2 and no more; the rows that this can change have lines of their own for it.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from r3l.system.machine import c_compiler
from tests.benchmarks.table.form import AVX2, Found, from_dict, parse, put, render
from tests.benchmarks.table.rows import ALL_CORES, BY_REGISTERS, ROWS

ROOT = Path(__file__).parents[3]


def measured(name: str, quick: bool, avx2: bool) -> list[Found] | None:
    """One row's lines; None where its process failed and has said why."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH", ""), str(ROOT / ".venv-rivals")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    if name not in ALL_CORES:
        environment |= {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    words = [sys.executable, "-m", "tests.benchmarks.table.rows", name, *(["--quick"] if quick else [])]
    with tempfile.TemporaryDirectory() as cache:
        environment["R3L_CACHE"] = cache
        environment |= narrow(Path(cache, "cc")) if avx2 else {}
        done = subprocess.run(words, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        return None
    found = [from_dict(one) for one in json.loads(done.stdout.splitlines()[-1])]
    return [replace(one, what=f"AVX2: {one.what}") for one in found] if avx2 else found


def narrow(compiler: Path) -> dict[str, str]:
    """Tell libraries and the compiler, by a program of that path, to use AVX2 and nothing wider."""
    compiler.write_text(f'#!/bin/sh\nexec {c_compiler()} "$@" -mno-avx512f\n')
    compiler.chmod(0o755)
    return {
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "OPENBLAS_CORETYPE": "Haswell",
        "CC": str(compiler),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = list(ROWS)
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--quick", action="store_true", help="each row so small that its figures are not to be quoted")
    parser.add_argument(
        "--avx2", action="store_true", help=f"only {', '.join(BY_REGISTERS)}: as on a machine with AVX2"
    )
    parser.add_argument("--page", type=Path, default=ROOT / "data/PERFORMANCE.md")
    options = parser.parse_args()
    rows = sorted([*names, *(name + AVX2 for name in BY_REGISTERS)], key=lambda row: names.index(row.split()[0]))
    asked = [name for name in options.only if not options.avx2 or name in BY_REGISTERS]
    if not asked:
        parser.error(f"--avx2 measures {', '.join(BY_REGISTERS)} alone: got --only {' '.join(options.only)}")
    failed = []
    for name in asked:
        began = time.monotonic()
        found = measured(name, options.quick, options.avx2)
        if found is None:
            failed.append(name)
        else:
            put(options.page, name + AVX2 if options.avx2 else name, found, rows, options.quick)
        print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    for heads, lines in parse(options.page.read_text()).items():
        print(render(lines, heads), end="\n\n")
    if failed:
        sys.exit(f"failed, their lines are as they were: {', '.join(failed)}")


if __name__ == "__main__":
    main()
