"""The manifest of a stage. It is written last, so that its presence means that the stage is complete, and it has a
checksum."""

import json
from collections.abc import Mapping
from hashlib import sha256
from types import MappingProxyType
from typing import Annotated, Any, NotRequired, cast

from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from r3l.errors import StoreError
from r3l.stages import STAGES
from r3l.store.digests import canonical
from r3l.store.files.local import Files
from r3l.store.layout import StageKey, StageRef
from r3l.store.tables.schemas import VERSIONS
from r3l.system.machine import Machine

Number = Annotated[int, Field(ge=-(2**63), lt=2**63)]  # what a column holds
Count = Annotated[int, Field(ge=0, lt=2**63)]


class NamedFile(TypedDict):
    """A file as whoever names it knows it."""

    file: str
    bytes: Count
    sha256: str


class ManifestPart(NamedFile):
    """The file of one table of a stage. `digest` is that of its rows, `dropped` names the columns that were pruned."""

    table: str
    rows: Count
    digest: str
    dropped: NotRequired[list[str]]


class ManifestRef(TypedDict):
    """A `StageRef` in JSON."""

    run: str
    branch: str
    iteration: int
    stage: str
    shard: int | None
    fingerprint: str
    digest: str


class Metrics(TypedDict, total=False):
    """What a stage measured: its wall time (null where it was no number), and how many attempts it made and lost."""

    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None
    attempts: Count
    failed_attempts: Count
    max_failed_share: Annotated[float, Field(ge=0, le=1)]


class Content(ManifestRef):
    """What a manifest says of its stage. `settings` and `metrics` are the stage's own; `machine` is what
    `r3l.system.machine` tells of the one that committed it (older manifests have none)."""

    schema_version: Count
    code_version: str
    seed: Number
    policy: str
    settings: dict[str, Any]
    metrics: Metrics
    parents: list[ManifestRef]
    parts: list[ManifestPart]
    committed_at: str
    machine: NotRequired[Machine]


class Manifest(Content):
    """A content with its checksum, as it is stored."""

    checksum: str


FIELDS = frozenset(Manifest.__annotations__)
REF_FIELDS = tuple(StageRef.model_fields)
REQUIRED = FIELDS - {"machine"}
NO_DIGESTS: Mapping[StageKey, str] = MappingProxyType({})
FORM = TypeAdapter(Manifest)


def seal(content: Mapping[str, object]) -> bytes:
    """Write a manifest as the bytes to store, with its own checksum in it."""
    return json.dumps(
        {**content, "checksum": sha256(canonical(content)).hexdigest()}, indent=1, sort_keys=True
    ).encode()


def unsealed(content: bytes, path: str) -> dict[str, Any]:
    """Read sealed settings without their checksum.

    Raises:
        StoreError: they are no JSON object, or were changed after they were written.
    """
    try:
        fields = json.loads(content)
        canonical(fields)
    except (ValueError, RecursionError) as error:
        raise StoreError(
            f"{path}: these settings can't be read (not JSON: {error}); run the iteration again, which writes them anew"
        ) from error
    if not isinstance(fields, dict):
        raise StoreError(
            f"{path}: these settings can't be read (no JSON object); run the iteration again, which writes them anew"
        )
    checksum = fields.pop("checksum", None)
    if checksum != sha256(canonical(fields)).hexdigest():
        raise StoreError(
            f"{path}: changed after it was written (checksum {str(checksum)[:12]}); run the iteration again, "
            "which writes it anew"
        )
    return fields


def unseal(content: bytes, key: StageKey) -> Manifest:
    """Parse the manifest from its bytes. Raise StoreError where they are no manifest, were changed, or belong to
    another place."""
    try:
        manifest = json.loads(content)
        if not isinstance(manifest, dict) or not set(manifest) >= REQUIRED:
            raise StoreError(f"{key.manifest}: not a stage manifest; delete the file and the stage is made again")
        fields = {name: value for name, value in manifest.items() if name != "checksum"}
        checksum = sha256(canonical(fields)).hexdigest()
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{key.manifest}: not JSON ({error}); delete the file and the stage is made again") from error
    if checksum != manifest["checksum"]:
        raise StoreError(
            f"{key.manifest}: changed after it was written (checksum {manifest['checksum']!s:.12}, content "
            f"{checksum[:12]})"
        )
    refuse_other_forms(manifest, key)
    own_key = StageKey(manifest["run"], manifest["branch"], manifest["iteration"], manifest["stage"], manifest["shard"])
    if own_key != key:
        raise StoreError(f"{key.manifest}: this manifest belongs to {own_key}; delete it and the stage is made again")
    if manifest["schema_version"] > VERSIONS[key.stage] or not set(manifest) <= FIELDS:
        raise NewerVersion(
            f"{key.manifest}: version {manifest['schema_version']} of stage {key.stage}; this code reads up to "
            f"{VERSIONS[key.stage]}: it was written by r3l {manifest['code_version']}: use that version or a later one"
        )
    return cast(Manifest, manifest)


def refuse_other_forms(manifest: dict[str, Any], key: StageKey) -> None:
    """Raise StoreError for a field of another type than ours, and for a part that lies elsewhere: readers rely on
    both."""
    try:
        FORM.validate_python(manifest, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise StoreError(
            f"{key.manifest}: a manifest of another form ({place}: {first['msg']}); delete the file and the stage is "
            "made again"
        ) from error
    for part in manifest["parts"]:
        if "/" in part["file"] or part["table"] not in (*STAGES[key.stage].tables, "events"):
            raise StoreError(f"{key.manifest}: names {part['file']!r:.80}, which is no part of {key.stage}")


class NewerVersion(StoreError):
    """A stage of a later version of the code. It is refused and never overwritten."""


def load(files: Files, key: StageKey) -> Manifest | None:
    content = files.read(key.manifest)
    return None if content is None else unseal(content, key)


def reference(entry: ManifestRef) -> StageRef:
    """Make the reference to a stage from its manifest, or from that of a stage which was made from it."""
    return StageRef(**{name: entry[name] for name in REF_FIELDS})  # type: ignore[literal-required]


def manifest_ref(ref: StageRef) -> ManifestRef:
    """Write a reference as a manifest holds it."""
    return cast(ManifestRef, ref.model_dump())


def outdated_parents(files: Files, manifest: Manifest, digests: Mapping[StageKey, str] = NO_DIGESTS) -> list[str]:
    """List the parents of a stage that have changed: made again with other rows, lost or damaged. `digests`: of
    manifests that were read before, and are not read again."""
    changes = []
    for parent in manifest["parents"]:
        key = reference(parent).key
        if digests.get(key) == parent["digest"]:
            continue
        try:
            present = load(files, key)
        except StoreError as error:
            changes.append(str(error))
            continue
        if present is None:
            changes.append(f"{key.manifest}: missing, though {manifest['stage']} was made from it")
        elif present["digest"] != parent["digest"]:
            changes.append(f"{key.manifest}: its rows are not those that {manifest['stage']} was made from")
    return changes


def read_part(files: Files, key: StageKey, part: ManifestPart) -> bytes:
    """Read the verified bytes of a part. Raise StoreError where it is missing or not what the manifest says."""
    return read_verified(files, f"{key.folder}/{part['file']}", part)


def read_verified(files: Files, path: str, entry: NamedFile) -> bytes:
    """Read the bytes of a file and check them against the expected (bytes, sha256). Raise StoreError if it is missing
    or differs."""
    content = files.read(path)
    if content is None:
        raise StoreError(
            f"{path}: missing, though the manifest names it; run the iteration again and the stage is made anew"
        )
    if len(content) != entry["bytes"]:
        raise StoreError(
            f"{path}: {len(content)} bytes, the manifest says {entry['bytes']}; run the iteration again to make it anew"
        )
    if sha256(content).hexdigest() != entry["sha256"]:
        raise StoreError(
            f"{path}: its content changed after it was written (sha256 differs); run the iteration again to make it "
            "anew"
        )
    return content
