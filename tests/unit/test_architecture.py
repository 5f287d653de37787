"""The rules of blindness, held against the source itself."""

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import takewhile, zip_longest
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Each floor may import its own and those below it.
FLOORS = [
    ["r3l.config", "r3l.records", "r3l.stages", "r3l.errors", "r3l.system", "r3l.plugins", "r3l.version", "r3l"],
    ["r3l.environments", "r3l.engines", "r3l.credit", "r3l.losses", "r3l.store"], ["r3l.exploration", "r3l.methods"],
    ["r3l.training", "r3l.evaluation", "r3l.audit", "r3l.planning", "r3l.scaffold"], ["r3l.pipeline"],
    ["r3l.judge", "r3l.lab"], ["flows"], ["r3l.interface"],
]  # fmt: skip
MAY_IMPORT = {"prefect": ("flows",), "torch": ("r3l.engines", "r3l.training", "r3l.lab", "r3l.losses")}
BLIND = {  # who may not know whom, beyond the floors
    "r3l.exploration": ("r3l.methods", "r3l.credit", "r3l.losses", "r3l.store"),
    "r3l.methods": ("r3l.environments", "r3l.engines", "r3l.exploration", "r3l.store", "r3l.losses"),
    "r3l.credit": ("r3l.config", "r3l.store", "r3l.engines", "r3l.environments", "r3l.losses", "r3l.records"),
    "r3l.audit": (
        "r3l.config",
        "r3l.environments",
        "r3l.engines",
        "r3l.credit",
        "r3l.losses",
        "r3l.exploration",
        "r3l.methods",
        "r3l.training",
        "r3l.evaluation",
    ),
    "r3l.losses": ("r3l.config", "r3l.store", "r3l.engines", "r3l.environments", "r3l.credit"),
}
LABORATORY = ("r3l.lab", "flows.lab")  # plugs in like any package: no room of the product names it
# The trainer is the update and nothing else: rows, losses, settings and the store's files.
TRAINER_SEES = ("r3l.training", "r3l.losses", "r3l.config", "r3l.store", "r3l.errors", "r3l.system")
SOURCES = sorted([*ROOT.glob("r3l/**/*.py"), *ROOT.glob("flows/**/*.py")])


def module(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@cache
def nodes(path: Path) -> list[ast.AST]:
    """Everything in a file; five rules look through all of it."""
    return list(ast.walk(ast.parse(path.read_text())))


def imports(path: Path) -> set[str]:
    found = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: relative import"
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
        found |= named_modules(node)
    return found


def named_modules(node: ast.AST) -> set[str]:
    """Return the modules that a call imports by a text, or that a command line runs with ``-m``."""
    texts: list[ast.expr] = []
    if isinstance(node, ast.Call):
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        texts = node.args if called in {"import_module", "__import__", "find_spec"} else []
    elif isinstance(node, ast.List | ast.Tuple):
        values = [getattr(one, "value", None) for one in node.elts]
        texts = [word for option, word in zip(values, node.elts[1:], strict=False) if option == "-m"]
    # Of a text with gaps, such as f"flows.cli.{folder}", what stands before the first one.
    heads = [text.values[0] if isinstance(text, ast.JoinedStr) and text.values else text for text in texts]
    names = [head.value for head in heads if isinstance(head, ast.Constant) and isinstance(head.value, str)]
    return {name.rstrip(".") for name in names}


def test_no_process_of_python_is_started_with_the_working_folder_on_its_path() -> None:
    """``-P`` stands before ``-m``: that folder may hold a tomllib.py of somebody else."""
    for path in SOURCES:
        for node in nodes(path):
            words = [ast.unparse(one) for one in node.elts] if isinstance(node, ast.List | ast.Tuple) else []
            if "sys.executable" in words and {"'-m'", "'-c'"} & set(words):
                assert "'-P'" in words, f"{path}:{node.lineno}: {words}"


def inside(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def floor(name: str) -> int | None:
    for level in range(len(FLOORS) - 1, -1, -1):
        if any(inside(name, package) for package in FLOORS[level] if package != "r3l"):
            return level
    return 0 if name == "r3l" else None


def test_imports_point_downward_and_the_blind_stay_blind():
    assert [wrong for path in SOURCES for wrong in forbidden(module(path), imports(path))] == []


def forbidden(own: str, names: Iterable[str]) -> Iterator[str]:
    """Yield what is wrong with the imports of a module."""
    height = len(FLOORS) - 1 if own == "r3l" else floor(own)  # the package's face stands on top, its name on the ground
    for name in names:
        if (level := floor(name)) is not None and level > height:
            yield f"{own} imports {name}, which is above it"
        if any(inside(name, room) for room in LABORATORY) and not any(inside(own, room) for room in LABORATORY):
            yield f"{own} imports {name}, which is the laboratory's"
        for package, allowed in MAY_IMPORT.items():
            if inside(name, package) and not any(inside(own, place) for place in allowed):
                yield f"{own} imports {name}, which is for {', '.join(allowed)}"
        for who, unknown in BLIND.items():
            if inside(own, who) and any(inside(name, package) for package in unknown):
                yield f"{own} imports {name}, which {who} may not know"
        if inside(own, "r3l.training") and inside(name, "r3l"):
            assert any(inside(name, package) for package in TRAINER_SEES), f"the trainer imports {name}"


def test_there_is_no_import_circle():
    known = {module(path): path for path in SOURCES}
    edges = {
        name: {other for other in imported_modules(path) if other in known and other != name}
        for name, path in known.items()
    }
    done: set[str] = set()

    def walk(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " -> ".join([*trail, name])
        if name not in done:
            for other in edges[name]:
                walk(other, (*trail, name))
            done.add(name)

    for name in edges:
        walk(name, ())


def test_no_two_rooms_of_a_folder_need_each_other():
    """Files and folders side by side stand one above the other, at every level of the tree."""
    modules = {module(path): path for path in SOURCES}
    arrows: dict[tuple[str, ...], set[tuple[str, str]]] = {}
    for name, path in modules.items():
        for other in imported_modules(path) & modules.keys():
            pairs = zip_longest(name.split("."), other.split("."))
            same = tuple(one for one, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
            rooms = [one.split(".")[len(same) :] for one in (name, other)]
            if same and all(rooms):  # else one is the other's face, or a module of `flows`
                arrows.setdefault(same, set()).add((rooms[0][0], rooms[1][0]))
    assert {folder: circle for folder, rooms in arrows.items() if (circle := circle_of(rooms))} == {}


def circle_of(arrows: set[tuple[str, str]]) -> list[str]:
    """Return rooms that need each other, straight or through others: those that are left when all that stand on top or
    at the bottom are taken away, again and again."""
    while True:
        above, below = {one for one, _ in arrows}, {other for _, other in arrows}
        inner = {(one, other) for one, other in arrows if one in below and other in above}
        if inner == arrows:
            return sorted(above & below)
        arrows = inner


@cache
def imported_modules(path: Path) -> set[str]:
    """Every module that the file imports, late imports and TYPE_CHECKING included; no package that is only a prefix."""
    found = set()
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            places = {name: ROOT / name.replace(".", "/") for name in names}
            files = {
                name
                for name, place in places.items()
                if place.with_name(place.name + ".py").exists() or (place / "__init__.py").exists()
            }
            found |= files | ({node.module} if names - files else set())
    return found


LIGHT = (
    "r3l.environments.math.grader_process r3l.config r3l.environments.workers.worker r3l.environments.kinds "
    "r3l.engines r3l.engines.canary r3l.records r3l.stages r3l.store.stage r3l.store.catalog r3l.store.check "
    "r3l.methods r3l.audit.web.app r3l.planning.plan "
    "flows.cli.commands.tables flows.cli.commands.look flows.cli.commands.prepare"
)
IMPORTED = """
import importlib, sys
for name in sys.argv[1:]:
    module = importlib.import_module(name)
    for kind in getattr(module, "ENVIRONMENTS", ()):
        module.world_class(kind)
    heavy = {"torch", "prefect", "transformers", "alfworld", "textworld"} | ({"httpx"} if "engines" in name else set())
    # what starts once for each grader, and once for each worker, with its world
    heavy |= {"numpy", "pydantic"} if "grader" in name else {"numpy"} if ".environments." in name else set()
    if heavy := heavy & {*sys.modules}:
        sys.exit(f"{name} loads {heavy}")
"""


def test_what_is_light_stays_light():
    """In one process: what none of them loads, each leaves alone."""
    command = [sys.executable, "-c", IMPORTED, *LIGHT.split()]
    assert subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT).stderr == ""


def test_files_and_functions_are_small():
    assert [wrong for path in SOURCES for wrong in too_long(path)] == []


def too_long(path: Path) -> Iterator[str]:
    """Yield what is wrong with the sizes in a file."""
    if (lines := path.read_text().count("\n")) > 300:
        yield f"{path} has {lines} lines"
    for node in nodes(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (node.end_lineno or 0) - node.lineno >= 50:
            yield f"{path}: {node.name} is too long"


def test_flows_and_the_trainer_name_no_method():
    from r3l.config.methods import METHOD_KINDS

    kinds = {*METHOD_KINDS.names()} - {"r3l"}
    for path in SOURCES:
        if inside(module(path), "flows") or inside(module(path), "r3l.training"):
            strings = {node.value for node in nodes(path) if isinstance(node, ast.Constant)}
            assert not strings & kinds, f"{path} names {strings & kinds}"


def test_no_environment_is_named_outside_its_folder():
    """Adding a world touches its folder, its settings and a preset. Texts that a person reads may give examples."""
    from r3l.environments.kinds import ENVIRONMENTS
    from r3l.evaluation.benchmarks import BENCHMARKS

    names = {*ENVIRONMENTS, *BENCHMARKS} - {"tools", "dapo"}  # which chat templates have, too, and a method
    own = ("r3l.environments", "r3l.config.environments", "r3l.lab", "flows.lab")
    for path in SOURCES:
        if not any(inside(module(path), place) for place in own):
            strings = {node.value for node in nodes(path) if isinstance(node, ast.Constant)} & names
            strings -= {"alfworld"} if module(path) == "r3l.config.compose" else set()  # the preset of a new run
            assert not strings, f"{path} names {strings}"
