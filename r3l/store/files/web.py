"""A run that `r3l export --to-hub` wrote, read where a web server has it: ``https://host/folder``, or
``hf://datasets/user/name`` of the Hugging Face hub.

A web server lists no files: what there is stands in the index of the export. Nothing can be written.
"""

import json
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

from obstore.store import HTTPStore

from r3l.errors import StoreError
from r3l.store.files.local import cache_folder
from r3l.store.files.ranges import RemoteFiles
from r3l.store.layout import EXPORT_INDEX

SCHEMES = ("http", "https", "hf")
FOLDER = "r3l"  # of an export: what is not a table of its data set
INDEX, STAGES = EXPORT_INDEX, f"{FOLDER}/stages.parquet"
BRANCHES, VIEWS = f"{FOLDER}/branches", f"{FOLDER}/views"
FORM = 1


def address_of(root: str) -> str:
    """Write where the files of a data set of the hub lie (``hf://datasets/user/name@revision``, else its branch main);
    any other address as it is."""
    kind, _, name = root.removeprefix("hf://").rstrip("/").partition("/")
    if not root.startswith("hf://"):
        return root.rstrip("/")
    repository, _, revision = name.partition("@")
    if kind != "datasets" or repository.count("/") != 1 or not all(repository.split("/")):
        raise StoreError(f"store {root}: expected hf://datasets/USER/NAME")
    return f"https://huggingface.co/datasets/{repository}/resolve/{revision or 'main'}"


class WebFiles(RemoteFiles):
    """The files of an export below an address."""

    def __init__(self, root: str) -> None:
        self.root = address_of(root)
        options: Any = {"allow_http": urlsplit(self.root).scheme == "http"}
        self._store = HTTPStore.from_url(self.root, client_options=options, retry_config={"max_retries": 2})
        self.index = self._index()

    def _index(self) -> dict[str, Any]:
        try:
            index = json.loads(self.read(INDEX) or b"null")
        except ValueError as error:
            raise StoreError(f"store {self.root}: {INDEX} can't be read ({error})") from error
        if not isinstance(index, dict):
            raise StoreError(f"store {self.root}: no {INDEX} there; `r3l export RUN --to-hub FOLDER` writes it")
        if index.get("form") != FORM:
            raise StoreError(f"store {self.root}: {INDEX} has the form {index.get('form')!r:.20}, expected {FORM}")
        index.setdefault("views", [])  # exports of earlier versions hold none
        for name in ("tables", "branches", "views", "manifests"):
            if not isinstance(index.get(name), list) or not all(isinstance(one, str) for one in index[name]):
                raise StoreError(f"store {self.root}: {name} of {INDEX}: expected names, got {index.get(name)!r:.80}")
        return index

    def paths(self, prefix: str) -> list[str]:
        return [path for path in self.index["manifests"] if path.startswith(f"{prefix}/" if prefix else "")]

    def sizes(self, prefix: str) -> dict[str, int]:
        return dict.fromkeys(self.paths(prefix), 0)

    def folders(self, prefix: str) -> list[str]:
        below = (path.removeprefix(f"{prefix}/" if prefix else "") for path in self.paths(prefix))
        return sorted({path.partition("/")[0] for path in below if "/" in path})

    def token(self, path: str) -> str | None:
        return path if path in self.index["manifests"] else None

    @property
    def cache(self) -> Path:
        return cache_folder()

    def put(self, *what: Any) -> NoReturn:
        raise StoreError(f"store {self.root}: an export on a web server can only be asked, with r3l sql")

    put_if = delete = remove = in_iterations = sweep_staging = fetch = forget = publish = put
