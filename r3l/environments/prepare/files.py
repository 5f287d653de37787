"""Files of a data root: their hashes, writing whole or not at all, downloads."""

import hashlib
import os
import re
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from r3l.environments.base import DataPlan, OnProgress
from r3l.errors import WorldError
from r3l.system.visible import first_line

BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """A file, or all files of a folder taken together. `path` is relative to the data root, a bare name outside it."""

    path: str
    files: int
    bytes: int
    sha256: str


def fingerprint(path: Path, root: Path, progress: OnProgress) -> Fingerprint:
    """Hash a file; of a folder, its files' names and hashes. Raise `WorldError` where it is missing."""
    if not path.exists():
        raise WorldError(f"{path} is missing: run `r3l prepare` again")
    name = path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name
    if path.is_file():
        return Fingerprint(name, 1, path.stat().st_size, sha256_of(path))
    files = sorted(file for file in path.rglob("*") if file.is_file())
    whole = hashlib.sha256()
    for number, file in enumerate(files, 1):
        whole.update(f"{file.relative_to(path).as_posix()} {sha256_of(file)}\n".encode())
        progress(f"verify {name}", number, len(files))
    return Fingerprint(name, len(files), sum(file.stat().st_size for file in files), whole.hexdigest())


def sha256_of(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def fetch(address: str, target: Path, progress: OnProgress) -> None:
    """Download a file, whole or not at all.

    Raises:
        WorldError: it could not be had; names the address and where to put the file by hand.
    """
    import httpx  # late: worlds import this module

    target.parent.mkdir(parents=True, exist_ok=True)
    staging = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with httpx.stream("GET", address, follow_redirects=True, timeout=30) as answer, staging.open("wb") as content:
            answer.raise_for_status()
            total, bytes_read = int(answer.headers.get("content-length", 0)), 0
            for block in answer.iter_bytes(BLOCK):
                content.write(block)
                bytes_read += len(block)
                progress(f"download {target.name}", bytes_read, total)
        os.replace(staging, target)
    except httpx.HTTPError as error:
        staging.unlink(missing_ok=True)
        raise WorldError(
            f"{target} is missing and could not be downloaded ({first_line(error)}): get {address} and put it there"
        ) from error


def unpack(archive: Path, folder: Path, progress: OnProgress) -> None:
    """Unpack the files of a zip archive under `folder`; none may lead outside of it. Raise `WorldError` if it is no
    archive."""
    try:
        with zipfile.ZipFile(archive) as zip_file:
            names = zip_file.namelist()
            outside = [name for name in names if not (folder / name).resolve().is_relative_to(folder.resolve())]
            if outside:
                raise WorldError(f"{archive} contains a path outside its folder ({outside[0]!r}): not unpacked")
            for number, name in enumerate(names, 1):
                zip_file.extract(name, folder)
                progress(f"unpack {archive.name}", number, len(names))
    except zipfile.BadZipFile as error:
        raise WorldError(f"{archive} is not a zip archive ({error}): delete it and run `r3l prepare` again") from error


def silent(what: str, done: int, total: int) -> None:
    """Ignore the progress."""


def nothing_to_fetch(
    settings: Any, root: Path, download: bool, progress: OnProgress, wanted: Sequence[str]
) -> DataPlan:
    """Prepare nothing: tasks are seeds, or rows that the environment's package brings or fetches itself."""
    source = next((value for name in ("env", "toolset", "url") if (value := getattr(settings, name, ""))), "")
    return DataPlan(
        f"{re.sub(r'[^A-Za-z0-9.-]+', '_', source)}-{settings.tasks_seed}",
        ("train", "heldout"),
        notes=(f"tasks are those of {source}, no file is needed",),
    )
