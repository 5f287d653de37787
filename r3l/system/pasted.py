"""Commands as they are printed for a person: they run when they are pasted."""

import os
import re
import shlex
import shutil
import sys
from pathlib import Path

from r3l.system.home import home

# Verbs that take --store.
OF_A_STORE = (
    "audit|bisect|check|credit|evaluate|exam|export|import|iterate|plan|prune|replay|report|runs|show|sql|status|track|"
    "train|why"
)


def r3l(*words: str) -> str:
    """Write the command ``r3l WORDS`` as this shell finds it: by its path where no environment that has it is
    active."""
    return " ".join([program(), *map(shlex.quote, words)])


def program() -> str:
    """Name ``r3l`` where PATH leads to the one beside this interpreter, else its path: relative below the working
    folder."""
    own = Path(sys.executable).with_name("r3l")
    path = shutil.which("r3l")
    if not own.exists() or (path and os.path.samefile(path, own)):
        return "r3l"
    below = own.absolute()
    return shlex.quote(str(below.relative_to(Path.cwd()) if below.is_relative_to(Path.cwd()) else below))


def at_store(root: str) -> str:
    """Write `` --store ROOT``, or nothing where every shell finds the store without it."""
    elsewhere = any(os.environ.get(name) for name in ("R3L_STORE", "R3L_HOME"))
    return "" if root == str(home() / "data" / "runs") and not elsewhere else f" --store {shlex.quote(root)}"


def runnable(text: str, store: str = "") -> str:
    """Rewrite a message's commands in backticks, ``r3l ...``, so that they run when they are pasted: on the store that
    `store` names, if it names one."""
    if store:
        words = f" --store {shlex.quote(store)}"
        text = re.sub(rf"`(r3l (?:{OF_A_STORE})\b[^`]*)`", lambda command: f"`{command[1]}{words}`", text)
    return text.replace("`r3l ", f"`{program()} ")
