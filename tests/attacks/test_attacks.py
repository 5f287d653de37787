"""The table of attacks can fail: each fault that is planted here makes it red. The table itself is `python -m
tests.attacks`, and a slow test runs all of it."""

from pathlib import Path

import pytest

from r3l.store import manifest, sweep
from r3l.store.files import lock
from r3l.store.policies import places
from r3l.store.stage import Store
from tests.attacks import __main__ as table
from tests.attacks.outcomes import Attack, Outcomes

FEW = 0.05


def told(word: str) -> Outcomes:
    [(_, outcomes)] = table.made(FEW, word).items()
    assert isinstance(outcomes, Outcomes)
    return outcomes


def plant_nothing(patch: pytest.MonkeyPatch) -> None:
    """The code as it is."""


def plant_liar(patch: pytest.MonkeyPatch) -> None:
    """Who can't be seen from here counts as dead."""
    patch.setattr(lock.Holder, "lives", property(lambda self: bool(lock.process.lives(self.process))))


def plant_blindness(patch: pytest.MonkeyPatch) -> None:
    """Bytes are not looked at."""
    patch.setattr(manifest, "read_verified", lambda files, path, told: files.read(path))


def plant_trust(patch: pytest.MonkeyPatch) -> None:
    """A policy is taken for what it should be."""
    patch.setattr(places, "digest_in", lambda folder: "f" * 16)
    patch.setattr(places, "fetch_policy", lambda store, place, digest: store.local(place))
    patch.setattr("tests.attacks.on_policies.fetch_policy", places.fetch_policy)


def plant_broom(patch: pytest.MonkeyPatch) -> None:
    """Evidence is swept."""
    patch.setattr(
        sweep, "find_orphans", lambda files, prefix: [one for one in files.paths(prefix) if sweep.is_part(one)]
    )


@pytest.mark.parametrize(
    ("word", "plant", "held"),
    [
        ("locks that lie", plant_nothing, True),
        ("locks that lie", plant_liar, False),
        ("damaged parts", plant_nothing, True),
        ("damaged parts", plant_blindness, False),
        ("damaged policies", plant_nothing, True),
        ("damaged policies", plant_trust, False),
        ("odd names", plant_broom, False),
    ],
)
def test_an_attack_is_held_by_the_code_and_by_no_fault(monkeypatch, word, plant, held):
    plant(monkeypatch)
    outcomes = told(word)
    assert outcomes.tried > 0
    assert (outcomes.broken == []) is held


def test_an_attack_that_could_not_be_made_shows_nothing(tmp_path):
    def broken(folder: Path, outcomes: Outcomes, tries: int) -> None:
        raise KeyError("no such maker")

    assert "could not be made" in Attack("broken", broken).run(tmp_path, 1.0).broken[0]
    assert Attack("empty", lambda folder, outcomes, tries: None).run(tmp_path, 1.0).broken == ["nothing was tried"]


def test_the_exit_code_says_whether_all_held(monkeypatch, capsys):
    monkeypatch.setenv("R3L_CACHE", "elsewhere")  # put back afterwards
    assert table.main([str(FEW), "optimiser"]) == 0
    monkeypatch.setattr("tests.attacks.on_policies.fetch_optimiser", lambda store, place, digest: Store)
    assert table.main([str(FEW), "optimiser"]) == 1
    assert "not held: the optimiser's state changed or removed: " in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_every_attack_is_held(monkeypatch, capsys):
    monkeypatch.setenv("R3L_CACHE", "elsewhere")
    assert table.main([]) == 0, capsys.readouterr().out
