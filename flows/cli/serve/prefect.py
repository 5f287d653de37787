"""`r3l prefect`: Prefect's own command, against the project's server."""

import subprocess
import sys
from pathlib import Path

import typer

from flows import prefect_settings


def prefect(context: typer.Context) -> None:
    """Run a command of Prefect against the project's server, e.g. `r3l prefect deployment run r3l/iterate`."""
    raise typer.Exit(
        subprocess.run(
            [str(Path(sys.executable).with_name("prefect")), *context.args], env=prefect_settings.loud(), check=False
        ).returncode
    )
