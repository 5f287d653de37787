"""Make data/sample_run anew, and the cookbook's answers with it: `python -m tests.support.sample_run`.

Two real iterations of the embedded policy on ALFWorld's kitchens, an evaluation of the second one's policy, and a
branch with another alpha. The policies (11 MB each) and the locks stay behind: the tables are what ships, so the run
can be asked, audited and replayed from `distilled` on, but not gone on with.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from infra.pages.cookbook import DATA, cookbook
from r3l.store.manifest import seal, unsealed
from r3l.store.stage import Store

RUN, BRANCH = "sample", "alpha-5"
SIZE = ["rollout.tasks=8", "rollout.group_size=8", "rollout.tasks_per_shard=4", "evaluation.tasks=12"]
LARGEST = 1_000_000
LEFT_BEHIND = ("policies", "writer.lock", ".staging")


def r3l(store: Path, *words: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "flows.cli.app", *words], check=True, env=os.environ | {"R3L_STORE": str(store)}
    )


def settings() -> list[str]:
    return [word for one in SIZE for word in ("--set", one)]


def play(store: Path) -> None:
    """The commands that a user would give."""
    r3l(store, "train", "--run", RUN, "--policy", "embedded", "--iterations", "2", *settings())
    r3l(store, "evaluate", "--run", RUN, *settings())
    r3l(
        store, "replay", RUN, "--iteration", "1", "--from", "credit", "--to", "training_rows", "--set",
        "method.alpha=5", "--branch", BRANCH,
    )  # fmt: skip


def ship(store: Path, folder: Path) -> int:
    """Copy the tables over what shipped before. Returns their bytes."""
    shutil.rmtree(folder / RUN, ignore_errors=True)
    shutil.copytree(store / RUN, folder / RUN, ignore=shutil.ignore_patterns(*LEFT_BEHIND))
    for path in folder.rglob("config.json"):  # a replay notes the store that it was made in
        settings = unsealed(path.read_bytes(), str(path))
        path.write_bytes(seal(json.loads(json.dumps(settings).replace(json.dumps(str(store)), '""'))))
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        play(Path(scratch))
        size = ship(Path(scratch), DATA / "sample_run")
    assert size < LARGEST, f"{size:,} bytes: make it smaller by SIZE"
    (DATA / "queries" / "README.md").write_text(cookbook(Store.open(str(DATA / "sample_run"))), encoding="utf-8")
    print(f"data/sample_run: {size:,} bytes; look at it: r3l audit data/sample_run")
