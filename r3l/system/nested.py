"""Nested settings by dotted names."""

from collections.abc import Mapping
from typing import Any


def leaves(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Write ``{"method": {"alpha": 3}}`` as ``{"method.alpha": 3}``."""
    leaf_of_name: dict[str, Any] = {}
    for key, value in settings.items():
        inner = {f"{key}.{name}": leaf for name, leaf in leaves(value).items()} if isinstance(value, dict) else {}
        leaf_of_name |= inner if isinstance(value, dict) else {key: value}
    return leaf_of_name
