"""Commands as they are printed for a person: they run when they are pasted."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path


def r3l(*words: str) -> str:
    """Return the command ``r3l WORDS`` as this shell finds it: by its path where no environment that has it is
    active."""
    return " ".join([program(), *map(shlex.quote, words)])


def program() -> str:
    """Return ``r3l`` where PATH leads to the one beside this interpreter, else its path: relative below the working
    folder."""
    own = Path(sys.executable).with_name("r3l")
    path = shutil.which("r3l")
    if not own.exists() or (path and os.path.samefile(path, own)):
        return "r3l"
    below = own.absolute()
    return shlex.quote(str(below.relative_to(Path.cwd()) if below.is_relative_to(Path.cwd()) else below))


def runnable(text: str) -> str:
    """Return a message with its commands in backticks, ``r3l ...``, as they run when they are pasted."""
    return text.replace("`r3l ", f"`{program()} ")
