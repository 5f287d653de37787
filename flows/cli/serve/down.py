"""`r3l down`: the end of what `r3l up` started."""

from flows import prefect_settings
from flows.cli.screen.console import say
from flows.serving import background


def down() -> None:
    """Stop what `r3l up` started. Active runs end; the next start continues from the last committed shard."""
    names = background.down(prefect_settings.prefect_home())
    say(f"stopped: {', '.join(names)}" if names else "nothing runs")
