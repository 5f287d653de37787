"""One error type per boundary. A message says the thing, what was got and expected, and what to do next."""

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Ask a question, to add to a message about a name that is not there; empty where none is like it."""
    by_letters = {one.lower(): one for one in names}
    close = get_close_matches(name.lower(), by_letters, n=1)
    return f"; did you mean {by_letters[close[0]]!r}?" if close else ""


class R3LError(Exception):
    """Anything that this project raises on purpose; the command line prints it without a traceback."""


class ConfigError(R3LError, ValueError):
    """A setting, a preset or a combination of settings that can't work."""


class WorldError(R3LError):
    """An environment that crashed, hung, or was asked for a task it does not have."""


class SessionLost(WorldError):
    """A session that was in a worker which another session's call took down. It can be played again to where it was."""


class EngineError(R3LError):
    """A sampling engine that failed, or that runs another policy than the one asked for."""


class Interrupted(R3LError):
    """Work that was ended from outside: a cancel, Ctrl-C, a closed engine or pool. What was under way is neither a
    result nor a fault, so it never becomes a row: the next start plays it anew."""


class ServerAway(R3LError):
    """A server that does not answer: every sampling server, or the site of an environment. What waited for it is no row
    either."""


class FailedAttempts(R3LError):
    """A stage of which too many attempts ended by errors of the engine or the environment to learn from the others."""


class ChatFormatError(R3LError, ValueError):
    """A chat template that can't be extended turn by turn, or whose stop token would not be trained."""


class ReflectionError(R3LError, ValueError):
    """A reflection that holds no valid report; the message is stored as the row's reason."""


class TrainingError(R3LError):
    """An update job that could not make its step."""


class StoreError(R3LError):
    """A store that is not writable, is locked by another writer, or holds a stage that is not what its manifest
    says."""


class Pruned(StoreError):
    """What would be read was emptied by `r3l prune`."""
