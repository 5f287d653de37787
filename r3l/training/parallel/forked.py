"""Ranks on the cores of one host without torchrun: a process forks the others once its imports are done, so that torch
is imported once. They take jobs one after another, as it does, in one process group.
"""

import os
import secrets
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import torch
import torch.distributed as dist

from r3l.store.files.process import mark
from r3l.training.parallel.launcher import LAUNCHER
from r3l.training.parallel.ranks import Ranks


@dataclass(frozen=True)
class Forked:
    """This process among the `size` that do each job together."""

    rank: int
    size: int
    jobs: Iterable[str]  # paths of job files, a line each
    others: tuple[TextIO, ...] = ()  # the first rank's: where it writes the lines of each other rank
    meeting: Path = Path()  # file in which they find each other

    def paths(self) -> Iterator[Path]:
        """Yield the path of each job as it comes; the first rank passes it on."""
        for line in self.jobs:
            path = Path(line.strip())
            for other in self.others:
                other.write(f"{path}\n")
                other.flush()
            yield path

    def join(self) -> Ranks:
        """Join this process's rank to the others; more than one meet before their first job.

        Their file is gone before the job begins. A rank that looks for it as it leaves would wait for half an hour if
        another one removed it in that moment.
        """
        if self.size > 1 and not dist.is_initialized():
            dist.init_process_group("gloo", init_method=f"file://{self.meeting}", rank=self.rank, world_size=self.size)
            dist.barrier()
            if self.rank == 0:
                self.meeting.unlink()
        return Ranks(self.rank, self.size)


def fork(size: int) -> Forked:
    """Fork this process into `size` ranks of one thread each, as torchrun's are. This process has computed nothing with
    torch before and has no other threads, because a fork would not have them.

    A further rank ends with this process, and with its input.
    """
    if size == 1:
        return Forked(0, 1, sys.stdin)
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo" if sys.platform == "linux" else "lo0")  # a host may have no name
    first = mark()
    meeting = Path(tempfile.gettempdir(), f"r3l-ranks-{secrets.token_hex(8)}")
    others: list[TextIO] = []
    # a chain of plain pipes, one per rank: a rank's input ends when the first rank dies, and the rank ends with it
    for rank in range(1, size):
        read, write = os.pipe()
        if os.fork() == 0:
            # or this rank would hold its siblings' pipes open, and they would outlive the first one
            for other in others:
                other.close()
            os.close(write)
            os.environ[LAUNCHER] = first
            return Forked(rank, size, os.fdopen(read), meeting=meeting)
        os.close(read)
        others.append(os.fdopen(write, "w"))
    return Forked(0, size, sys.stdin, tuple(others), meeting)
