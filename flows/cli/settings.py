"""The settings of a run, from the options of its command."""

from typing import Any

from r3l.config import Config, load_preset
from r3l.config.compose import Asked, refuse_contradictions
from r3l.engines.policy_names import model_of
from r3l.errors import ConfigError
from r3l.pipeline.settings.continuing import compose_for_run

R3L = "r3l"


def settings(
    run: str,
    preset: str,
    method: str,
    policy: str,
    environment: str,
    engine: str,
    assignments: list[str] | None,
    *,
    training: bool = True,
    **top: Any,
) -> Config:
    """Compose a `Config` from the options that all running commands share. What is left empty is the run's own.

    Raises:
        ConfigError: an unknown preset or setting, a value out of bounds, a folder that is not there, or options that
            contradict each other.
    """
    method_name = method_preset(preset, method)
    kinds = {"environment": ("environments", environment), "method": ("methods", method_name)}
    options = {
        f"--{section}": (f"{section}.kind", load_preset(folder, name).get(section, {}).get("kind"))
        for section, (folder, name) in kinds.items()
        if name
    }
    options |= {f"--{name}": (name, value) for name, value in {"run": run, **top}.items() if name != "machine"}
    refuse_contradictions(options | {"--engine": ("engine.kind", engine)}, assignments or [])
    model, policy_settings = model_of(policy, top.get("machine") or "") if policy else ("", [])
    if engine:
        policy_settings.append(f"engine.kind={engine}")
    request = Asked.of(
        policy=model,
        environment=environment,
        method=method_name,
        assignments=[*policy_settings, *(assignments or [])],
        run=run,
        **top,
    )
    return compose_for_run(request, training)


def method_preset(preset: str, method: str) -> str:
    """Choose the preset of the method that two options name; empty: neither does.

    Raises:
        ConfigError: they name two.
    """
    if not preset or method in {"", preset}:
        return preset or {R3L: "paper"}.get(method, method)
    kind = load_preset("methods", preset).get("method", {}).get("kind")
    if method != R3L or kind != R3L:
        raise ConfigError(f"--preset {preset} is of method {kind}, and --method {method} names another: leave one out")
    return preset
