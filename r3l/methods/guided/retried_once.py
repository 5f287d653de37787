"""Half of the group's budget is spent on bases, the rest on one guided retry of each."""

from typing import Any

from r3l.config.methods.shared import MethodSettings
from r3l.config.section import from_settings
from r3l.records import SamplingPlan


def retried_once(settings: MethodSettings, group_size: int, **others: Any) -> SamplingPlan:
    """Plan N/2 bases, a report on each and one retry behind it; `others` are further fields of the plan."""
    return from_settings(
        SamplingPlan, settings, bases=group_size // 2, reflection="report", retries_per_base=1, **others
    )
