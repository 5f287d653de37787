"""What names a policy: a preset, a folder with a transformers model, or a model of the hub."""

import json
from pathlib import Path

from r3l.config import preset_names
from r3l.engines.made_policies import hub_folder
from r3l.engines.model_folder import adapter_config
from r3l.errors import ConfigError
from r3l.system.home import locate

LANGUAGE_MODEL = "language_model"


def model_of(policy: str, machine: str) -> tuple[str, list[str]]:
    """Find the preset that a policy starts from, and the assignments on top of it.

    A model of the hub starts from `language_model`; so does a folder where a machine with GPUs is named, else from
    `embedded`.

    Raises:
        ConfigError: neither a preset, nor a folder, nor a name on the hub.
    """
    folder = Path(policy)
    if folder.is_dir():  # found from the working folder, whatever `locate` would find
        here = folder if locate(folder) == folder else folder.absolute()
        assignments = [f"policy.path={json.dumps(str(here))}", f"policy.name={json.dumps(folder.absolute().name)}"]
        if (adapter := adapter_config(folder)).get("peft_type") == "LORA":
            assignments += [
                "policy.adapter=lora",
                f"policy.lora_rank={adapter['r']}",
                f"policy.lora_alpha={adapter['lora_alpha']}",
            ]
        return (LANGUAGE_MODEL if machine else "embedded"), assignments
    if policy not in preset_names("policies") and (target := hub_folder(policy)):
        return LANGUAGE_MODEL, [f"policy.path={json.dumps(str(target))}", f"policy.name={json.dumps(policy)}"]
    refuse_missing(policy)
    return policy, []


def refuse_missing(policy: str) -> None:
    """Raise `ConfigError` for a policy that is no preset."""
    presets = preset_names("policies")
    if policy in presets:
        return
    if "/" in policy or policy.startswith((".", "~")):
        raise ConfigError(
            f"policy {policy}: there is no such folder; expected one with a transformers model, ORGANISATION/NAME "
            f"of the hub, or a preset: {', '.join(presets)}"
        )
    raise ConfigError(f"policy {policy}: neither a preset nor a folder; the presets are {', '.join(presets)}")
