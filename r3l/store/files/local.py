"""Files under a store's root: written whole and durably, with the conditional write that locks and manifests need."""

import fcntl
import json
import os
import shutil
import stat
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from r3l.errors import StoreError
from r3l.store.files import staging
from r3l.store.files.staging import sync, sync_folder, writing
from r3l.store.layout import EXPORT_INDEX, STAGING

NONE: Mapping[str, bytes] = MappingProxyType({})


class Files(Protocol):
    """The files of a store. Paths are relative to the root, with forward slashes. A file exists completely or not at
    all."""

    root: str

    def paths(self, prefix: str) -> list[str]: ...

    def sizes(self, prefix: str) -> dict[str, int]:
        """List every file under a folder with its bytes; hidden folders and policies are not the tables' business."""

    def folders(self, prefix: str) -> list[str]:
        """List the names of the folders in a folder, hidden ones left out."""

    def in_iterations(self, run: str, name: str) -> list[str]:
        """List the files of this name that lie directly in an iteration of a run, or of one of its branches."""

    def read(self, path: str) -> bytes | None: ...

    def token(self, path: str) -> str | None:
        """Read the token that names the present content of a file, for `put_if`; None where there is no file."""

    def put(self, path: str, content: bytes) -> None: ...

    def put_if(self, path: str, content: bytes, token: str | None, parts: Mapping[str, bytes] = NONE) -> bool:
        """Write only if the file is still what `token` names (None: absent). Exactly one of several concurrent writers
        wins. `parts`: files that it names, which are written first: whoever reads it finds them in their places."""

    def delete(self, path: str) -> None: ...

    def remove(self, folder: str) -> int:
        """Delete a folder with all that is in it. The result is the bytes that it held."""

    def url(self, path: str) -> str:
        """Return the address under which DuckDB and pyarrow open a file."""

    def sweep_staging(self) -> list[str]:
        """Delete what dead writers staged and never moved into place. The result is what was deleted."""

    def attach(self, connection: Any) -> None:
        """Let a DuckDB connection open the files."""

    def fetch(self, folder: str) -> Path:
        """Bring a folder under the root to this machine: the folder itself, or a copy."""

    def forget(self, folder: str) -> None:
        """Drop this machine's copy of a folder, so that it is fetched anew; the root itself is left as it is."""

    def publish(self, folder: str) -> None:
        """Copy what was written in the local copy of a folder to the root."""

    @property
    def cache(self) -> Path:
        """Where local copies lie."""


class LocalFiles:
    """A folder of the local file system."""

    def __init__(self, root: Path, reading: bool = False) -> None:
        self.folder = root.absolute()
        self.root = str(self.folder)
        if reading:
            if (self.folder / EXPORT_INDEX).is_file():
                raise StoreError(
                    f"store {root}: an export of a run, which is asked where a web server has it (--store "
                    "https://HOST/FOLDER); ask the store that it was made of, or its Parquet files"
                )
            if self.folder.is_file():
                raise StoreError(f"store {root}: a file, expected a folder")
            if not self.folder.is_dir():
                raise StoreError(
                    f"store {root}: not there; `r3l iterate` makes one, or name another by --store or R3L_STORE"
                )
            return
        there = next(folder for folder in (self.folder / STAGING, *(self.folder / STAGING).parents) if folder.exists())
        if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK) or not (self.folder.exists() or grows(there)):
            raise StoreError(f"store {root}: not writable ({there}); choose another by --store or R3L_STORE")

    def paths(self, prefix: str) -> list[str]:
        return sorted(self.sizes(prefix))

    def sizes(self, prefix: str) -> dict[str, int]:
        size_of: dict[str, int] = {}
        for folder, folders, names in os.walk(self.folder / prefix, onerror=refuse_closed):
            folders[:] = [name for name in folders if name != "policies" and not name.startswith(".")]
            for name in names:
                path = f"{folder}/{name}"
                with suppress(FileNotFoundError):  # deleted since it was listed
                    size_of[path[len(self.root) :].lstrip("/")] = size_at(path)
        return size_of

    def folders(self, prefix: str) -> list[str]:
        try:
            return sorted(
                entry.name
                for entry in os.scandir(self.folder / prefix)
                if entry.is_dir() and not entry.name.startswith(".")
            )
        except (FileNotFoundError, NotADirectoryError):
            return []

    def in_iterations(self, run: str, name: str) -> list[str]:
        # not by `paths`: that looks at every file of the run
        patterns = (f"iteration=*/{name}", f"branch=*/iteration=*/{name}")
        there = (path for pattern in patterns for path in (self.folder / run).glob(pattern))
        return sorted(path.relative_to(self.folder).as_posix() for path in there)

    def read(self, path: str) -> bytes | None:
        try:
            return content_of(self.folder / path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except PermissionError:
            raise
        except OSError as error:  # a loop of links, a name that is too long, a disk that fails
            raise StoreError(f"{self.folder / path}: can't be read ({error.strerror}); move it away") from error

    def token(self, path: str) -> str | None:
        content = self.read(path)
        return None if content is None else sha256(content).hexdigest()

    def put(self, path: str, content: bytes) -> None:
        with self._staged({path: content}) as staged:
            self._place(staged)

    def put_if(self, path: str, content: bytes, token: str | None, parts: Mapping[str, bytes] = NONE) -> bool:
        with self._staged({**parts, path: content}) as staged:
            named = {path: staged.pop(path)}
            self._place(staged)
            with self._guard():
                # under the kernel's lock nothing can change between the comparison and the rename
                if self.token(path) != token:
                    return False
                self._place(named)
                return True

    @contextmanager
    def _staged(self, contents: Mapping[str, bytes]) -> Iterator[dict[str, Path]]:
        """Write files aside, with their bytes on the disk; the result says where. What was not moved goes."""
        staged: dict[str, Path] = {}
        with ExitStack() as leftovers:
            with writing(self.folder / next(iter(contents))), ExitStack() as files:
                handles = []
                for path, content in contents.items():
                    staged[path] = self._staging() / staging.staging_name()
                    leftovers.callback(staged[path].unlink, missing_ok=True)
                    file = files.enter_context(open(staged[path], "xb"))
                    file.write(content)
                    file.flush()
                    handles.append(file.fileno())
                sync(handles)
            yield staged

    def _place(self, staged: Mapping[str, Path]) -> None:
        """Move staged files to their names. Their bytes are on the disk by then, and their names when this returns:
        after a power cut a name never stands for half a file."""
        for path, staging_file in staged.items():
            target = self.folder / path
            with writing(target):
                target.parent.mkdir(parents=True, exist_ok=True)
                os.rename(staging_file, target)
        for folder in {(self.folder / path).parent for path in staged}:
            with writing(folder):
                sync_folder(folder)

    def delete(self, path: str) -> None:
        (self.folder / path).unlink(missing_ok=True)

    def remove(self, folder: str) -> int:
        size = sum(path.stat().st_size for path in (self.folder / folder).rglob("*") if path.is_file())
        shutil.rmtree(self.folder / folder, ignore_errors=True)
        return size

    def url(self, path: str) -> str:
        return f"{self.root}/{path}"

    def sweep_staging(self) -> list[str]:
        return [path.relative_to(self.folder).as_posix() for path in staging.sweep(self.folder / STAGING)]

    def attach(self, connection: Any) -> None:
        """Do nothing: DuckDB opens local files itself."""

    def fetch(self, folder: str) -> Path:
        return self.folder / folder

    def forget(self, folder: str) -> None:
        """Do nothing: there is no copy."""

    def publish(self, folder: str) -> None:
        """Do nothing: the folder is already in place."""

    @property
    def cache(self) -> Path:
        return self.folder

    @contextmanager
    def _guard(self) -> Iterator[None]:
        """Make compare-and-write atomic between processes. The kernel releases the lock when its holder dies."""
        with open(self._staging() / staging.GUARD, "ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _staging(self) -> Path:
        folder = self.folder / STAGING
        folder.mkdir(parents=True, exist_ok=True)
        return folder


def read_object(files: Files, path: str) -> dict[str, Any]:
    """Read the JSON object in a file; empty where there is no file, or where it was torn."""
    try:
        value = json.loads(files.read(path) or b"{}")
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def content_of(path: Path) -> bytes:
    """Read the bytes of a regular file. Raise StoreError for anything else: a pipe without a writer would keep its
    reader waiting, and a device may have no end."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        what = "a folder" if stat.S_ISDIR(mode) else "no regular file"
        raise StoreError(f"{path}: is {what}, expected a file; move it away")
    with open(handle, "rb") as file:
        return file.read()


def size_at(path: str) -> int:
    """Measure the bytes of a file; of a link that leads nowhere -1, so that it is listed, and told of when it is
    read."""
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        raise
    except OSError:
        return -1


def refuse_closed(error: OSError) -> None:
    """Raise for a folder that cannot be read, instead of treating it as empty."""
    if isinstance(error, PermissionError):
        raise error


def cache_folder() -> Path:
    """Find the cache folder of this machine, for copies of object stores and indexes of runs."""
    return Path(os.environ.get("R3L_CACHE") or "~/.cache/r3l").expanduser()


def replace_text(path: Path, text: str) -> None:
    """Write a file of this machine, whole or not at all, durably; its folder is made where there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # hosts that share a folder may have the same process ids
    partial = path.with_name(f".{path.name}~{uuid.uuid4().hex}")
    with open(partial, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    sync_folder(path.parent)


def grows(folder: Path) -> bool:
    """Try whether a folder can be made in `folder`: permissions allow it to root even in /proc."""
    try:
        os.rmdir(tempfile.mkdtemp(prefix=".r3l-", dir=folder))
    except OSError:
        return False
    return True
