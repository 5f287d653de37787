"""A store that may only be read: its folders lose the right to be written to, and the reader the right to override
that."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Argument 1 is the store, argument 2 a run with one iteration. Prints a line for each way to look: "what = ok".
READING = """
import os, sys
root, run = sys.argv[1:]
for path in (root, f"{root}/{run}", f"{root}/{run}/iteration=00000"):
    try:
        open(f"{path}/written", "w")
    except PermissionError:
        continue
    sys.exit(f"{path} can be written to: this shows nothing")
from fastapi.testclient import TestClient
from r3l.audit.web.app import make_app
from r3l.store.stage import Store
app = make_app(Store.open(root, reading=True))
task, base = "iteration%3D0/task%3D0", "iteration%3D0/task%3D0/base%3D0"
with TestClient(app, base_url="http://localhost", raise_server_exceptions=False) as client:
    for page in ("/", f"/run/{run}", f"/run/{run}/groups", f"/run/{run}/group?id={task}&iteration=0",
    f"/run/{run}/open?id={base}",
                 f"/run/{run}/reflections", f"/run/{run}/account", f"/run/{run}/tasks", f"/compare?line={run}",
                 "/sql?q=SELECT+count(*)+FROM+stages", "/sql/answer.csv?q=SELECT+run+FROM+stages"):
        status = client.get(page).status_code
        print(f"audit {page} = {'ok' if status == 200 else status}", flush=True)
app.state.audit.close()
from flows.cli.app import app_of
commands = app_of(["sql", "runs", "check", "status", "show", "why"])
of = ["iteration=0/task=0/base=0", "--run", run]
for words in (["sql", "SELECT count(*) FROM turns"], ["runs"], ["check", run], ["status", run], ["show", *of], ["why",
*of]):
    try:
        code = commands([*words, "--store", root], standalone_mode=False)
    except SystemExit as ended:
        code = ended.code
    except Exception as error:
        code = f"{type(error).__name__}: {str(error).splitlines()[0]}"
    print(f"\\nr3l {words[0]} = {code or 'ok'}", flush=True)
"""


@contextmanager
def closed(folder: Path) -> Iterator[None]:
    """While the block runs, nothing under the folder can be written to by who has no right to override that."""
    paths = [folder, *folder.rglob("*")]
    modes = {path: path.stat().st_mode for path in paths}
    for path in reversed(paths):
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        yield
        assert sorted(paths) == sorted([folder, *folder.rglob("*")]), "something was written or deleted"
    finally:
        for path, mode in modes.items():
            path.chmod(mode)


def read_only() -> list[str]:
    """The words before a command that has no right to override the modes of files: root has it, others don't."""
    return ["setpriv", "--bounding-set=-dac_override"] if os.geteuid() == 0 else []


def lacking() -> str:
    """What this machine lacks to run such a command; empty where it can."""
    if os.geteuid() != 0:
        return ""
    if shutil.which("setpriv") is None:
        return "root, and no setpriv"
    done = subprocess.run([*read_only(), "true"], capture_output=True, text=True)
    return "" if done.returncode == 0 else f"setpriv is refused ({done.stderr.strip()})"
