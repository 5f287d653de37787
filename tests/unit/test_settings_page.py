"""data/SETTINGS.md has every setting, as the settings themselves say it."""

from pathlib import Path

from infra.pages.settings import page
from r3l.config import Config
from r3l.config.kinds import Kinds

PAGE = Path(__file__).parents[2] / "data" / "SETTINGS.md"


def test_the_page_is_what_the_code_makes():
    assert PAGE.read_text() == page(), "run: python -m infra.pages.settings > data/SETTINGS.md"


def test_it_has_every_setting_with_type_default_bounds_and_stages():
    said = page()
    for name, field in Config.model_fields.items():
        several = next((one for one in field.metadata if isinstance(one, Kinds)), None)
        for section in several.own if several else [field.annotation]:
            for setting in getattr(section, "model_fields", {}):
                assert f"| `{name}.{setting}` |" in said or setting == "kind", f"{name}.{setting}"
    lines = {line.split("`")[1]: line for line in said.splitlines() if line.startswith("| `")}
    assert "| integer | `8` | ≥ 2, ≤ 256, a multiple of 2 |" in lines["rollout.group_size"]
    assert lines["rollout.group_size"].endswith("| base, reflections, retries, continuations |")
    assert lines["rollout.shards_in_flight"].endswith("| – |")
    assert lines["seed"].endswith("| all |")
    assert "| true or false or empty |  |  |" in lines["policy.thinking"]
    assert "`constant`, `warmup` | `constant` |" in lines["training.schedule"]
