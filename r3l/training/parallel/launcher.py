"""End a job with the process that launched it: an orphan would keep the GPU from the next try."""

import os
import threading
import time

from r3l.store.files import process

LAUNCHER = "R3L_LAUNCHER"
EVERY_S = 2.0
LEFT_ALONE = 3  # exit status


def end_with_launcher() -> None:
    """Watch the process that the variable R3L_LAUNCHER names, and end this process when it is gone."""
    mark = os.environ.get(LAUNCHER, "")
    alive = process.lives(mark)
    if alive is False:  # it was killed before this process came so far
        os._exit(LEFT_ALONE)
    if alive:
        threading.Thread(target=_watch, args=(mark,), name="r3l-launcher", daemon=True).start()


def _watch(mark: str) -> None:
    while process.lives(mark):
        time.sleep(EVERY_S)
    os._exit(LEFT_ALONE)  # not SystemExit: a thread can't end a process that is deep in a matrix product
