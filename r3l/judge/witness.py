"""A store that is read as it is, and that keeps what a stage would write instead of writing it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from r3l.errors import Pruned, StoreError
from r3l.store import manifest as manifests
from r3l.store.layout import StageKey, StageRef
from r3l.store.stage import Store
from r3l.store.tables.parts import Rows
from r3l.store.tables.unstorable import storable, whole


class NotStored(StoreError):
    """A stage that is not in the store: what follows it can't be made again."""


@dataclass(frozen=True, slots=True)
class Made:
    """What a stage would have written."""

    tables: dict[str, pa.Table]
    fingerprint: str
    settings: dict[str, Any]
    policy: str
    seed: int
    parents: list[StageRef]


@dataclass(frozen=True)
class Witness(Store):
    """Stages follow one another as stored, so that a stage that lies is named itself, and not all that came of it."""

    made: dict[StageKey, Made] = field(default_factory=dict)
    tables: dict[tuple[StageRef, str, tuple[str, ...]], pa.Table] = field(default_factory=dict)

    def read(self, ref: StageRef, table: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Read rows, verified and decoded once: each stage of an iteration has several others that follow from it."""
        asked = ref, table, tuple(columns or ())
        if asked not in self.tables:
            self.tables[asked] = super().read(ref, table, columns)
        return self.tables[asked]

    def find(self, key: StageKey, fingerprint: str) -> StageRef | None:
        """Find nothing, so that every stage is computed."""
        return None

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
        """Keep what would be written; the result is the stored stage in its place. Raise `NotStored` where there is
        none."""
        rows = storable(key, whole(key, tables))
        self.made[key] = Made(rows, fingerprint, dict(settings or {}), policy, seed, list(parents))
        return self.stored(key)

    def pruned(self, ref: StageRef, table: str) -> bool:
        """Raise `Pruned` where columns were emptied: nobody can tell whether that was before the stage was made."""
        if super().pruned(ref, table):
            raise Pruned(f"stage {ref.key}: {table} was pruned, before or after its rows were learned again")
        return False

    def stored(self, key: StageKey) -> StageRef:
        """Find the stored stage. Raise `NotStored` where there is none."""
        manifest = manifests.load(self.files, key)
        if manifest is None:
            raise NotStored(f"stage {key}: not stored")
        return manifests.reference(manifest)
