"""The guide's pages are true: their commands parse or run, the messages they explain are raised, their figures are the
plan's, and no word of the glossary stands twice."""

import importlib.util
import re
import shlex
from functools import cache
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from flows.cli import app as cli
from flows.cli.options import MACHINES
from infra.pages.settings import page as settings_page
from r3l.audit.text.glossary import GLOSSARY
from r3l.config import compose
from r3l.config.compose import preset_names
from r3l.config.machines import load_machine
from r3l.planning.memory import GPU_MEMORY_GB
from r3l.planning.plan import make_plan
from tests.unit.test_readme import commands, parsed

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "data" / "guide"
PAGES = sorted(GUIDE.glob("*.md"))


def text(name: str) -> str:
    return (GUIDE / f"{name}.md").read_text(encoding="utf-8")


@cache
def source() -> str:
    """All texts of the product; those of one message joined."""
    files = [path for root in ("r3l", "flows") for path in (ROOT / root).rglob("*.py")]
    return re.sub(r"\"\s+f?\"", "", "\n".join(path.read_text(encoding="utf-8") for path in files))


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_commands_parse(page):
    app = cli.app_of(cli.PLACES)
    for line in commands(page.read_text(encoding="utf-8")):
        words = shlex.split(line.replace("...", "a=1"))
        if words[0] == "r3l" and len(words) > 1 and "=S" not in line and words[1] not in ("prefect", "--help"):
            known = words[1:]
            if known[0] in cli.PLACES and not {"COMMAND", "ENV", "KIND", "RUN", "NAME"} & {*known} and "[" not in line:
                parsed(app, known)


def test_help_names_every_machine_and_gpu():
    plan = {one.name: one.help for one in get_command(cli.app_of(["plan"])).commands["plan"].params}
    assert plan["machine"] == MACHINES
    for listed, names in ((MACHINES, preset_names("machines")), (plan["gpu"], GPU_MEMORY_GB)):
        assert sorted(re.split(", | or ", re.split("[:;]", listed)[1].strip())) == sorted(names)


def test_the_joins_have_answers(monkeypatch):
    monkeypatch.chdir(ROOT)
    app = cli.app_of(["sql"])
    joins = re.findall(r"^r3l (sql .*)$", text("tables"), re.MULTILINE)
    assert len(joins) == 10
    for join in joins:
        done = CliRunner().invoke(app, [*shlex.split(join), "--json"])
        assert done.exit_code == 0, done.output
        assert done.output.strip(), join


def test_the_messages_of_troubleshooting_are_raised():
    sections = [part for part in text("troubleshooting").split("\n## ") if "| message |" in part]
    messages = [found for part in sections for found in re.findall(r"^\| `([^`]+)`", part, re.MULTILINE)]
    assert len(messages) > 20
    for message in messages:
        for part in message.split("..."):
            assert part.strip() in source(), message


def test_settings_of_the_guide_exist():
    known = set(re.findall(r"^\| `([a-z_]+(?:\.[a-z_]+)?)`", settings_page(), re.MULTILINE))
    known |= {f"{section}.kind" for section in ("method", "environment", "engine")}
    sections = {name.split(".")[0] for name in known if "." in name}
    for page in PAGES:
        ours = page.read_text(encoding="utf-8")
        if page.stem == "from":  # the first column alone
            ours = "\n".join(line.split("|")[1] for line in ours.splitlines() if line.startswith("| `"))
        for section, name in re.findall(r"`(?:--set )?([a-z_]+)\.([a-z_]+)\b(?!\.)[^`]*`", ours):
            if section in sections:
                assert f"{section}.{name}" in known, f"{page.name}: {section}.{name}"


def test_each_word_of_the_glossary_stands_once_and_those_of_the_audit_app_are_its_own():
    words = re.findall(r"^\| ([^|]+) \|", text("glossary"), re.MULTILINE)
    words = [word for word in words if word not in ("word", "---")]
    assert len(words) == len(set(words)) > 70
    assert site().with_words(text("glossary")) == text("glossary"), "run: python infra/site/build.py --words"
    others = words[len(GLOSSARY) :]
    assert others == sorted(others)


def site():
    """The builder of the site."""
    spec = importlib.util.spec_from_file_location("build_site", ROOT / "infra" / "site" / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_sites_pages_are_there_and_its_reference_names_every_verb_and_preset():
    made = site()
    for name in re.findall(r'"([\w./-]+\.md)"', made.CONFIG.read_text()):
        assert name.startswith("reference/") or (ROOT / name).is_file(), name
    assert {path.name for path in PAGES} <= {
        Path(name).name for name in re.findall(r'"([\w./-]+)"', made.CONFIG.read_text())
    }
    assert re.findall(r"^### r3l (\S+)$", made.verbs(), re.MULTILINE)[:6] == cli.FIRST
    assert "### language_model" in made.presets()
    assert "## r3l.iterate" in made.python()


def test_what_a_run_costs_is_what_the_plan_says():
    rows = re.findall(r"^\| `(\S+)` \| `(\S+)` \| (.+) \|$", text("cost"), re.MULTILINE)
    assert len(rows) == 6
    for policy, machine, cells in rows:
        assert cells.split(" | ") == figures(policy, machine), f"{policy} on {machine}"


def figures(policy: str, machine: str) -> list[str]:
    """What the update takes of a GPU, contexts that are sampled at once, and what is kept; or why it does not fit."""
    there = load_machine(machine)
    made = make_plan(compose(policy=policy, environment="alfworld", machine=machine), there)
    if made.troubles:
        return ["does not fit", "", ""]
    memory = f"{made.value('training GPU: in all'):.0f} of {GPU_MEMORY_GB[there.gpu]:g} GB ({there.gpu})"
    contexts = made.value("sampling GPU: longest contexts at once")
    return [memory, f"{contexts:,.0f}", f"{made.value('policy and optimiser'):.0f} GB"]
