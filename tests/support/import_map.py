"""A map of the imports: `python -m tests.support.import_map [ROOT]` prints floors, arrows, circles and files of each
folder.

The floor of a module is the longest way down from it: a module that imports none of the project's stands on floor 0.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from functools import cache
from pathlib import Path


def modules(root: Path) -> dict[str, Path]:
    """Module name -> file, for r3l and flows; a package without code of its own is left out."""
    files = [path for folder in ("r3l", "flows") for path in sorted((root / folder).glob("**/*.py"))]
    named = {".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path for path in files}
    return {name: path for name, path in named.items() if ast.parse(path.read_text()).body[1:]}


def imported(path: Path, known: dict[str, Path]) -> set[str]:
    """The project's modules that a file imports, late imports and TYPE_CHECKING included."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names} & known.keys()
            found |= inner or {node.module}
    return {name for name in found if name in known and known[name] != path}


def circles(edges: dict[str, set[str]]) -> list[list[str]]:
    """One circle for each import that leads back to where it came from."""
    found: list[list[str]] = []
    done: set[str] = set()

    def walk(name: str, trail: list[str]) -> None:
        if name in trail:
            found.append([*trail[trail.index(name) :], name])
        elif name not in done:
            for other in sorted(edges[name]):
                walk(other, [*trail, name])
            done.add(name)

    for name in edges:
        walk(name, [])
    return found


def floors(edges: dict[str, set[str]]) -> dict[str, int]:
    """Module -> floor; arrows of a circle that lead back are left out."""
    back = {(circle[-2], circle[-1]) for circle in circles(edges)}

    @cache
    def floor(name: str) -> int:
        return max((1 + floor(other) for other in edges[name] if (name, other) not in back), default=0)

    return {name: floor(name) for name in edges}


def main(root: str = ".") -> None:
    known = modules(Path(root))
    edges = {name: imported(path, known) for name, path in known.items()}
    height = floors(edges)
    print(f"{len(known)} modules, {sum(map(len, edges.values()))} arrows, {max(height.values()) + 1} floors")
    print(f"{len(circles(edges))} circles", *(" -> ".join(circle) for circle in circles(edges)), sep="\n  ")
    folders = Counter(str(path.parent.relative_to(root)) for path in known.values() if path.stem != "__init__")
    for folder, files in sorted(folders.items()):
        inside = {name for name, path in known.items() if str(path.parent.relative_to(root)) == folder}
        within = floors({name: edges[name] & inside for name in inside})
        print(f"{folder:32} {files:3} files on {max(within.values()) + 1} floors")


if __name__ == "__main__":
    main(*sys.argv[1:])
