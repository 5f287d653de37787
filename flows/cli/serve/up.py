"""`r3l up`: a Prefect server and a worker in the background."""

import time

from flows import prefect_settings
from flows.cli.options import Port
from flows.cli.screen.console import screen
from flows.serving import background
from r3l.system import pasted


def up(port: Port = 4200) -> None:
    """Start Prefect's server and a worker in the background, and register the flows: all that a run from the UI
    needs."""
    console, folder, began = screen(stderr=True), prefect_settings.prefect_home(), time.monotonic()
    own = background.up(
        folder, port, lambda step: console.print(f"{time.monotonic() - began:4.0f} s  {step}", soft_wrap=True)
    )
    console.print(
        f"Prefect's UI   {own.ui}\nits password   {own.key}\nlog files      {folder}\nend it with    "
        f"{pasted.r3l('down')}",
        soft_wrap=True,
    )
