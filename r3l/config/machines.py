"""The machines of the presets: what GPUs there are, and which of them sample and which train."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from r3l.config.compose import load_preset
from r3l.config.section import Section

GPU = Literal["a100", "h20", "h100", "h200"]


class Machine(Section):
    nodes: int = Field(ge=1, description="hosts with GPUs")
    gpu: GPU = Field(description="its kind")
    engine_gpus: int = Field(ge=1, description="GPUs that sample")
    training_gpus: int = Field(ge=1, description="GPUs that train, one process each")


def load_machine(name: str, **changes: Any) -> Machine:
    """The machine of a preset in r3l/presets/machines, with `changes` that are not None.

    Raises:
        ConfigError: there is no such preset.
    """
    return Machine.model_validate(
        load_preset("machines", name)["machine"] | {key: value for key, value in changes.items() if value}
    )
