"""Prefect's settings for this project, applied when `flows` is imported. A variable that is already set wins.

No server that the project starts answers a page of another site: each asks for a key, wants a CSRF token, and names no
foreign origin.
"""

import logging
import os
import secrets
import tomllib
from contextlib import suppress
from pathlib import Path

from flows.own_server import Own, own_server
from r3l.system.home import home
from r3l.system.visible import make_logs_visible

STARTUP_TIMEOUT = "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS"
DEFAULTS = {
    # An ephemeral server can need a minute on a busy laptop; Prefect gives up after 20 s.
    STARTUP_TIMEOUT: "240",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
    # SQLite answers parallel task runs with "database is locked" noise far below this; clients give up after 60 s.
    "PREFECT_SERVER_DATABASE_SQLALCHEMY_CONNECT_ARGS_TIMEOUT": "30",
    # What the server answers while its database restarts: asked again for a minute.
    "PREFECT_CLIENT_RETRY_EXTRA_CODES": "500",
    # What the pipeline, the store and the engines log is shown with the run in the UI.
    "PREFECT_LOGGING_EXTRA_LOGGERS": "r3l",
    "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
    # Prefect's own default lets the pages of every site read its answers. No page has this origin: the port is missing.
    "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": "http://127.0.0.1",
    "PREFECT_SERVER_CSRF_PROTECTION_ENABLED": "true",
    "TOKENIZERS_PARALLELISM": "false",
    # Spinning threads starve the environment workers on few cores: a 500-token prefill took 24 s instead of 0.7 s.
    "OMP_WAIT_POLICY": "PASSIVE",
    "GOMP_SPINCOUNT": "0",
}
LOGGING = ("PREFECT_LOGGING_LEVEL", "PREFECT_SERVER_LOGGING_LEVEL")
URL, CLIENT_KEY, SERVER_KEY = "PREFECT_API_URL", "PREFECT_API_AUTH_STRING", "PREFECT_SERVER_API_AUTH_STRING"


def apply(quiet: bool = False) -> None:
    """Set the defaults. `quiet` keeps Prefect's own log lines off the terminal, where the live display stands."""
    make_logs_visible()
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)
    if URL not in os.environ and "PREFECT_PROFILES_PATH" not in os.environ:
        os.environ.setdefault("PREFECT_HOME", str(home() / ".prefect"))
        with suppress(OSError):  # a home that can't be written to: whoever writes there says so
            prefect_home().mkdir(mode=0o700, parents=True, exist_ok=True)  # Prefect makes no folder above it
    # Prefect would take this path from a file .env or prefect.toml of the working folder, and run what stands there.
    os.environ.setdefault("PREFECT_LOGGING_SETTINGS_PATH", str(prefect_home() / "logging.yml"))
    reach(own_server(prefect_home()))
    if quiet:
        for name in LOGGING:
            os.environ.setdefault(name, "CRITICAL")
    logging.getLogger("r3l").setLevel(own_level())


def own_level() -> int:
    """Choose from where on the project's own lines are shown: Prefect's level, or warnings where that is higher.
    Prefect gives an extra logger its handlers and no level, so that Python's own would count, which is WARNING."""
    level = logging.getLevelNamesMapping().get(os.environ.get(LOGGING[0], "INFO").upper(), logging.INFO)
    return min(level, logging.WARNING)


def loud() -> dict[str, str]:
    """Copy the environment for a process whose log is kept: without what `apply` set for a quiet terminal."""
    return {name: value for name, value in os.environ.items() if name not in LOGGING or value != "CRITICAL"}


def prefect_home() -> Path:
    return Path(os.environ.get("PREFECT_HOME") or "~/.prefect").expanduser()


def reach(own: Own | None) -> None:
    """Choose the server: the one that is named, else the project's own where it runs, else an ephemeral one with a key
    for this process.

    The key of the project's own server goes to no other address.
    """
    if server_is_named():
        if own and os.environ.get(URL) == own.api:
            os.environ.setdefault(CLIENT_KEY, own.key)
    elif own:
        os.environ.setdefault(URL, own.api)
        os.environ.setdefault(CLIENT_KEY, own.key)
    else:
        key = os.environ.setdefault(SERVER_KEY, os.environ.get(CLIENT_KEY) or f"r3l:{secrets.token_hex(24)}")
        os.environ.setdefault(CLIENT_KEY, key)


def server_is_named() -> bool:
    """Tell whether the environment or the user's profile of Prefect has the address of a server."""
    return URL in os.environ or names_a_server()


def names_a_server() -> bool:
    """Tell whether the user's profile of Prefect has the address of a server."""
    path = Path(os.environ.get("PREFECT_PROFILES_PATH") or prefect_home() / "profiles.toml").expanduser()
    try:
        profiles = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError):
        return False  # none, or one that Prefect itself will complain about
    profile = os.environ.get("PREFECT_PROFILE") or profiles.get("active", "")
    return URL in profiles.get("profiles", {}).get(profile, {})
