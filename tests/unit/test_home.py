"""Where the project keeps its data: never the working folder by accident."""

from pathlib import Path

import pytest

from r3l.system import home as homes
from r3l.system.home import home, locate

CHECKOUT = Path(__file__).parents[2]


def test_a_checkout_keeps_its_own_data(monkeypatch, tmp_path):
    monkeypatch.delenv("R3L_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data" / "policies" / "embedded").mkdir(parents=True)
    assert home() == CHECKOUT
    assert locate("data/policies/embedded") == CHECKOUT / "data/policies/embedded"
    assert locate("data/tasks") == CHECKOUT / "data/tasks"
    monkeypatch.chdir(CHECKOUT)
    assert locate("data/policies/embedded") == Path("data/policies/embedded")  # as settings and tables have it


def test_r3l_home_goes_first_and_what_ships_second(monkeypatch, tmp_path):
    monkeypatch.setenv("R3L_HOME", str(tmp_path))
    monkeypatch.chdir("/")
    assert home() == tmp_path
    assert locate("data/runs") == tmp_path / "data/runs"
    assert locate("data/policies/embedded") == CHECKOUT / "data/policies/embedded"
    (tmp_path / "data/policies/embedded").mkdir(parents=True)
    assert locate("data/policies/embedded") == tmp_path / "data/policies/embedded"


def test_an_installed_package_writes_to_the_home_folder_and_reads_what_it_holds(monkeypatch, tmp_path):
    package = tmp_path / "site-packages" / "r3l"
    monkeypatch.delenv("R3L_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "person"))
    monkeypatch.setattr(homes, "PACKAGE", package)
    monkeypatch.setattr(homes, "SHIPPED", package / "shipped")
    (package / "shipped/data/queries").mkdir(parents=True)
    assert home() == tmp_path / "person/.r3l"
    assert locate("data/queries") == package / "shipped/data/queries"
    assert locate("data/tasks") == tmp_path / "person/.r3l/data/tasks"


@pytest.mark.parametrize("path", ["runs", "../data/x", "/data/x", "models/data/x", "."])
def test_other_paths_are_as_they_were_given(path):
    assert locate(path) == Path(path)
