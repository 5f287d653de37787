"""Build the documentation site from the repository's pages: ``python infra/site/build.py [FOLDER]``, by default
build/site. A link that leads nowhere fails the build. ``--words`` puts the audit app's words into the glossary instead.

Pages keep their places, so that their links hold; what they link to comes along. The reference of verbs, presets and
the Python interface is made here from the code.
"""

import inspect
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import typer

import r3l
from flows.cli import app as cli
from r3l import plugins
from r3l.audit.text.glossary import GLOSSARY

ROOT = Path(__file__).parents[2]
CONFIG = Path(__file__).with_name("zensical.toml")
ZENSICAL = ROOT / ".venv-docs" / "bin" / "zensical"  # `make docs` puts it there
WORDS = ROOT / "data" / "guide" / "glossary.md"
LINK = re.compile(r"(?<!\\)\]\(([^)\s#]+)[^)\s]*\)|(?:src|srcset)=\"([^\"#]+)\"")


def linked(page: Path) -> set[Path]:
    """List the files of the repository that a page links to."""
    found = ("".join(match) for match in LINK.findall(page.read_text(encoding="utf-8")))
    return {(page.parent / one).resolve() for one in found if "://" not in one and not one.startswith("mailto:")}


def copy_pages(pages: Path) -> None:
    """Copy the navigation's pages, and all that they lead to."""
    waiting = {ROOT / name for name in re.findall(r'"([\w./-]+\.md)"', CONFIG.read_text(encoding="utf-8"))}
    done: set[Path] = set()
    while waiting:
        file = waiting.pop()
        done.add(file)
        if file.is_file() and file.is_relative_to(ROOT):
            goal = pages / file.relative_to(ROOT)
            goal.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, goal)
            waiting |= (linked(file) if file.suffix == ".md" else set()) - done


def with_words(page: str) -> str:
    """Put the words of the audit app between the marks of the glossary."""
    table = "\n".join(f"| {word.name} | {word.meaning} |" for word in GLOSSARY.values())
    head, _, rest = page.partition("|---|---|\n")
    return f"{head}|---|---|\n{table}\n{rest[rest.index('<!-- end of words -->') :]}"


def verbs() -> str:
    """Write each command with its options, by box of `r3l --help`."""
    names = [*cli.PLACES, *plugins.installed("command")]
    group = typer.main.get_command(cli.app_of(names))
    lines = [
        "# Verbs",
        "",
        "`r3l COMMAND --help` says the same. `--debug`, with any command, shows the traceback of an error.",
    ]
    box = ""
    for name in names:
        at = cli.PLACES[name][1] if name in cli.PLACES else cli.PLUGGED_IN
        if at != box:
            box, lines = at, [*lines, "", f"## {at}"]
        command = group.get_command(None, name)  # type: ignore[attr-defined, arg-type]
        lines += ["", f"### r3l {name}", "", " ".join((command.help or "").split()), ""]
        rows = [
            f"| `{word_of(one)}` | {cell(getattr(one, 'help', ''))} |" for one in command.params if one.name != "help"
        ]
        lines += ["| option | meaning |", "|---|---|", *rows] if rows else []
    return "\n".join(lines) + "\n"


def word_of(parameter: Any) -> str:
    """Write how a parameter is typed."""
    if parameter.param_type_name == "option":
        return " ".join([*parameter.opts, *parameter.secondary_opts])
    return str(parameter.metavar or parameter.name.upper())


def presets() -> str:
    """Write each preset with its comment and its settings."""
    folder = ROOT / "r3l" / "presets"
    lines = ["# Presets", "", "Small files of settings. `r3l presets --diff A B` compares two methods."]
    for kind in sorted(path for path in folder.iterdir() if path.is_dir() and any(path.glob("*.toml"))):
        lines += ["", f"## {kind.name}"]
        for file in sorted(kind.glob("*.toml")):
            lines += ["", f"### {file.stem}", "", "```toml", file.read_text(encoding="utf-8").strip(), "```"]
    return "\n".join(lines) + "\n"


def python() -> str:
    """Write the public names of `import r3l` with their signatures and docstrings."""
    lines = ["# Python", "", "What `import r3l` gives. None of it needs Prefect unless it is asked for."]
    for name in sorted(r3l.__all__):
        thing = getattr(r3l, name)
        if not callable(thing):
            continue
        form = f"{name}{inspect.signature(thing)}" if inspect.isfunction(thing) else f"class {name}"
        methods = [
            f"    {key}{inspect.signature(value)}"
            for key, value in vars(thing).items()
            if inspect.isclass(thing) and inspect.isfunction(value) and not key.startswith("_")
        ]
        lines += [
            "",
            f"## r3l.{name}",
            "",
            "```python",
            form,
            *methods,
            "```",
            "",
            "```text",
            inspect.getdoc(thing) or "",
            "```",
        ]
    return "\n".join(lines) + "\n"


def cell(text: str) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")


def build(folder: Path) -> Path:
    """Build the site anew, and return its first page."""
    shutil.rmtree(folder, ignore_errors=True)
    copy_pages(folder / "pages")
    (folder / "pages" / "reference").mkdir()
    for name, made in {"verbs": verbs(), "presets": presets(), "python": python()}.items():
        (folder / "pages" / "reference" / f"{name}.md").write_text(made, encoding="utf-8")
    shutil.copyfile(CONFIG, folder / CONFIG.name)
    shutil.copyfile(CONFIG.with_name("site.css"), folder / "pages" / "site.css")
    subprocess.run([ZENSICAL, "build", "--strict", "--clean"], cwd=folder, check=True)
    return folder / "html" / "index.html"


if __name__ == "__main__" and sys.argv[1:] == ["--words"]:
    WORDS.write_text(with_words(WORDS.read_text(encoding="utf-8")), encoding="utf-8")
elif __name__ == "__main__":
    print(build(Path(sys.argv[1] if sys.argv[1:] else ROOT / "build" / "site").absolute()))
