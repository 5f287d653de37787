"""Two nodes of an update that share a volume: each its own torchrun, the second told of the job by the first; together
one step."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from r3l.errors import TrainingError
from r3l.system.ports import free_port
from r3l.training.parallel import nodes
from r3l.training.parallel.ranks import Ranks
from r3l.training.update import run_update
from tests.distributed.test_two_ranks import make_job, same_step

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_nodes_take_the_step_of_one(tmp_path):
    """As in the pods of infra/k8s: node 0 runs a launcher (here: announce and run), node 1 what infra/update_node.sh
    starts."""
    job = make_job(tmp_path, "nodes", "two")
    spec = tmp_path / "job.json"
    spec.write_text(job.model_dump_json())
    shared = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "PET_NNODES": "2:2",
        "PET_MASTER_ADDR": "127.0.0.1",
        "PET_MASTER_PORT": str(free_port()),
        "R3L_JOB_POINTER": str(tmp_path / "cache" / "update.job"),
    }
    launcher = (
        "import subprocess, sys; from pathlib import Path; from r3l.training.parallel.nodes import announce, command\n"
        f"spec = Path({str(spec)!r}); announce(spec); sys.exit(subprocess.run(command(spec, 1)).returncode)"
    )
    started = [
        subprocess.Popen(
            ["bash", str(ROOT / "infra" / "update_node.sh"), sys.executable, "-c", launcher],
            env=shared | {"PET_NODE_RANK": rank}, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in ("1", "0")
    ]  # fmt: skip
    said = [process.communicate(timeout=200) for process in started]
    assert [process.returncode for process in started] == [0, 0], said
    lines = [[json.loads(line)["event"] for line in out.splitlines() if line.startswith("{")] for out, _ in said]
    assert lines[0] == [], "a further node is silent"
    assert lines[1][-1] == "finish"
    one = make_job(tmp_path, "nodes", "one")
    run_update(one, Ranks(), lambda event, **fields: None)
    same_step(Path(one.out), Path(job.out))


@pytest.mark.parametrize(
    ("count", "expected"), [(None, False), ("1", False), ("1:1", False), ("2", True), ("2:2", True), ("", False)]
)
def test_one_node_is_not_several(monkeypatch, count, expected):
    monkeypatch.delenv("PET_NNODES", raising=False)
    if count is not None:
        monkeypatch.setenv("PET_NNODES", count)
    assert nodes.several() is expected


def test_one_process_alone_needs_no_torchrun(monkeypatch):
    monkeypatch.delenv("PET_NNODES", raising=False)
    spec = Path("job.json")
    assert nodes.command(spec, 1) == [sys.executable, "-P", "-m", "r3l.training", "--job", "job.json"]
    assert nodes.command(spec, 8)[1:7] == [
        "-P", "-m", "torch.distributed.run", "--nproc-per-node=8", "--standalone", "--local-addr=127.0.0.1",
    ]  # fmt: skip
    monkeypatch.setenv("PET_NNODES", "2:2")
    assert "--standalone" not in nodes.command(spec, 1)
    assert nodes.command(spec, 1)[3] == "torch.distributed.run"


def test_alone_nothing_is_announced(monkeypatch, tmp_path):
    monkeypatch.delenv("PET_NNODES", raising=False)
    monkeypatch.setenv("R3L_JOB_POINTER", str(tmp_path / "pointer"))
    nodes.announce(tmp_path / "job.json")
    assert list(tmp_path.iterdir()) == []


def test_a_node_that_hears_nothing_says_so(monkeypatch, tmp_path):
    monkeypatch.setenv("R3L_JOB_POINTER", str(tmp_path / "pointer"))
    with pytest.raises(TrainingError, match=r"pointer was not written within 0 s"):
        nodes.join_command(wait_s=0, pause=lambda seconds: None)
    monkeypatch.delenv("R3L_JOB_POINTER")
    with pytest.raises(TrainingError, match="R3L_JOB_POINTER is not set"):
        nodes.join_command()
