"""The wheel, and fresh environments that have nothing of the checkout."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parents[2]
PIP = (sys.executable, "-m", "pip")
OFFLINE = ("--no-deps", "--no-index")


def run(*command: str | Path, **options) -> subprocess.CompletedProcess[str]:
    """Run a command that has to end well."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, f"{command}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done


BUILDS = "infra/build_wheel.py"  # what pyproject.toml names to build with


def copy_tracked(source: Path) -> None:
    """Copy what git would give a stranger, as far as a wheel is made of it."""
    names = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT).stdout.split("\0")
    for name in filter(None, names):
        if name == BUILDS or not name.startswith(("tests/", "data/results/", "infra/")):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())


def build_wheel(source: Path, out: Path) -> Path:
    """Build the wheel. `source`: an empty folder for what it is made of."""
    copy_tracked(source)
    run(*PIP, "wheel", ".", *OFFLINE, "--no-build-isolation", "-w", out, cwd=source)
    (made,) = out.glob("r3l-*.whl")
    return made


def fresh_environment(folder: Path, *packages: Path) -> Path:
    """Make an environment that has the dependencies of this one and these packages, each a wheel or a source folder.

    Returns the folder of its programs.
    """
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    python = folder / "bin" / "python"
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").stdout.strip())
    # The .pth files of this environment don't count there: no checkout.
    (site / "shared.pth").write_text(sysconfig.get_path("purelib") + "\n")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for package in packages:
        own = ("--no-build-isolation", "--force-reinstall")
        run(*PIP, "--python", python, "install", *OFFLINE, *own, package, env=environment)
    return folder / "bin"


def clean(person: Path, programs: Path) -> dict[str, str]:
    """Return the variables of a person's shell that has the environment and nothing of this project."""
    ours = ("PREFECT_", "R3L_", "PYTHONPATH")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return kept | {"HOME": str(person), "PATH": f"{programs}:{os.environ['PATH']}"}
