"""The settings of a run, from the options of its command."""

from __future__ import annotations

from typing import Any

from r3l.config import Config, compose
from r3l.engines.policy_names import model_of


def settings(
    run: str,
    preset: str,
    method: str,
    policy: str,
    environment: str,
    engine: str,
    assignments: list[str] | None,
    **top: Any,
) -> Config:
    """Return a `Config` from the options that all running commands share.

    Raises:
        ConfigError: an unknown preset or setting, a value out of bounds, or a folder that is not there.
    """
    chosen = preset if method == "r3l" or preset != "paper" else method
    model, given = model_of(policy, top.get("machine") or "")
    if engine:
        given.append(f"engine.kind={engine}")
    return compose(
        policy=model,
        environment=environment,
        method=chosen,
        assignments=[*given, *(assignments or [])],
        run=run,
        **top,
    )
