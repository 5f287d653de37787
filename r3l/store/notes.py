"""Events that are added to a stage after it was committed: of the machine, so that its digest stays, and all that was
made from it."""

from collections.abc import Sequence
from typing import cast

import pyarrow as pa

from r3l.errors import StoreError
from r3l.records import Event
from r3l.store import manifest as manifests
from r3l.store.layout import StageKey
from r3l.store.manifest import Content
from r3l.store.stage import Store, encoded
from r3l.store.tables.parts import to_table
from r3l.store.tables.schemas import INCIDENTS


def note(store: Store, key: StageKey, events: Sequence[Event]) -> None:
    """Add rows to a stage's events. The caller holds the iteration's lock.

    Raises:
        StoreError: the stage is not there or damaged, or another writer committed it meanwhile.
    """
    assert all(one.event in INCIDENTS for one in events), "other events would change the digest of a stage"
    token, manifest = store.files.token(key.manifest), store.manifest(key)
    rows = pa.concat_tables([store.read(manifests.reference(manifest), "events"), to_table("events", events)])
    old = [part for part in manifest["parts"] if part["table"] == "events"]
    kept = [part for part in manifest["parts"] if part["table"] != "events"]
    added, contents = encoded(key, {"events": rows})
    parts = [*kept, *added]
    content = cast(Content, {name: value for name, value in manifest.items() if name != "checksum"} | {"parts": parts})
    if not store.files.put_if(key.manifest, manifests.seal(content), token, contents):
        raise StoreError(f"stage {key}: another writer committed it meanwhile; run it again")
    for part in old:
        store.files.delete(f"{key.folder}/{part['file']}")
