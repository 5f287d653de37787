"""`r3l register`: work pool, deployments, limits and automations."""

from flows.serving import background


def register() -> None:
    """Create the work pool, deployments, limits and automations on the server. Running it again changes nothing."""
    background.register()
