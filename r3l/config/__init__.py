"""Settings: one pydantic model, two levels deep, everything defaulted. Loads neither torch nor Prefect."""

from r3l.config.compose import compose, load_preset, preset_names
from r3l.config.model import Config

__all__ = ["Config", "compose", "load_preset", "preset_names"]
