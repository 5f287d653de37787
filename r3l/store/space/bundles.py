"""Bundles: copies of the tables of many finished iterations in few large files, so that questions to a long run are as
fast as to a short one.

A bundle is a copy for readers. The stages stay the truth: whoever commits or prunes a stage deletes the bundle that
covers it first, `r3l check` compares the two, and a bundle may be deleted at any time. It lies in
``<run>/[branch=<b>/].bundles/00000-00015/``, one file per stage and table, with the manifests of its stages in
``bundle.json``, written last.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from hashlib import sha256

from r3l.errors import StoreError
from r3l.store.digests import canonical
from r3l.store.files.local import Files
from r3l.store.layout import StageKey, line_folder
from r3l.store.manifest import Manifest, NamedFile
from r3l.store.tables.schemas import TABLES, VERSIONS

FOLDER, INDEX = ".bundles", "bundle.json"
log = logging.getLogger("r3l.store")


class BundleFile(NamedFile):
    """The rows of one table of one stage, in all iterations of a bundle."""

    stage: str
    table: str


@dataclass(frozen=True, slots=True)
class Bundle:
    """What one bundle holds: manifests of whole iterations, and its own files."""

    line: str
    folder: str
    iterations: frozenset[int]
    manifests: list[Manifest]
    files: list[BundleFile]


def load_bundles(files: Files, line: str) -> list[Bundle]:
    """Return the usable bundles of a run or branch. One that is damaged, or of other versions, is left aside and named
    in the log."""
    bundles = []
    for name in files.folders(f"{line}/{FOLDER}"):
        folder = f"{line}/{FOLDER}/{name}"
        try:
            if (bundle := load_bundle(files, folder)) is not None:
                bundles.append(bundle)
        except (StoreError, ValueError, KeyError, TypeError) as error:
            log.warning("%s: not used (%s); delete the folder and run compact again", folder, error)
    return bundles


def load_bundle(files: Files, folder: str) -> Bundle | None:
    """Return None where it has no index (yet). Raise StoreError where its index or the size of a file is wrong."""
    raw = files.read(f"{folder}/{INDEX}")
    if raw is None:
        return None
    content = json.loads(raw)
    checksum = content.pop("checksum")
    if sha256(canonical(content)).hexdigest() != checksum:
        raise StoreError("its index was changed after it was written")
    if content["versions"] != VERSIONS:
        raise StoreError("it was made by another version")
    if {entry["table"] for entry in content["files"]} - set(TABLES):
        raise StoreError("it contains unknown tables")
    sizes = files.sizes(folder)
    if wrong := [
        entry["file"] for entry in content["files"] if sizes.get(f"{folder}/{entry['file']}") != entry["bytes"]
    ]:
        raise StoreError(f"{wrong[0]} is missing or was cut")
    iterations = frozenset(manifest["iteration"] for manifest in content["manifests"])
    return Bundle(folder.partition(f"/{FOLDER}/")[0], folder, iterations, content["manifests"], content["files"])


def drop_bundle(files: Files, key: StageKey) -> None:
    """Delete the bundle that covers the iteration of a stage that changes, index first."""
    line = line_folder(key.run, key.branch)
    for name in files.folders(f"{line}/{FOLDER}"):
        first, _, last = name.partition("-")
        if first.isdigit() and last.isdigit() and int(first) <= key.iteration <= int(last):
            files.delete(f"{line}/{FOLDER}/{name}/{INDEX}")
            for path in files.paths(f"{line}/{FOLDER}/{name}"):
                files.delete(path)
