"""Docstrings say what is there: what returns nothing returns nothing in words either, and every name exists."""

import ast
import builtins
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

FILES = sorted(path for folder in ("r3l", "flows") for path in Path(folder).rglob("*.py"))
NOTHING = (
    "None",
    "Iterator",
    "AsyncIterator",
    "Generator",
    "AsyncGenerator",
    "Iterable",
)  # what yields gives nothing back
SECTION = re.compile(r"^(Args|Raises|Returns|Yields):$")
ENTRY = re.compile(r"^    (\*{0,2}\w[\w., *]*):( |$)")
NAME = re.compile(r"(?<!`)`([A-Za-z_][\w.]*)(?:\(\))?`(?!`)")
Function = ast.FunctionDef | ast.AsyncFunctionDef


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def documented(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | Function) and (text := ast.get_docstring(node)):
            yield node, text


def returns_in_words(tree: ast.Module) -> Iterator[str]:
    """Name the functions that give nothing back, or yield, whose docstring begins with Return."""
    for node, text in documented(tree):
        if isinstance(node, Function) and text.startswith("Return"):
            kind = ast.unparse(node.returns) if node.returns else "None"
            yields = any(isinstance(one, ast.Yield | ast.YieldFrom) for one in ast.walk(node))
            if kind in ("None", "Never") or (yields and kind.startswith(NOTHING)):
                yield f"{node.name} gives {kind}: {text.splitlines()[0]}"


def entries(text: str, section: str) -> Iterator[str]:
    """List the names that a section of a docstring explains."""
    at = ""
    for line in text.splitlines():
        if found := SECTION.match(line):
            at = found[1]
        elif line and not line.startswith(" "):
            at = ""
        elif at == section and (found := ENTRY.match(line)):
            yield from re.split(r",\s*", found[1])


def arguments(node: ast.AST) -> set[str]:
    """List what a function takes, or a class: its fields, and what its `__init__` takes."""
    if isinstance(node, ast.ClassDef):
        fields = {
            one.target.id for one in node.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
        }
        return fields.union(
            *(arguments(one) for one in node.body if isinstance(one, Function) and one.name == "__init__")
        )
    if not isinstance(node, Function):
        return set()
    most = node.args
    kinds = [*most.posonlyargs, *most.args, *most.kwonlyargs, most.vararg, most.kwarg]
    return {one.arg for one in kinds if one is not None}


@cache
def known() -> frozenset[str]:
    """List every word of the code and of the files that it reads, docstrings and comments left out."""
    words = set(dir(builtins))
    for path in FILES:
        tree = parsed(path)
        texts = {id(node.body[0].value) for node, _ in documented(tree)}  # type: ignore[attr-defined]
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in texts:
                words.update(re.findall(r"\w+", node.value))
            for field in ("id", "attr", "arg", "name", "asname", "module", "names"):
                value = getattr(node, field, None)
                words.update(re.findall(r"\w+", value) if isinstance(value, str) else ())
        words.update(path.with_suffix("").parts)
    for path in Path("r3l").rglob("*"):
        if path.suffix in {".sql", ".c", ".js", ".txt", ".toml"}:
            words.update(re.findall(r"\w+", path.read_text(encoding="utf-8")))
    return frozenset(words)


@cache
def classes() -> frozenset[str]:
    return frozenset(node.name for path in FILES for node in ast.walk(parsed(path)) if isinstance(node, ast.ClassDef))


def unknown(tree: ast.Module) -> Iterator[str]:
    """Name what docstrings explain, raise or mark as a name, and what is nowhere."""
    imported = {
        one.asname or one.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for one in node.names
    }
    for node, text in documented(tree):
        for name in entries(text, "Args"):
            if name.lstrip("*") not in arguments(node):
                yield f"{getattr(node, 'name', '')} has no {name}"
        for name in entries(text, "Raises"):
            if not hasattr(builtins, name) and name not in imported | classes():
                yield f"{getattr(node, 'name', '')} can't raise {name}"
        for name in NAME.findall(text):
            if missing := [part for part in name.split(".") if part and part not in known()]:
                yield f"{getattr(node, 'name', '')} names `{name}`: there is no {missing[0]}"


@pytest.mark.parametrize("path", FILES, ids=str)
def test_docstrings_say_what_is_there(path: Path) -> None:
    tree = parsed(path)
    assert [*returns_in_words(tree), *unknown(tree)] == []


@pytest.mark.parametrize(("source", "complaint"), [
    ('def go() -> None:\n    """Return home."""\n', "go gives None"),
    ('def go() -> Iterator[int]:\n    """Return numbers."""\n    yield 1\n', "go gives Iterator[int]"),
    ('def go(far: int) -> int:\n    """Go.\n\n    Args:\n        fast: very.\n    """\n', "go has no fast"),
    (
        'def go() -> int:\n    """Go.\n\n    Raises:\n        LostError: often.\n    """\n',
        "go can't raise LostError",
    ),
    ('def go() -> int:\n    """Go as `walk_away_backwards` does."""\n', "there is no walk_away_backwards"),
])  # fmt: skip
def test_what_is_not_there_is_found(source: str, complaint: str) -> None:
    (found,) = [*returns_in_words(ast.parse(source)), *unknown(ast.parse(source))]
    assert complaint in found
