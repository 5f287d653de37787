"""Figures of the pages as text."""

import math


def with_error(value: float, error: float, sign: str = "") -> str:
    """Write a figure with its error. What is not known is left out: a rise within one evaluation, an error of one
    policy."""
    return "" if math.isnan(value) else f"{value:{sign}.3f}" + ("" if math.isnan(error) else f" ± {error:.3f}")


def at_rate(rate: float | None) -> str:
    """Write the end of a heading; nothing for the model's own learning rate."""
    return "" if rate is None else f", at learning rate {rate:g}"
