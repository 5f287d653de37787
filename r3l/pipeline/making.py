"""The policy that a run starts from, made or fetched where it is not there; `starting_policy` only finds it."""

import fcntl
from pathlib import Path

from r3l import plugins
from r3l.config import Config
from r3l.engines.base import PolicySnapshot
from r3l.engines.made_policies import Progress, Recipe, fetched_here
from r3l.engines.model_folder import base_of, is_model
from r3l.pipeline.logs import log
from r3l.pipeline.policies import starting_policy, teacher_settings
from r3l.system.home import locate


def ensure_policy(config: Config) -> PolicySnapshot:
    """Make or fetch the starting policy, and the teacher where a folder is one; say beforehand what is made and how
    long that takes. The result is the starting policy.

    Raises:
        ConfigError: nothing tells how to make it, or what it is made from is not there.
    """
    teacher = teacher_settings(config)
    for policy in (config.policy, *([teacher.policy] if teacher else [])):
        path = locate(policy.path)
        base = base_of(path)
        ensure_model(policy.name if base is None else base.name, base or path)
    return starting_policy(config)


def ensure_model(name: str, folder: Path) -> None:
    """Make the model `name` in a folder where it is not there; nothing where no recipe is known. Of two processes that
    want it, one makes it, and the other waits."""
    if is_model(folder) or (recipe := recipe_of(name, folder)) is None:
        return
    log().warning("policy folder %s is not there: %s", folder, recipe.says)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f".{folder.name}.lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the kernel frees it when its holder dies
        if not is_model(folder):
            recipe.make(log().info)


def recipe_of(name: str, folder: Path) -> Recipe | None:
    """Find how a policy is made: fetched, merged from an adapter that lies beside it, or as a plug-in knows."""
    makers = [plugins.load_function("policy", kind) for kind in plugins.installed("policy")]
    return next(filter(None, (maker(name, folder) for maker in (fetched_here, merge_recipe, *makers))), None)


def merge_recipe(name: str, folder: Path) -> Recipe | None:
    """Find how the adapter in the folder NAME-adapter is merged into its base; None where there is no such adapter."""
    adapter = adapter_of(folder)
    base = base_of(adapter) if adapter else None
    if adapter is None or base is None:
        return None

    def make(progress: Progress) -> None:
        from r3l.training.export import export_policy

        ensure_model(base.name, base)
        export_policy(adapter, folder, str(base))

    return Recipe(f"the adapter {adapter} is merged into {base}, which takes seconds", make)


def adapter_of(folder: Path) -> Path | None:
    """Find the folder of the adapter that a policy folder is made from: beside it, or among those that ship."""
    name = f"{folder.name}-adapter"
    places = (folder.with_name(name), locate(Path("data/policies", name)))
    return next((place for place in places if base_of(place)), None)
