"""A store of 10^5 trajectories: a page costs a page, not the store."""

import subprocess
import sys
from pathlib import Path

import pytest

from r3l.store.stage import Store
from tests.support.audit_world import commit_large

ROOT = Path(__file__).parents[2]
OPEN = """
import sys, time
from fastapi.testclient import TestClient
from r3l.audit.web.app import make_app
from r3l.store.stage import Store

app = make_app(Store.open(sys.argv[1]))
with TestClient(app, base_url="http://localhost") as client:
    assert client.get("/run/sample").status_code == 200
app.state.audit.reader.close()
print(time.process_time())
"""
LOOK = """
import resource, sys, time
from fastapi.testclient import TestClient
from r3l.audit.web.app import make_app
from r3l.store.stage import Store

app = make_app(Store.open(sys.argv[1]))
pages = ["/", "/run/large", "/run/large/groups", "/run/large/groups?mixed=yes&gain=better&sort=best_gain&page=3",
"/run/large/reflections",
         "/run/large/group?id=iteration%3D77/task%3D3&iteration=77", "/run/large/account",
         "/sql?q=SELECT+avg(gain)+FROM+pivots"]
with TestClient(app, base_url="http://localhost") as client:
    for path in pages:
        begun = time.process_time()
        answer = client.get(path)
        print(path, answer.status_code, len(answer.text), round(time.process_time() - begun, 2))
        assert answer.status_code == 200 and len(answer.text) < 1_000_000
app.state.audit.reader.close()
print("MB", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def test_the_app_opens_quickly_on_the_run_that_ships():
    """Imports, connection and first page, in seconds of this process: the machine may be busy with others."""
    command = [sys.executable, "-c", OPEN, str(ROOT / "data" / "sample_run")]
    assert float(subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout) < 3


@pytest.mark.slow
def test_pages_of_a_large_store_are_quick_and_small(tmp_path):
    count = commit_large(Store.open(str(tmp_path)))
    assert count > 100_000
    printed = subprocess.run(
        [sys.executable, "-c", LOOK, str(tmp_path)], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout
    print(printed)
    *pages, memory = printed.splitlines()
    assert max(float(line.split()[-1]) for line in pages) < 5, printed
    assert int(memory.split()[1]) < 1_000, printed
