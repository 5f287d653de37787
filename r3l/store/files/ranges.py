"""Files of an object store or a web server, whole, or as DuckDB opens them: it asks for ranges of bytes, and gets these
alone."""

import re
from datetime import UTC, datetime
from functools import cached_property
from threading import get_ident
from typing import Any
from urllib.parse import urlsplit

import obstore
from fsspec import AbstractFileSystem
from obstore.exceptions import BaseError

from r3l.errors import StoreError
from r3l.system.visible import first_line


class RemoteFiles:
    """Files below an address, read through one client. None is ever rewritten under a name that DuckDB opens."""

    root: str
    _store: "obstore.store.ObjectStore"

    def read(self, path: str) -> bytes | None:
        try:
            return bytes(self._store.get(path).bytes())
        except FileNotFoundError:
            return None
        except (BaseError, OSError) as error:
            raise StoreError(f"{self.url(path)}: can't be read ({first_line(error)})") from error

    def url(self, path: str) -> str:
        return f"{self.root}/{path}"

    def attach(self, connection: Any) -> None:
        """Let DuckDB open these files. What a connection has read of one it doesn't ask for again."""
        connection.register_filesystem(self._opener)
        connection.execute("SET validate_external_file_cache = 'NO_VALIDATION'")

    @cached_property
    def _opener(self) -> "RangedFiles":
        return RangedFiles(self._store, self.root)


class RangedFiles(AbstractFileSystem):  # type: ignore[misc]
    """The files below `root`, an address. What has been seen of a file is taken to stay: none is ever rewritten."""

    cachable = False

    def __init__(self, store: Any, root: str) -> None:
        super().__init__()
        self.protocol = urlsplit(root).scheme
        self._store, self._below = store, root.partition("://")[2].rstrip("/") + "/"
        self._sizes: dict[str, int] = {}

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        key = path.rpartition("://")[2].removeprefix(self._below)
        if key not in self._sizes:
            self._sizes[key] = self._store.head(key)["size"]
        return {"name": path, "key": key, "size": self._sizes[key], "type": "file"}

    def glob(self, path: str, **kwargs: Any) -> list[str]:
        # each pattern that is asked for stands for one path, in which [?] means ?
        return [re.sub(r"\[([*?\[])\]", r"\1", path)]

    def modified(self, path: str) -> datetime:
        return datetime(2000, 1, 1, tzinfo=UTC)

    def open(self, path: str, mode: str = "rb", **kwargs: Any) -> "RangedFile":
        about = self.info(path)
        return RangedFile(self._store, about["key"], about["size"])


class RangedFile:
    """An open file. DuckDB's threads share it, and each seeks before it reads: so each has a place of its own."""

    def __init__(self, store: Any, key: str, size: int) -> None:
        self._store, self._key, self._size = store, key, size
        self._place: dict[int, int] = {}

    def seek(self, place: int, whence: int = 0) -> int:
        start = {0: 0, 1: self.tell(), 2: self._size}[whence]
        self._place[get_ident()] = start + place
        return start + place

    def tell(self) -> int:
        return self._place.get(get_ident(), 0)

    def read(self, size: int = -1) -> bytes:
        start = self.tell()
        end = self._size if size < 0 else min(start + size, self._size)
        if end <= start:
            return b""
        self._place[get_ident()] = end
        return bytes(obstore.get_range(self._store, self._key, start=start, end=end))

    def close(self) -> None:
        self._place.clear()
