"""The machines of the presets: how many GPUs there are, which of them sample and which train."""

from typing import Any, Literal

from pydantic import Field

from r3l.config.compose import load_preset
from r3l.config.section import Section

GPU = Literal["l4", "rtx4090", "l40s", "a100", "h20", "h100", "h200"]


class Machine(Section):
    nodes: int = Field(ge=1, le=10_000, description="Number of hosts with GPUs.")
    gpu: GPU = Field(description="Kind of the GPUs.")
    engine_gpus: int = Field(ge=1, le=100_000, description="Number of GPUs that sample.")
    training_gpus: int = Field(ge=1, le=100_000, description="Number of GPUs that train, with one process per GPU.")
    shared: bool = Field(False, description="Whether the same GPUs sample and train, in turns.")


def load_machine(name: str, **changes: Any) -> Machine:
    """Read the machine of a preset in r3l/presets/machines, with those `changes` that are not None.

    Raises:
        ConfigError: There is no such preset.
    """
    return Machine.model_validate(
        load_preset("machines", name)["machine"] | {key: value for key, value in changes.items() if value}
    )
