"""A manifest's own words: its fingerprint is that of its settings, its counts are those of its rows."""

from collections.abc import Iterator

from r3l.judge.lines import Lines, Place, key_of_manifest
from r3l.pipeline.policies import Policies
from r3l.records import Status
from r3l.stages import STAGES
from r3l.store import manifest as manifests
from r3l.store.digests import fingerprint
from r3l.store.manifest import Manifest
from r3l.store.stage import Store
from r3l.store.tables.schemas import IDENTITY_VERSIONS


def find_misnamed(lines: Lines, place: Place) -> Iterator[tuple[Manifest, str]]:
    """Yield the stages of an iteration whose manifest does not bear its own identity, and what is wrong."""
    config = lines.config(place.branch, place.iteration)
    for one in place.manifests:
        if not one["settings"]:
            continue  # the oldest stores have none
        if one["schema_version"] >= IDENTITY_VERSIONS[one["stage"]]:
            place_fields = {"iteration": one["iteration"], "shard": one["shard"]}
            policies = lines.policies(place, config) if config else None
            against = further(one, policies)
            if against is not None and one["fingerprint"] not in {
                fingerprint(
                    one["stage"],
                    one["settings"],
                    [parent["fingerprint"] for parent in one["parents"]],
                    one["policy"],
                    place_fields | more,
                )
                for more in against
            }:
                yield one, "its fingerprint is not that of its settings, parents and policy"
        if one["seed"] != one["settings"].get("seed", one["seed"]):
            yield one, f"seed {one['seed']}, its settings have {one['settings']['seed']}"
        yield from ((one, what) for what in find_miscounts(lines.store, one))
        for parent in one["parents"]:
            present = manifests.load(lines.store.files, manifests.reference(parent).key)
            if present and present["fingerprint"] != parent["fingerprint"]:
                yield one, f"made from another {key_of_manifest(present)} than the one that is stored"


def further(one: Manifest, policies: Policies | None) -> list[dict[str, str]] | None:
    """List the further digests that the stage's identity may have; None where they are not known here."""
    stage = STAGES[one["stage"]]
    if stage.trains:
        if policies is None:
            return None
        return [{"start": policies.start.digest, "optimiser": policies.optimiser or ""}]
    if one["stage"] == "reflections":
        teacher = one["settings"].get("plan", {}).get("guidance") == "teacher"
        return None if teacher else [{}]
    return [{}]


def find_miscounts(store: Store, one: Manifest) -> Iterator[str]:
    """Yield the counts of attempts that are not those of the rows."""
    counts = one["metrics"]
    if not STAGES[one["stage"]].samples or "attempts" not in counts:
        return
    ref = manifests.reference(one)
    statuses = [
        Status(row["status"])
        for table in ("trajectories", "reflections")
        if table in STAGES[one["stage"]].tables
        for row in store.read(ref, table, ["status"]).to_pylist()
    ]
    failures = sum(status.failed for status in statuses)
    unstorable = sum(event == "unstorable" for event in store.read(ref, "events", ["event"])["event"].to_pylist())
    if not len(statuses) <= counts["attempts"] <= len(statuses) + unstorable:
        yield f"{len(statuses)} attempts are stored, {counts['attempts']} were made"
    if failures != counts["failed_attempts"] and not unstorable:
        yield f"{failures} attempts are said to have failed, {counts['failed_attempts']} did"
