"""An update's row: the policies that it leads from and to, its step, its counts, and the files that it wrote."""

import json
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from r3l.engines.canary import CANARY
from r3l.errors import StoreError
from r3l.judge.compare import OF_THE_CODE, same, settings_differences, values_text
from r3l.judge.lines import Lines, Place
from r3l.methods import counted_groups
from r3l.pipeline.stages import stage_io
from r3l.pipeline.stages.identity import stage_settings
from r3l.pipeline.update.local import policy_place
from r3l.records import Credit
from r3l.store import manifest as manifests
from r3l.store.files.local import Files
from r3l.store.layout import StageRef, line_folder
from r3l.store.manifest import Manifest
from r3l.store.policies.places import fetch_optimiser, fetch_policy
from r3l.store.policies.snapshots import BESIDE, IDENTITY

REPORT = "update.json"
WRITTEN = ("update.json", CANARY, "job.json", "stderr.log")  # into an update's folder, beside policy and optimiser


def find_false_steps(lines: Lines, place: Place) -> Iterator[tuple[Manifest, str]]:
    """Yield what an iteration's update says and does not hold."""
    for manifest in place.of("updates"):
        rows = lines.store.read(manifests.reference(manifest), "updates").to_pylist()
        if not rows:
            yield manifest, "has no row"
            continue
        yield from ((manifest, what) for what in wrong_lineage(lines, place, manifest, rows))
        if not place.pruned and reads_all_at_once(lines, place):
            yield from ((manifest, what) for what in wrong_counts(lines, manifest, rows[0]))
        yield from ((manifest, what) for what in wrong_files(lines, place, rows))


def reads_all_at_once(lines: Lines, place: Place) -> bool:
    """Tell whether each step of the update reads every row: not where the batch is cut into minibatches."""
    config = lines.config(place.branch, place.iteration)
    return config is None or (config.training.epochs, config.training.minibatches) == (1, 1)


def wrong_lineage(lines: Lines, place: Place, manifest: Manifest, rows: list[dict[str, Any]]) -> Iterator[str]:
    config = lines.config(place.branch, place.iteration)
    first, last = rows[0], rows[-1]
    if config is not None:
        for name, what in settings_differences(manifest["settings"], stage_settings(config, "updates")):
            if name not in OF_THE_CODE:
                yield f"its settings are not those of its iteration: {name}: {what}"
        learner = lines.policies(place, config).learner.digest
        for name, digest in (("parent_policy", first["parent_policy"]), ("policy of its manifest", manifest["policy"])):
            if learner and digest != learner:
                yield f"{name} is {digest}, the policy before it is {learner}"
    home = policy_place("", place.iteration).lstrip("/")
    if config is not None and last["path"] != f"{home}/policy":
        yield f"path is {last['path']}, its iteration writes {home}/policy"
    if any(row["iteration"] != place.iteration for row in rows):
        yield f"iteration is {first['iteration']}, it lies in {place.iteration}"
    before = lines.policies(place, config).steps if config else first["step"] - 1
    for number, row in enumerate(rows):
        step = before + (number + 1 if row["tokens_computed"] > 0 else 0)
        # Earlier versions counted iterations, whether a step was taken or not.
        if row["step"] not in (step, place.iteration + (row["tokens_computed"] > 0)):
            yield f"step is {row['step']}, expected {step}"


def wrong_counts(lines: Lines, manifest: Manifest, row: dict[str, Any]) -> Iterator[str]:
    """Count the rows that the update read once more."""
    parents = [StageRef(**parent) for parent in manifest["parents"]]
    store, of_rows = lines.store, ["term", "trained_tokens", "token_ids"]
    read = [one for ref in parents for one in store.read(ref, "training_rows", of_rows).to_pylist()]
    replay_refs = [ref for ref in parents if ref.stage == "replay"]
    credit = [
        one
        for ref in parents
        if ref.stage == "training_rows"
        for parent in store.manifest(ref)["parents"]
        if parent["stage"] == "credit"
        for one in stage_io.records(store, manifests.reference(parent), "credit", Credit)
    ]
    groups = counted_groups(credit) + sum(store.read(ref, "replay", ["group_id"]).num_rows for ref in replay_refs)
    lengths = [len(one["token_ids"]) for one in read]
    counts = {
        "rows": len(read),
        "groups": groups,
        "tokens_rl": sum(one["trained_tokens"] for one in read if one["term"] != "sft"),
        "tokens_sft": sum(one["trained_tokens"] for one in read if one["term"] == "sft"),
        "tokens_sequences": sum(lengths),
    }
    for name, count in counts.items():
        if row[name] != count:
            yield f"{name} is {row[name]}, its training rows have {count}"
    if not 0 <= row["tokens_computed"] <= max(row["tokens_sequences"], 0):
        yield f"tokens_computed is {row['tokens_computed']}, of {row['tokens_sequences']} at most"


def wrong_files(lines: Lines, place: Place, rows: list[dict[str, Any]]) -> Iterator[str]:
    """Hold the policy's folder, if it is kept, against the row: weights, optimiser's state, what the job reported."""
    store, row = lines.store, rows[-1]
    line = line_folder(place.run, place.branch)
    home = policy_place(line, place.iteration)
    if f"iteration={place.iteration:05d}" not in store.files.folders(f"{line}/policies"):
        return
    for check, folder, digest in (
        (fetch_policy, f"{home}/policy", row["policy"]),
        (fetch_optimiser, f"{home}/optimizer", row["optimiser"]),
    ):
        try:
            check(store, folder, digest, verify=True)
        except StoreError as error:
            yield str(error)
    yield from strangers(store.files.cache / home, home)
    report, canary = read_json(store.files, f"{home}/{REPORT}"), read_json(store.files, f"{home}/{CANARY}")
    if report is None:
        yield f"{home}/{REPORT}: missing, or no JSON object"
    else:
        steps = report.get("steps", [report])  # before an update could take several, its report was that of the one
        if not isinstance(steps, list) or len(steps) != len(rows):
            yield f"{home}/{REPORT}: tells of another number of steps than {len(rows)}"
            steps = []
        whole = [(report, row)] if len(rows) == 1 else []  # of several steps it has sums
        for step, stored_row in [*zip(steps, rows, strict=False), *whole]:
            for name in sorted(step.keys() & stored_row.keys()):
                if not same(as_column(step[name]), as_column(stored_row[name])):
                    yield f"{name} is {values_text(stored_row[name], step[name])} in {home}/{REPORT}"
        if "canary" in report and canary != {"policy": row["policy"], **report["canary"]}:
            yield f"{home}/{CANARY}: not what the update measured"


def strangers(folder: Path, home: str) -> Iterator[str]:
    """Name what no update writes into its folder: somebody else put it there, and loading a policy may read it."""
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        kind = inside.parts[0]
        ours = (
            any(fnmatch(path.name, pattern) for pattern in (*IDENTITY, *BESIDE))
            if kind == "policy"
            else kind in WRITTEN or kind == "optimizer"
        )
        if not path.is_dir() and (not ours or not path.is_file() or len(inside.parts) > 2):
            yield f"{home}/{inside.as_posix()}: no update writes such a file"


def as_column(value: Any) -> Any:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def read_json(files: Files, path: str) -> dict[str, Any] | None:
    """Read the JSON object in a file; None where there is none."""
    try:
        value = json.loads(files.read(path) or b"null")
    except (ValueError, RecursionError, StoreError):
        return None
    return value if isinstance(value, dict) else None
