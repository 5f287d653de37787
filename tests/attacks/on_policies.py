"""Attacks on policies and on the optimiser's state beside them."""

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from r3l.store.files.staging import GUARD
from r3l.store.policies.places import fetch_optimiser, fetch_policy
from r3l.store.policies.snapshots import optimiser_digest, snapshot_digest
from r3l.store.stage import Store
from tests.attacks.outcomes import Outcomes, refusal
from tests.properties.test_store_corruption import cut, flip
from tests.unit.test_store_policy_places import STARTER, write

PLACE = "demo/policies/iteration=00002"
Harm = Callable[[random.Random, Path], object]


def removed(chance: random.Random, path: Path) -> None:
    path.unlink()


def added(chance: random.Random, path: Path) -> None:
    """A file more, of a kind that counts."""
    path.with_name("model-99999.safetensors").write_bytes(path.read_bytes())


HARMS: dict[str, Harm] = {"a flipped bit": flip, "cut": cut, "removed": removed, "another file": added}


def stored(root: Path) -> Store:
    """A store with a policy of every kind of file, and an optimiser's state beside it."""
    store = Store.open(str(root))
    policy, optimiser = root / PLACE / "policy", root / PLACE / "optimizer"
    for folder in (policy, optimiser):
        folder.mkdir(parents=True)
    for number in range(2):
        save_file({"w": np.arange(64, dtype=np.float32) + number}, policy / f"model-{number}.safetensors")
    save_file({"exp_avg": np.ones(64, np.float32)}, optimiser / "optimizer.safetensors")
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        (policy / name).write_text(f'{{"of": "{name}"}}')
    return store


def damaged_policies(folder: Path, outcomes: Outcomes, tries: int) -> None:
    """Weights, tokenizer, template or configuration of a stored policy changed: it is never taken for the policy."""
    for number in range(tries):
        chance = random.Random(number)
        store = stored(folder / str(number))
        policy = folder / str(number) / PLACE / "policy"
        digest = snapshot_digest(policy)
        path = chance.choice(sorted(policy.iterdir()))
        name = list(HARMS)[number % len(HARMS)]
        HARMS[name](chance, path)
        with outcomes.attempt(f"{path.name}: {name}"):
            refused(lambda: fetch_policy(store, f"{PLACE}/policy", digest))  # noqa: B023


def damaged_optimisers(folder: Path, outcomes: Outcomes, tries: int) -> None:
    """The optimiser's state with flipped bits, cut, or gone: the next step is refused, and never begins afresh."""
    for number in range(tries):
        chance = random.Random(number)
        store = stored(folder / str(number))
        optimiser = folder / str(number) / PLACE / "optimizer"
        digest = optimiser_digest(optimiser)
        [path] = optimiser.iterdir()
        name = list(HARMS)[number % len(HARMS)]
        HARMS[name](chance, path)
        if name == "removed" and chance.random() < 0.5:
            optimiser.rmdir()
            name = "the folder removed"
        with outcomes.attempt(f"{path.name}: {name}"):
            refused(lambda: fetch_optimiser(store, f"{PLACE}/optimizer", digest))  # noqa: B023


def refused(fetch: Callable[[], object]) -> None:
    assert "expected" in refusal(fetch), "the digest that was expected is not named"


def said(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline()


def starters(folder: Path, outcomes: Outcomes, tries: int) -> None:
    """Four starters share each policy at the same moment: all of them go on, and it is there once, whole."""
    digests = [write(folder / f"start-{number}", b"abc" * 10_000, b"%d" % number) for number in range(tries)]
    command = [sys.executable, "-c", STARTER, str(folder), *digests]
    children = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        for _ in range(4)
    ]
    for number, _ in enumerate(digests):
        with outcomes.attempt(f"policy {number}"):
            for child in children:
                assert said(child) == "ready\n", "a starter has died"
            for child in children:
                assert child.stdin is not None
                child.stdin.write("go\n")
                child.stdin.flush()
    with outcomes.attempt("all of them"):
        assert [child.communicate(timeout=120) and child.returncode for child in children] == [0] * 4, "a starter died"
        shared = folder / "runs" / ".policies"
        assert [snapshot_digest(shared / digest) for digest in digests] == digests, "another policy lies there"
        assert set(os.listdir(folder / "runs" / ".staging")) <= {GUARD}, "something is left in staging"
