"""What a plain installation lacks for a run is named before anything starts, with one command."""

import importlib.metadata
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from r3l.config import compose
from r3l.environments.base import Packaged
from r3l.environments.kinds import ENVIRONMENTS
from r3l.errors import ConfigError, EngineError, WorldError
from r3l.pipeline import preflight
from r3l.system import packages as system_packages
from tests.conftest import EXTRAS

ROOT = Path(__file__).parents[2]
SHIPPED = sorted(ENVIRONMENTS)
OPTIONAL = set(importlib.metadata.metadata("r3l").get_all("Provides-Extra"))


@pytest.fixture
def plain(monkeypatch):
    """As after `pip install r3l`."""
    monkeypatch.setattr(system_packages, "is_checkout", lambda: False)
    monkeypatch.setattr(preflight, "sys", SimpleNamespace(modules={}, platform=sys.platform))
    monkeypatch.setattr(preflight, "find_spec", lambda name: None if name in {*EXTRAS, "regex"} else object())


def test_what_a_worker_or_the_engine_lacks_is_named_with_the_same_command(plain):
    with pytest.raises(WorldError, match=r"^no_such\.package can't be imported \(.+\): pip install 'r3l\[math\]'$"):
        system_packages.import_package("no_such.package", "math")
    with pytest.raises(EngineError, match="pip install 'r3l"):
        system_packages.import_package("no_such.package", "structured", EngineError)


@pytest.mark.parametrize("kind", SHIPPED)
def test_every_environment_says_what_to_install(plain, tmp_path, kind):
    config = compose(environment=kind, policy="household", assignments=[f"store.root={tmp_path / 'store'}"])
    wanted = [kind, "trainer"] if kind in OPTIONAL else ["trainer"]
    with pytest.raises(ConfigError) as refused:
        preflight.check(config)
    assert str(refused.value).endswith(f": pip install 'r3l[{','.join(sorted(wanted))}]'")
    assert (f"environment.kind={kind} needs " in str(refused.value)) == (kind in OPTIONAL)
    assert list(tmp_path.iterdir()) == []


def test_a_checkout_gets_its_extras_from_itself(plain, monkeypatch):
    monkeypatch.setattr(system_packages, "is_checkout", lambda: True)
    with pytest.raises(ConfigError) as refused:
        preflight.check_packages(compose(environment="math"))
    assert str(refused.value).endswith(f": pip install -e '{ROOT}[math,trainer]'")


def test_what_other_hosts_import_is_not_asked_for_here(plain):
    elsewhere = ["placement.shards=workers", "placement.update_deployment=r3l-update/update"]
    preflight.check_packages(compose(assignments=elsewhere))
    with pytest.raises(ConfigError, match=r"^the update needs torch, transformers, peft: pip install 'r3l\[trainer\]'"):
        preflight.check_packages(compose(assignments=elsewhere[:1]))


def test_an_evaluation_on_servers_needs_no_torch_and_json_needs_its_own(plain):
    served = compose(environment="household", assignments=["engine.kind=vllm_server"])
    preflight.check_packages(served, training=False)
    constrained = compose(environment="household", assignments=["rollout.structured_reflections=true"])
    with pytest.raises(ConfigError, match=r"structured_reflections=true needs llguidance: .*r3l\[structured,trainer\]"):
        preflight.check_packages(constrained, training=False)


def test_packages_of_a_plug_in_are_named_themselves(plain, monkeypatch):
    world = SimpleNamespace(packages=("regex",))
    assert isinstance(world, Packaged)
    monkeypatch.setattr(preflight, "make_world", lambda settings: world)
    monkeypatch.setattr(preflight, "ENVIRONMENTS", {})
    with pytest.raises(ConfigError, match=r"needs regex; .*: pip install 'r3l\[trainer\]' regex$"):
        preflight.check_packages(compose())
