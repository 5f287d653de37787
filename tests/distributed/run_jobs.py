"""Run under torchrun: the jobs named on the command line, one after the other, in one process group."""

import sys

from r3l.training.job import read_job
from r3l.training.parallel.ranks import join, leave
from r3l.training.update import run_update

if __name__ == "__main__":
    ranks = join()
    for file in sys.argv[1:]:
        run_update(read_job(file), ranks, lambda event, **fields: None)
    leave()
