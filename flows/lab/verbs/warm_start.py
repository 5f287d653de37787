"""`r3l warm-start`: a small starting policy."""

from pathlib import Path
from typing import Annotated, Any

import typer

from flows.cli.screen.console import say_json, screen
from r3l.errors import ConfigError
from r3l.system.home import home


def warm_start(
    out: Annotated[
        Path | None,
        typer.Option(help="folder of the policy; empty: data/policies/embedded, or ENVIRONMENT-RECIPE-SEED there"),
    ] = None,
    environment: Annotated[str, typer.Option(help="alfworld or household")] = "alfworld",
    recipe: Annotated[
        str,
        typer.Option(
            help="recipe; alfworld: standard or latent; household: short, easy, in_hand, thought, standard, long or "
            "latent"
        ),
    ] = "",
    forgets: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="share of treatments that the demonstrations of recipe latent leave out"),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="seed of demonstrations and training, 0 or more")] = 0,
    minutes: Annotated[
        float | None,
        typer.Option(
            min=0.5,
            help="minutes in all (empty: 20); household: bounds the training, and the weights then depend on the time",
        ),
    ] = None,
    init: Annotated[Path | None, typer.Option(help="folder of an earlier policy to continue from")] = None,
    policy: Annotated[
        str, typer.Option(help="pretrained model that learns by an adapter: preset or folder; empty: a new small model")
    ] = "",
    adapter: Annotated[str, typer.Option(help="adapter of --policy: lora")] = "",
) -> None:
    """Make a small starting policy: tokenizer, demonstrations in the environment, supervised training, held-out
    figures."""

    if policy or adapter:
        say_json(make_adapter(policy, adapter, out, environment, recipe, forgets, seed, minutes, init), indent=1)
    else:
        say_json(make_policy(out, environment, recipe, forgets, seed, minutes, init), indent=1)


def make_adapter(
    policy: str,
    adapter: str,
    out: Path | None,
    environment: str,
    recipe: str,
    forgets: float | None,
    seed: int,
    minutes: float | None,
    init: Path | None,
) -> dict[str, Any]:
    """Train a LoRA adapter of a pretrained model. The result says what was done. Raise `ConfigError` for what it
    can't."""
    if adapter != "lora" or not policy or environment != "household" or forgets is not None:
        raise ConfigError(
            "warm-start of a pretrained model: expected --policy NAME --adapter lora --environment household, without "
            f"--forgets; got --policy {policy!r} --adapter {adapter!r} --environment {environment}"
        )
    from flows.cli.settings import settings
    from r3l.lab.warm_start.household.adapter import adapter_start
    from r3l.pipeline.making import ensure_policy

    config, recipe = settings("warm-start", "paper", "r3l", policy, environment, "", []), recipe or "short"
    folder = out or home() / "data/policies" / f"{config.policy.name}-household-{recipe}-{seed}"
    return adapter_start(folder, Path(ensure_policy(config).path), recipe, seed, minutes, progress=log_line, init=init)


def log_line(line: str) -> None:
    screen(stderr=True).print(line)


def make_policy(
    out: Path | None,
    environment: str,
    recipe: str,
    forgets: float | None,
    seed: int,
    minutes: float | None,
    init: Path | None,
) -> dict[str, Any]:
    """Make the policy that is asked for. The result says what was done. Raise `ConfigError` where no recipe makes
    it."""

    policies = home() / "data/policies"
    if environment == "household":
        from r3l.lab.warm_start.household.start import household_start

        recipe = recipe or "easy"
        folder_name = "-".join(["household", recipe, *([] if forgets is None else [f"{forgets:g}"]), str(seed)])
        return household_start(
            out or policies / folder_name, recipe, seed, minutes, progress=log_line, init=init, forgets=forgets
        )
    if (environment, recipe) == ("alfworld", "latent"):
        from r3l.lab.warm_start.latent import latent_start

        share = 1.0 if forgets is None else forgets
        folder_name = f"alfworld-latent-{share:g}-{seed}"
        return latent_start(out or policies / folder_name, seed, share, progress=log_line, init=init)
    if environment != "alfworld" or recipe not in {"", "standard"} or forgets is not None:
        raise ConfigError(
            f"warm-start of {environment} with recipe {recipe or 'standard'}: expected alfworld with standard or "
            "latent, or the household with one of its recipes; --forgets goes with latent alone"
        )
    from r3l.lab.warm_start.start import warm_start as from_nothing

    return from_nothing(out or policies / "embedded", seed=seed, minutes=minutes or 20.0, init=init, progress=log_line)
