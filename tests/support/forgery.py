"""A copy of a stored run in which rows and manifests can be changed: written again with every hash, digest and link in
order, as a bug of ours or a careless script would leave them."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from r3l.stages import STAGES
from r3l.store import manifest as manifests
from r3l.store.catalog import load_manifests
from r3l.store.digests import canonical, lasting, table_digest
from r3l.store.index.contents import place
from r3l.store.layout import StageKey
from r3l.store.stage import Store
from r3l.store.tables.parts import encode, to_table
from r3l.store.tables.schemas import VERSIONS

Row = dict[str, Any]


@dataclass
class ForgedStage:
    """One stage: its manifest, and its rows, which may be changed in place. `fingerprint` other than that of the
    manifest: what follows is made from it under that name."""

    manifest: dict[str, Any]
    tables: dict[str, list[Row]]

    @property
    def key(self) -> StageKey:
        return manifests.reference(self.manifest).key  # type: ignore[arg-type]


@dataclass
class Forgery:
    """Every stage of a copied run."""

    store: Store
    run: str
    stages: list[ForgedStage]
    deleted: list[ForgedStage] = field(default_factory=list)

    @classmethod
    def copy(cls, source: Path, run: str, folder: Path) -> Forgery:
        """Copy a run: files that are not stages' (policies) are linked, and must be replaced, never written to."""
        shutil.copytree(source / run, folder / run, copy_function=os.link)
        store = Store.open(str(folder))
        stages = []
        for one in load_manifests(store, [run]):
            ref = manifests.reference(one)
            tables = {table: store.read(ref, table).to_pylist() for table in (*STAGES[ref.stage].tables, "events")}
            stages.append(ForgedStage(dict(one) | {"schema_version": VERSIONS[ref.stage]}, tables))
        return cls(store, run, stages)

    @property
    def folder(self) -> Path:
        return Path(self.store.root) / self.run

    def of(self, stage: str, iteration: int | None = None, branch: str = "") -> list[ForgedStage]:
        """The shards of a stage, of one iteration or of all."""
        return [
            one
            for one in self.stages
            if (one.manifest["stage"], one.manifest["branch"]) == (stage, branch)
            and iteration in (None, one.manifest["iteration"])
        ]

    def rows(self, stage: str, table: str, iteration: int | None = None, branch: str = "") -> Iterator[Row]:
        """Every row of a table of a stage."""
        for one in self.of(stage, iteration, branch):
            yield from one.tables[table]

    def put(self, path: str, content: bytes | str) -> None:
        """Replace a file of the run that is no stage's."""
        target = self.folder / path
        target.unlink(missing_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)

    def sealed(self, path: str, change: dict[str, Any]) -> None:
        """Change keys of a sealed JSON file (config.json), a dotted path each, and seal it."""
        settings = json.loads((self.folder / path).read_text())
        del settings["checksum"]
        for name, value in change.items():
            *sections, last = name.split(".")
            inner = settings
            for section in sections:
                inner = inner[section]
            inner[last] = value
        self.put(path, manifests.seal(settings))

    def write(self) -> None:
        """Write all stages anew, in the order of the pipeline, so that each is made from what now stands before it."""
        present: dict[StageKey, dict[str, Any]] = {}
        for one in sorted(self.stages, key=lambda stage: place(stage.manifest)):  # type: ignore[arg-type]
            folder = Path(self.store.root) / one.key.folder
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            one.manifest |= self.written(folder, one)
            for parent in one.manifest["parents"]:
                now = present.get(manifests.reference(parent).key)
                if now is not None:
                    parent |= {"digest": now["digest"]}
            content = {name: value for name, value in one.manifest.items() if name != "checksum"}
            (folder / "stage.json").write_bytes(manifests.seal(content))
            present[one.key] = one.manifest
        for one in self.deleted:
            shutil.rmtree(Path(self.store.root) / one.key.folder, ignore_errors=True)

    @staticmethod
    def written(folder: Path, one: ForgedStage) -> dict[str, Any]:
        """Write the parts of a stage; return what its manifest has of them."""
        parts, digests = [], []
        for table, rows in one.tables.items():
            if not rows:
                continue
            made = to_table(table, rows)
            content = encode(made)
            digest = sha256(content).hexdigest()
            name = f"part-{table}-{digest[:12]}.parquet"
            (folder / name).write_bytes(content)
            rows_digest = table_digest(made)
            parts.append(
                {
                    "table": table, "file": name, "rows": made.num_rows, "bytes": len(content), "sha256": digest,
                    "digest": rows_digest,
                }
            )  # fmt: skip
            if lasting(made).num_rows:
                digests.append([table, rows_digest])
        return {"parts": parts, "digest": sha256(canonical(digests)).hexdigest()}
