"""`r3l export-policy`: a policy as one transformers model."""

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.options import Branch, Root
from flows.cli.screen.console import say, screen
from r3l.errors import ConfigError
from r3l.store.stage import Store
from r3l.system.home import located


def export_policy(
    policy: Annotated[str, typer.Argument(help="a run's name, or a policy's folder")],
    out: Annotated[Path | None, typer.Argument(help="folder for the model; empty: data/export/NAME")] = None,
    base: Annotated[Path | None, typer.Option(help="an adapter's base model; empty: what it names itself")] = None,
    iteration: Annotated[
        int | None,
        typer.Option(min=0, help="iteration whose policy is exported; empty: the best held-out one, else the newest"),
    ] = None,
    branch: Branch = "",
    to_hub: Annotated[str, typer.Option(metavar="ORG/NAME", help="upload it to the hub, with a model card")] = "",
    public: Annotated[bool, typer.Option("--public", help="make it public; otherwise it is private")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="write the folder and its card, and upload nothing")
    ] = False,
    store: Root = "",
) -> None:
    """Write a policy as one transformers model: an adapter is merged into its base. That of a run has a model card."""
    from r3l.pipeline.export.policy import checked_name, export_run, push
    from r3l.training.export import export_policy as export

    if (public or dry_run) and not to_hub:
        raise ConfigError(f"--{'public' if public else 'dry-run'} is for an upload: name it with --to-hub ORG/NAME")
    title = checked_name(to_hub) if to_hub else ""
    goal = out or located(Path("data/export", (title or policy).rpartition("/")[2]))
    if Path(policy).is_dir():
        if to_hub or iteration is not None:
            raise ConfigError(
                f"{policy} is a folder, and a model card is made from a run: give the run's name, and --iteration"
            )
        export(policy, str(goal), str(base) if base else None)
    else:
        export_of_run = export_run(
            Store.open(store, reading=True), policy, goal, branch=branch, iteration=iteration, title=title
        )
        screen(stderr=True).print(f"the policy of iteration {export_of_run.iteration} of {export_of_run.run}")
        if to_hub and not dry_run:
            say(
                push(
                    goal,
                    title,
                    f"Run {export_of_run.run}, iteration {export_of_run.iteration}, policy {export_of_run.digest}",
                    public,
                )
            )
    say(str(goal))
