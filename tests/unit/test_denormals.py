"""Numbers below 1e-38 are zeros in the engine's thread and in the update's process, and nowhere else."""

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from r3l.config.engines import TransformersLocalSettings
from r3l.config.sections import PolicySettings
from r3l.engines.embedded.engine import Command, TransformersLocal
from r3l.training import __main__ as job
from r3l.training.parallel.ranks import Ranks

pytestmark = pytest.mark.skipif(not torch.set_flush_denormal(False), reason="this processor can't")


def flushed() -> bool:
    return float(torch.tensor(1e-30) * torch.tensor(1e-10)) == 0.0


def test_the_engine_s_thread():
    seen: list[bool] = []
    engine = TransformersLocal(TransformersLocalSettings(), PolicySettings())
    try:
        engine._put(Command(lambda: seen.append(flushed()), Future())).result()
    finally:
        engine.close()
    assert seen == [True]
    assert not flushed()


def test_the_update_s_process(monkeypatch):
    seen = []

    def step(*_, **__):
        seen.append(flushed())
        return {"step": 1, "loss": 0.0, "grad_norm": 0.0, "seconds": 0.0, "seconds_by_part": {}}

    monkeypatch.setattr(job, "read_job", lambda path: path)
    monkeypatch.setattr("r3l.training.update.run_update", step)
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(job.run_job, Path("job.json"), Ranks).result() == 0
    assert seen == [True]
