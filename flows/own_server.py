"""The project's own Prefect server: its address, its key and its running processes. This module does not import
Prefect."""

import json
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from r3l.errors import ConfigError

KEY, STATE = "r3l-key", "r3l-server.json"


@dataclass(frozen=True)
class Own:
    """A server that runs: its API's address, the key (``user:password``), and the marks of its processes by name."""

    api: str
    key: str
    processes: dict[str, str] = field(default_factory=dict)

    @property
    def ui(self) -> str:
        return self.api.removesuffix("/api")


def own_server(folder: Path) -> Own | None:
    """Find the server whose state lies in `folder` (PREFECT_HOME), or None where it does not run."""
    if not (address := read_state(folder)):
        return None
    from r3l.store.files.process import lives  # late, here and below: `r3l --help` loads no store

    return address if lives(address.processes.get("server", "")) else None


def read_state(folder: Path) -> Own | None:
    """Read what was started last in `folder`, whether it runs or not."""
    try:
        state = json.loads((folder / STATE).read_text(encoding="utf-8"))
        key = (folder / KEY).read_text(encoding="utf-8").strip()
        return Own(str(state["api"]), key, {str(name): str(mark) for name, mark in state["processes"].items()})
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def remember(folder: Path, own: Own) -> None:
    """Write which processes run; the key stands in a file of its own."""
    from r3l.store.files.local import replace_text

    replace_text(folder / STATE, json.dumps({"api": own.api, "processes": own.processes}))


def forget(folder: Path) -> None:
    (folder / STATE).unlink(missing_ok=True)


def key_of(folder: Path) -> str:
    """Read the server's key, which is made at the first start. Only its owner can read the file; of two first starts
    one makes it.

    Raises:
        ConfigError: others can read the file, so the key keeps nobody out.
    """
    path = folder / KEY
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not path.exists():
        fresh = folder / f".{KEY}-{secrets.token_hex(8)}"
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(f"r3l:{secrets.token_hex(24)}\n")
        try:
            # A link, unlike a rename, never replaces the key that another first start has made meanwhile.
            os.link(fresh, path)
        except FileExistsError:
            pass
        finally:
            fresh.unlink()
    if path.stat().st_mode & 0o077:
        raise ConfigError(f"{path}: other users can read this key; delete the file, and the next start makes another")
    return path.read_text(encoding="utf-8").strip()
