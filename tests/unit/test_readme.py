"""README.md is true: its commands run or parse, its links lead somewhere, its answers are those of the run that ships,
its evidence is made of the kept results, and every command of `r3l` is in a guide."""

import importlib.util
import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from flows.cli import app as cli
from r3l import plugins
from r3l.errors import ConfigError
from r3l.lab.study.pages.readme_block import BEGIN, END, with_evidence

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
GUIDES = sorted(
    path
    for place in ("*.md", "infra/*.md", "data/*.md", "data/guide/*.md", "data/*/README.md", "data/policies/*/README.md")
    for path in ROOT.glob(place)
)
# These are run. The others need a server, a browser or minutes: they are parsed, with all their options.
QUICK = {"sql", "why", "check", "plan"}


@pytest.fixture(scope="module")
def r3l() -> typer.Typer:
    return cli.app_of([*cli.PLACES, *plugins.installed("command")])


def commands(page: str) -> list[str]:
    """Lines of the page's shell blocks and its inline commands, without comments."""
    blocks = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line.strip()]
    inline = re.findall(r"`((?:\.venv/bin/r3l|r3l [a-z]+|make|python -m) ?[^`]*)`", page)
    return [re.sub(r"\s+#.*$", "", one).removeprefix(".venv/bin/") for one in (*lines, *inline)]


def parsed(app: typer.Typer, words: list[str]) -> None:
    """Raise `click.UsageError` if the words are not a command of `r3l` with its options; each has `--path FOLDER`."""
    if plugins.OPTION in words:
        at = words.index(plugins.OPTION)
        words = words[:at] + words[at + 2 :]
    group = typer.main.get_command(app)
    command = group.get_command(None, words[0])  # type: ignore[attr-defined, arg-type]
    assert command, f"r3l has no command {words[0]}"
    if "--help" not in words:
        command.make_context(words[0], words[1:])


def test_the_pages_commands_run_or_parse(r3l, monkeypatch):
    monkeypatch.chdir(ROOT)
    for line in [*commands(README), *commands((ROOT / "data/guide/commands.md").read_text(encoding="utf-8"))]:
        program, *words = shlex.split(line)
        if program == "make":
            assert subprocess.run(["make", "-n", *words], capture_output=True, check=False).returncode == 0, line
        elif program == "pip":
            assert words[0] == "install", line
        elif program == "python":
            assert importlib.util.find_spec(words[1]), line
        elif words != ["--help"]:
            parsed(r3l, words)
            if words[0] in QUICK:
                # a whole check of this run is that of test_interface.py
                done = CliRunner().invoke(r3l, [*words, *(["--quick"] if words[0] == "check" else [])])
                assert done.exit_code == 0, f"{line}: {done.output}"


def test_a_wrong_option_is_seen(r3l):
    with pytest.raises(Exception, match="No such option"):
        parsed(r3l, ["iterate", "--tasks", "3"])


def test_each_answer_is_that_of_the_run(r3l, monkeypatch):
    monkeypatch.chdir(ROOT)
    answers = re.findall(r"```sh\n(\S*r3l sql .*\n)```\n\n((?:\|.*\n)+)", README)
    assert len(answers) >= 3
    for block, table in answers:
        question = block.removeprefix(".venv/bin/")
        output = CliRunner().invoke(r3l, [*shlex.split(question)[1:], "--json"]).output
        rows = [json.loads(line) for line in output.splitlines()]
        shown = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in table.splitlines()]
        assert shown[0] == list(rows[0])
        assert shown[2:] == [[cell(value) for value in row.values()] for row in rows]


def cell(value: object) -> str:
    return "" if value is None else f"{value:g}" if isinstance(value, int | float) else str(value)


@pytest.mark.parametrize("path", GUIDES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(path):
    page = path.read_text(encoding="utf-8")
    links = re.findall(r"(?<!\\)\]\(([^)\s]+)\)", page) + re.findall(r'(?:src|srcset)="([^"]+)"', page)
    for link in links:
        if not link.startswith(("https://", "#")):
            assert (path.parent / link.split("#")[0]).exists(), f"{path}: {link}"


def test_it_is_short_and_its_pictures_are_small():
    assert len(README.splitlines()) <= 110
    for picture in re.findall(r'(?:src|srcset)="([^"]+)"|!\[[^]]*\]\(([^)]+)\)', README):
        assert (ROOT / "".join(picture)).stat().st_size <= 150_000


def test_its_evidence_is_made_of_the_kept_results():
    assert with_evidence(README, ROOT / "data/results") == README


def test_its_marks_stand_once_each():
    for page in ("", BEGIN, f"{END}{BEGIN}", f"{BEGIN}{END}{END}"):
        with pytest.raises(ConfigError, match="marks"):
            with_evidence(page, ROOT / "data/results")


def test_every_command_is_in_a_guide():
    pages = "\n".join(path.read_text(encoding="utf-8") for path in GUIDES)
    names = [*cli.PLACES, *plugins.installed("command")]
    assert len(names) > 20
    missing = [name for name in names if not re.search(rf"r3l {re.escape(name)}\b(?!-)", pages)]
    assert missing == []
