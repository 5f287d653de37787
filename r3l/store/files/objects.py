"""A store in an object store (``s3://bucket/prefix`` and other addresses of obstore), with the same files and
guarantees.

A put is atomic there by nature, and the conditional put of the lock and the manifest is the service's own (e-tags), so
that exactly one of several writers on any hosts wins. Keys, regions and endpoints come from the usual variables
(AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL and so on).
"""

import os
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

from r3l.errors import StoreError
from r3l.store.files import staging
from r3l.store.files.local import NONE, cache_folder
from r3l.store.files.ranges import RemoteFiles
from r3l.store.layout import ITERATION, STAGING
from r3l.system.visible import first_line


class ObjectFiles(RemoteFiles):
    """Paths are relative to the root's prefix; a part's name holds the digest of its rows. `cache` mirrors, on this
    machine, the folders that must be local."""

    def __init__(self, root: str) -> None:
        self.root = root.rstrip("/")
        self.cache = cache_folder() / quote(self.root, safe="")
        try:
            self._store = obstore.store.from_url(self._address(), client_options=client_options())
            next(iter(self._store.list(chunk_size=1)), None)
        except (BaseError, OSError, ValueError) as error:
            raise StoreError(
                f"store {root}: can't be reached ({first_line(error)}); see AWS_ENDPOINT_URL and the credentials"
            ) from error

    def _address(self) -> str:
        """Write the root as a web address, in which the prefix means what it says: no query, fragment or escape."""
        scheme, _, rest = self.root.partition("://")
        bucket, *prefix = rest.split("/")
        if not {"", ".", ".."}.isdisjoint(prefix):
            raise ValueError("a part of its prefix is empty, . or ..")
        return f"{scheme}://{'/'.join([bucket, *(quote(part, safe='') for part in prefix)])}"

    def paths(self, prefix: str) -> list[str]:
        return sorted(self.sizes(prefix))

    def sizes(self, prefix: str) -> dict[str, int]:
        size_of = {entry["path"]: entry["size"] for entry in self._store.list(prefix or None).collect()}
        below = {path: f"/{path[len(prefix) :].lstrip('/')}" for path in size_of}
        return {
            path: size for path, size in size_of.items() if "/." not in below[path] and "/policies/" not in below[path]
        }

    def folders(self, prefix: str) -> list[str]:
        prefixes = self._store.list_with_delimiter(prefix or None)["common_prefixes"]
        names = [path.rstrip("/").rpartition("/")[2] for path in prefixes]
        return sorted(name for name in names if not name.startswith("."))

    def in_iterations(self, run: str, name: str) -> list[str]:
        parts = (path.rsplit("/", 2) for path in self.paths(run) if path.endswith(f"/{name}"))
        return ["/".join(part) for part in parts if ITERATION.fullmatch(part[1])]

    def token(self, path: str) -> str | None:
        try:
            return self._store.head(path)["e_tag"]
        except FileNotFoundError:
            return None

    def put(self, path: str, content: bytes) -> None:
        try:
            self._store.put(path, content)
        except (BaseError, OSError) as error:
            raise StoreError(f"{self.url(path)}: can't be written ({first_line(error)})") from error

    def put_if(self, path: str, content: bytes, token: str | None, parts: Mapping[str, bytes] = NONE) -> bool:
        for part, bytes_ in parts.items():
            self.put(part, bytes_)
        try:
            self._store.put(path, content, mode="create" if token is None else {"e_tag": token})
        except (AlreadyExistsError, PreconditionError, FileNotFoundError):
            return False
        except (BaseError, OSError) as error:
            raise StoreError(f"{self.url(path)}: can't be written ({first_line(error)})") from error
        return True

    def delete(self, path: str) -> None:
        self._store.delete(path)

    def remove(self, folder: str) -> int:
        entries = self._store.list(f"{folder}/").collect()
        for entry in entries:
            self._store.delete(entry["path"])
        self.forget(folder)
        return sum(entry["size"] for entry in entries)

    def sweep_staging(self) -> list[str]:
        return [path.relative_to(self.cache).as_posix() for path in staging.sweep(self.cache / STAGING)]

    def fetch(self, folder: str) -> Path:
        """Copy a folder of the store (a policy, a stage's parts) to this machine. Its files are taken to be never
        rewritten."""
        for entry in self._store.list(f"{folder}/").collect():
            target = self.cache / entry["path"]
            if not target.is_file() or target.stat().st_size != entry["size"]:
                target.parent.mkdir(parents=True, exist_ok=True)
                # hosts may share a cache, and have the same process ids
                arriving = target.with_name(f".{target.name}~{uuid.uuid4().hex}")
                with open(arriving, "wb") as file:
                    for chunk in self._store.get(entry["path"]):
                        file.write(chunk)
                arriving.rename(target)
        return self.cache / folder

    def forget(self, folder: str) -> None:
        shutil.rmtree(self.cache / folder, ignore_errors=True)

    def publish(self, folder: str) -> None:
        """Put a local folder of the cache into the store; what an earlier one left there under other names goes."""
        old = {entry["path"] for entry in self._store.list(f"{folder}/").collect()}
        for path in sorted((self.cache / folder).rglob("*")):
            if path.is_file():
                name = path.relative_to(self.cache).as_posix()
                self._store.put(name, path)
                old.discard(name)
        for name in old:
            self._store.delete(name)


def client_options() -> Any:
    """Make the client's options: plain http only if the endpoint's address says so, as for a server on loopback."""
    endpoint = os.environ.get("AWS_ENDPOINT_URL") or os.environ.get("AWS_ENDPOINT") or ""
    return {"allow_http": True} if endpoint.startswith("http://") else None
