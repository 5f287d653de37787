"""Every page can be used by everybody: axe-core finds nothing, nothing is wider than the screen, and lines of a chart
are told apart by the colour-blind."""

import itertools
import re
from importlib.resources import files

import numpy as np
import pytest

from r3l.audit.report import write_report
from r3l.store.stage import Store
from tests.browser.test_audit_app import PAGES
from tests.support.audit_world import commit_world

AXE = files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
VIEWS = [(1440, "light"), (420, "dark"), (1440, "dark"), (420, "light")]


def violations(page) -> list[str]:
    """What axe-core complains of on the page: the rule, and the first elements."""
    page.evaluate(AXE)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    return [f"{one['id']}: {node['target']} {node['failureSummary']}" for one in found for node in one["nodes"][:3]]


@pytest.mark.slow
@pytest.mark.parametrize("page", VIEWS, ids=str, indirect=True)
def test_axe_finds_nothing_and_no_page_is_wider_than_the_screen(page, address):
    for path in PAGES:
        page.goto(address + path)
        assert page.locator("h1").count() == 1, path
        assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"], path
        assert violations(page) == [], path


@pytest.mark.slow
@pytest.mark.parametrize("page", VIEWS[1:2], ids=str, indirect=True)
def test_axe_finds_nothing_in_a_report(page, tmp_path):
    store = Store.open(str(tmp_path / "store"))
    commit_world(store, iterations=2, tasks=4, hostile=True)
    page.goto(write_report(store, "demo", tmp_path / "demo.html").as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= 420
    assert violations(page) == []


# Machado, Oliveira and Fernandes (2009), severity 1: how linear RGB looks to protanopes, deuteranopes and tritanopes.
BLIND = [
    [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
]
XYZ = [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]


def linear(colour: str) -> np.ndarray:
    value = np.array([int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)])
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def lab(light: np.ndarray) -> np.ndarray:
    scaled = np.array(XYZ) @ light / np.array([0.95047, 1.0, 1.08883])
    f = np.where(scaled > 0.008856, np.cbrt(scaled), 7.787 * scaled + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def seen(colour: str) -> list[np.ndarray]:
    """In CIE Lab: as it is, and as the colour-blind see it."""
    light = linear(colour)
    return [lab(light), *(lab(np.clip(np.array(matrix) @ light, 0, 1)) for matrix in BLIND)]


def palettes() -> list[tuple[str, list[str]]]:
    """Of light and of dark: the ground of a card, and the six colours of a chart's lines."""
    css = files("r3l.audit").joinpath("static", "audit.css").read_text(encoding="utf-8")
    cards, colours = re.findall("--card: (#[0-9a-f]{6})", css), re.findall("--c[0-5]: (#[0-9a-f]{6})", css)
    return list(zip(cards, (colours[:6], colours[6:]), strict=True))


def test_lines_are_told_apart_by_the_colour_blind_and_stand_out_from_the_ground():
    for card, colours in palettes():
        assert len(colours) == 6
        for one, other in itertools.combinations(colours, 2):
            differences = [np.linalg.norm(a - b) for a, b in zip(seen(one), seen(other), strict=True)]
            assert min(differences) > 20, (one, other)
        for colour in colours:
            dark, light = sorted(float(linear(one) @ np.array(XYZ[1])) for one in (colour, card))
            assert (light + 0.05) / (dark + 0.05) >= 3, (colour, card)
