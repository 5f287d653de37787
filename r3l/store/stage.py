"""The store: stages are committed completely, found by their fingerprint, and read only after their bytes were
verified."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

from r3l.errors import Pruned, StoreError
from r3l.stages import STAGES
from r3l.store import manifest as manifests
from r3l.store.digests import canonical, fingerprint, lasting, table_digest
from r3l.store.files.local import Files, LocalFiles
from r3l.store.files.lock import LOCK, hold
from r3l.store.layout import BRANCH, MANIFEST, NAME, StageKey, StageRef, iteration_folder, key_of, line_folder
from r3l.store.manifest import Content, Manifest, ManifestPart, Metrics
from r3l.store.sweep import sweep
from r3l.store.tables.parts import Rows, decode, encode
from r3l.store.tables.schemas import VERSIONS, arrow_schema
from r3l.store.tables.unstorable import storable, whole
from r3l.store.tables.versions import failed_where_no_number, needed_beside, upgrade
from r3l.system.home import home
from r3l.system.machine import this_machine
from r3l.version import __version__

__all__ = ["StageKey", "StageRef", "Store", "fingerprint"]
log = logging.getLogger("r3l.store")


@dataclass(frozen=True)
class Store:
    """A root folder with runs. Several threads and processes may use it at the same time; readers need no lock."""

    files: Files

    @classmethod
    def open(cls, root: str = "", *, reading: bool = False) -> Store:
        """Open the store at `root`, a folder, ``s3://bucket/prefix`` or the address of an export; empty: $R3L_STORE,
        else data/runs of `r3l.system.home.home()`.

        Raises StoreError where it can't be written to, before anything is; with `reading`, where it is not there.
        """
        root = root or os.environ.get("R3L_STORE", "") or str(home() / "data" / "runs")
        if "://" not in root:
            return cls(LocalFiles(Path(root), reading))
        from r3l.store.files.objects import ObjectFiles
        from r3l.store.files.web import SCHEMES, WebFiles

        if root.partition("://")[0] in SCHEMES:
            return cls(WebFiles(root))
        return cls(ObjectFiles(root))

    @property
    def root(self) -> str:
        return self.files.root

    def commit(
        self,
        key: StageKey,
        tables: Mapping[str, Rows],
        *,
        fingerprint: str,
        parents: Sequence[StageRef] = (),
        settings: Mapping[str, Any] | None = None,
        policy: str = "",
        seed: int = 0,
        metrics: Mapping[str, Any] | None = None,
    ) -> StageRef:
        """Write a stage: its parts, each under a name made of its content, then the manifest.

        A stage that was there before stays readable until then. An attempt with a value that its column can't hold
        becomes an event, and the others are committed. Raise StoreError where the rows don't fit the tables, where
        another writer commits the stage meanwhile, or where an iteration that the run went on from would be rewritten.
        """
        before = self.files.token(key.manifest)
        if before is not None:
            self._refuse_rewriting(key, fingerprint)
        storable_tables = storable(key, whole(key, tables))
        parts, contents = encoded(key, storable_tables)
        digests = [
            [part["table"], part["digest"]] for part in parts if lasting(storable_tables[part["table"]]).num_rows
        ]
        ref = StageRef(**asdict(key), fingerprint=fingerprint, digest=sha256(canonical(digests)).hexdigest())
        content: Content = {
            **manifests.manifest_ref(ref),
            "schema_version": VERSIONS[key.stage],
            "code_version": __version__,
            "seed": seed,
            "policy": policy,
            "settings": dict(settings or {}),
            "metrics": cast(Metrics, {name: finite(value) for name, value in (metrics or {}).items()}),
            "parents": [manifests.manifest_ref(parent) for parent in parents],
            "parts": parts,
            "committed_at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "machine": this_machine(),
        }
        # the manifest last of all: whoever reads it finds every part in its place
        if not self.files.put_if(key.manifest, manifests.seal(content), before, contents):
            raise StoreError(f"stage {key}: another writer committed it meanwhile; see who holds the iteration's lock")
        if before is not None:
            self._drop_unnamed(key, parts)
        return ref

    def _refuse_rewriting(self, key: StageKey, fingerprint: str) -> None:
        """Raise for a stage that must not be rewritten: of a newer version, another evaluation, or one built on."""
        try:
            manifest = manifests.load(self.files, key)
        except manifests.NewerVersion:
            raise
        except StoreError:
            return
        after = replace(key, iteration=key.iteration + 1, stage="tasks", shard=None)
        same = manifest is None or manifest["fingerprint"] == fingerprint
        if not same and key.stage == "evaluations":
            raise StoreError(f"stage {key}: another evaluation is there; give this one the next shard")
        if not same and self.files.token(after.manifest) is not None:
            raise StoreError(
                f"stage {key}: iteration {after.iteration} continues from it, and these would rewrite it; replay it "
                f"into a branch: r3l replay {key.run} --iteration {key.iteration} --from {key.stage} --set ..."
            )

    def _drop_unnamed(self, key: StageKey, parts: list[ManifestPart]) -> None:
        file_names = {MANIFEST, *(part["file"] for part in parts)}
        for path in self.files.paths(key.folder):
            if path.removeprefix(f"{key.folder}/") not in file_names and "/" not in path.removeprefix(f"{key.folder}/"):
                self.files.delete(path)

    def find(self, key: StageKey, fingerprint: str) -> StageRef | None:
        """Find the committed stage with this fingerprint, intact and with unchanged parents; else None."""
        try:
            manifest = manifests.load(self.files, key)
            if manifest is None or manifest["fingerprint"] != fingerprint:
                return None
            for part in manifest["parts"]:
                manifests.read_part(self.files, key, part)
            if changes := manifests.outdated_parents(self.files, manifest):
                raise StoreError(changes[0])
        except manifests.NewerVersion:
            raise
        except StoreError as error:
            log.warning("%s; stage %s is made again", error, key)
            return None
        return manifests.reference(manifest)

    def intact(self, ref: StageRef) -> bool:
        """Tell whether the stage still matches `ref`, with all parts in their sizes; `read` verifies their bytes."""
        try:
            manifest = manifests.load(self.files, ref.key)
        except manifests.NewerVersion:
            raise
        except StoreError:
            return False
        sizes = self.files.sizes(ref.key.folder)
        return (
            manifest is not None
            and manifest["digest"] == ref.digest
            and all(sizes.get(f"{ref.key.folder}/{part['file']}") == part["bytes"] for part in manifest["parts"])
        )

    def manifest(self, ref: StageRef | StageKey) -> Manifest:
        """Load the stage's manifest. Raise StoreError where there is none or, for a ref, where another content took its
        place."""
        key = ref.key if isinstance(ref, StageRef) else ref
        content = manifests.load(self.files, key)
        if content is None:
            raise StoreError(f"stage {key}: not committed in {self.root}; run the iteration again")
        if isinstance(ref, StageRef) and content["digest"] != ref.digest:
            raise StoreError(
                f"stage {key}: holds {content['digest'][:12]}, expected {ref.digest[:12]}; it was made again since"
            )
        return content

    def pruned(self, ref: StageRef, table: str) -> bool:
        """Tell whether columns of a stage's table were emptied."""
        return any(part.get("dropped") for part in self.manifest(ref)["parts"] if part["table"] == table)

    def read(self, ref: StageRef, table: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Read the rows of one table of a stage (or these columns of it), verified against the manifest first."""
        manifest = self.manifest(ref)
        schema = (
            arrow_schema(table) if columns is None else pa.schema([arrow_schema(table).field(name) for name in columns])
        )
        for part in manifest["parts"]:
            if part["table"] == table:
                refuse_dropped(ref.key, part, schema.names)
                content, version = manifests.read_part(self.files, ref.key, part), manifest["schema_version"]
                if version != VERSIONS[ref.stage]:
                    return upgrade(decode(content), table, version).select(schema.names)
                column_names = sorted({*schema.names, *needed_beside(table, schema.names)})
                return failed_where_no_number(decode(content, column_names)).select(schema.names).cast(schema)
        return schema.empty_table()

    def stages(self, run: str, branch: str = "", iteration: int | None = None) -> list[StageRef]:
        """List the committed stages of a run (or of a branch of it, without the run's own), in the order of the
        pipeline."""
        prefix = line_folder(run, branch) if iteration is None else iteration_folder(run, branch, iteration)
        keys = [key for path in self.files.paths(prefix) if (key := key_of(path)) and key.branch == branch]
        refs = [manifests.reference(content) for key in keys if (content := manifests.load(self.files, key))]
        order = list(STAGES)
        return sorted(
            refs, key=lambda ref: (ref.iteration, order.index(ref.stage), -1 if ref.shard is None else ref.shard)
        )

    def next_iteration(self, run: str, branch: str = "") -> int:
        """Find the first iteration without a committed update. A branch begins where it was forked."""
        names = (name.partition("iteration=") for name in self.files.folders(line_folder(run, branch)))
        there = {int(number) for before, _, number in names if not before and number.isdecimal()}
        iteration = min(there, default=0) if branch else 0
        while iteration in there and self.files.token(StageKey(run, branch, iteration, "updates").manifest) is not None:
            iteration += 1
        return iteration

    def branches(self, run: str) -> list[str]:
        """List the names of a run's branches."""
        return [name[7:] for name in self.files.folders(run) if BRANCH.fullmatch(name)]

    def runs(self) -> list[str]:
        """List the names of the runs that have at least one committed stage."""
        return [name for name in self.files.folders("") if self.has_run(name)]

    def has_run(self, run: str) -> bool:
        """Tell whether there is such a run with a committed stage."""
        folders = (f"{run}/{name}" for name in (self.files.folders(run) if NAME.fullmatch(run) else ()))
        inner = (f"{folder}/{name}" for folder in folders for name in self.files.folders(folder))
        return any(key_of(path) for folder in inner for path in self.files.paths(folder))  # mostly of the first

    @contextmanager
    def writer_lock(self, run: str, branch: str = "", iteration: int = 0) -> Iterator[None]:
        """Hold the lock of an iteration as its only writer. Raise StoreError that names a living holder."""
        with hold(self.files, f"{iteration_folder(run, branch, iteration)}/{LOCK}"):
            yield

    def run_folder(self, run: str, branch: str = "") -> Path:
        """Make the local folder of a run where there is none: policy snapshots lie in ``policies/iteration=00007/``
        under it.

        Where the root is an object store it is a mirror: `publish` brings what is written there to the root, `local`
        fetches it.
        """
        folder = self.files.cache / line_folder(run, branch)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def local(self, folder: str) -> Path:
        """Bring a folder under the root (a policy, a stage's parts) to this machine."""
        return self.files.fetch(folder)

    def publish(self, folder: str) -> None:
        """Copy a folder that was written under `run_folder` to the root."""
        self.files.publish(folder)

    def sweep(self, run: str) -> list[str]:
        """Delete what dead writers left: staged files, and parts that no manifest names. The result is the deleted
        paths."""
        return sweep(self.files, run)


def encoded(key: StageKey, tables: Mapping[str, pa.Table]) -> tuple[list[ManifestPart], dict[str, bytes]]:
    """Encode the tables that have rows: what the manifest says of each part, and path -> bytes."""
    parts, contents = list[ManifestPart](), dict[str, bytes]()
    for table, rows in ((table, rows) for table, rows in tables.items() if rows.num_rows):
        content = encode(rows)
        sha = sha256(content).hexdigest()
        name = f"part-{table}-{sha[:12]}.parquet"
        contents[f"{key.folder}/{name}"] = content
        parts.append(
            {
                "table": table,
                "file": name,
                "rows": rows.num_rows,
                "bytes": len(content),
                "sha256": sha,
                "digest": table_digest(rows),
            }
        )
    return parts, contents


def finite(value: object) -> object:
    """Replace NaN and infinity, which JSON lacks, by null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def refuse_dropped(key: StageKey, part: ManifestPart, names: Sequence[str]) -> None:
    """Raise Pruned for a column that was pruned: it is empty where it had been full."""
    if empty_names := set(names) & set(part.get("dropped", ())):
        columns = f"{part['table']}.{', '.join(sorted(empty_names))}"
        raise Pruned(f"stage {key}: {columns} was pruned; replay from an earlier stage instead")
