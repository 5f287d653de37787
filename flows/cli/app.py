"""The `r3l` command: it loads the module of the command that is asked for, and no other. Errors are one clear message,
exit code 2."""

import ast
import atexit
import logging
import os
import re
import signal
import sys
from collections.abc import Callable, Iterable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from keyword import iskeyword
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text
from typer.core import TyperCommand

from flows import prefect_settings
from flows.cli.screen.console import say, screen, store_named, write_what_the_terminal_can
from r3l import plugins
from r3l.errors import Interrupted, R3LError
from r3l.system.child_environment import SAFE_PATH
from r3l.system.memory import collect_less
from r3l.system.pasted import runnable
from r3l.version import __version__

CUT_QUERY = "Query interrupted"  # what DuckDB makes of a signal that comes while it works
ENDED = 130  # exit code where Ctrl-C, a cancel or SIGTERM ended the work: as shells have it
PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
COMMENT = re.compile(r"--\s")
UNREAD = 1  # where nobody read the output to its end

# Box of `--help` -> its module in `flows/cli/commands`, and its commands: each is the function of its name, _ for -
# (and behind a word of Python).
COMMANDS = {
    "Run": ("run", "iterate train evaluate replay play"),
    "Serve": ("serve", "up down server register prefect"),
    "Look": ("look", "audit report show status track runs why bisect credit presets"),
    "Ask and keep": ("tables", "sql check export import prune"),
    "Prepare": ("prepare", "doctor plan new prepare export-policy"),
}
FIRST, FIRST_BOX = ["iterate", "train", "status", "audit", "sql", "evaluate"], "First"  # what a day with r3l is made of
MODULES = {command: (module, box) for box, (module, names) in COMMANDS.items() for command in names.split()}
PLACES = {command: (MODULES[command][0], FIRST_BOX) for command in FIRST} | {
    command: place for command, place in MODULES.items() if command not in FIRST
}
PLUGGED_IN = "From plug-ins"  # the box of the commands that other packages add


def module_of(command: str) -> tuple[str, str]:
    """Find the module and the name of a command's function."""
    if command not in PLACES:
        plugins.refuse_taken("command", command, PLACES)
        entry = plugins.installed("command")[command][0]
        return entry.module, entry.attr
    name = command.replace("-", "_") + "_" * iskeyword(command)
    return f"flows.cli.commands.{PLACES[command][0]}", name


def tell_version(wants_version: bool) -> None:
    if wants_version:
        say(f"r3l {__version__}")
        raise typer.Exit


def options(
    version: Annotated[
        bool, typer.Option("--version", callback=tell_version, is_eager=True, help="print the version and exit")
    ] = False,
) -> None:
    """R3L post-training of language-model agents, where every stage of every iteration is a table."""


class TakesSql(TyperCommand):
    """A command in whose words ``-- `` begins a comment of SQL, as it does at the top of a file, and no option."""

    def parse_args(self, context: Any, words: list[str]) -> list[str]:
        return super().parse_args(context, [f" {word}" if COMMENT.match(word) else word for word in words])


def app_of(commands: Iterable[str], find: Callable[[str], Callable[..., None]] | None = None) -> typer.Typer:
    """Make the command line of these commands. `find` gives a command's function: by default the real one, for which
    its module is imported."""
    app = typer.Typer(
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=False,
        epilog="With any command: --debug, the traceback of what goes wrong; --path FOLDER, where the module of a "
        "module:Class is.",
    )
    app.callback()(options)
    for name in commands:
        settings: dict[str, Any] = {"context_settings": PASSED_ON} if name == "prefect" else {}
        box = PLACES[name][1] if name in PLACES else PLUGGED_IN
        app.command(name, cls=TakesSql, rich_help_panel=box, **settings)((find or function)(name))
    return app


def function(command: str) -> Callable[..., None]:
    """Import the function of a command, of the module that it is in."""
    if command not in PLACES:
        return plugins.load_function("command", command, PLACES)
    module, name = module_of(command)
    command_function: Callable[..., None] = getattr(import_module(module), name)
    return command_function


def help_only(command: str) -> Callable[..., None]:
    """Make a function with a command's description, for `--help`: taken from the source, because importing every module
    takes seconds."""

    def described() -> None:
        raise AssertionError(f"{command} is only listed here")

    module, name = module_of(command)
    described.__doc__ = next(
        ast.get_docstring(node)
        for node in parsed(module).body
        if isinstance(node, ast.FunctionDef) and node.name == name
    )
    return described


@cache
def parsed(module: str) -> ast.Module:
    spec = find_spec(module)
    assert spec, f"there is no module {module}"
    return ast.parse(Path(str(spec.origin)).read_text(encoding="utf-8"))


class Leaving:
    """Ends the process once all else is done that is done at its exit, without freeing memory object by object, which
    takes a second or two after an import of torch and Prefect, and without waiting for a thread in the middle of a
    step.

    It is made before the imports: what they have done at the exit is done before it.
    """

    def __init__(self) -> None:
        self.status: int | None = None  # exit status of a process that ended well, or was ended
        atexit.register(self._leave)

    def _leave(self) -> None:
        if self.status is not None:
            os._exit(self.status)


def main() -> None:
    """Run the command line. An error is one line and an exit code (2: refused input; 3: a fault of r3l or of its
    environment); ``--debug`` shows the traceback."""
    collect_less()
    write_what_the_terminal_can()
    os.environ[SAFE_PATH] = "1"
    end_on_hangup()
    show_loaded_code()
    leaving = Leaving()
    debug = "--debug" in sys.argv[1:]
    sys.argv = [word for word in sys.argv if word != "--debug"]
    try:
        command()
    except SystemExit as ended:  # typer ends every command so
        end_printing()
        leaving.status = None if isinstance(ended.code, str) else ended.code or 0  # the interpreter prints a text
        raise
    except Exception as error:
        if isinstance(error, Interrupted) or str(error) == CUT_QUERY:
            screen(stderr=True).print(Text("ended:", style="yellow"), str(error), soft_wrap=True)
            end_printing()
            leaving.status = ENDED
            sys.exit(ENDED)
        if debug:
            raise
        is_refusal = isinstance(error, R3LError)
        first = next(iter(str(error).strip().splitlines()), "")
        message = (
            runnable(str(error), store_named())
            if is_refusal
            else f"{type(error).__name__}: {first} (--debug shows where)"
        )
        screen(stderr=True).print(Text("error:", style="red"), message, soft_wrap=True)
        end_printing()
        leaving.status = 2 if is_refusal else 3
        sys.exit(leaving.status)


class OnTerminal(logging.Handler):
    """Prints the lines of a log as messages of the command."""

    def emit(self, record: logging.LogRecord) -> None:
        screen(stderr=True).print(Text(record.getMessage(), style="dim"), soft_wrap=True)


def end_on_hangup() -> None:
    """Let a closed terminal end the work as SIGTERM does. ``nohup``, which ignores that signal, is honoured."""
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        signal.signal(signal.SIGHUP, lambda *_: signal.raise_signal(signal.SIGTERM))


def show_loaded_code() -> None:
    """Show on the terminal what a dotted path loads."""
    if not plugins.LOG.handlers:
        plugins.LOG.addHandler(OnTerminal())
        plugins.LOG.setLevel(logging.INFO)
        plugins.LOG.propagate = False  # Prefect's handler would show it again


def end_printing() -> None:
    """Print what is left. Where nobody reads it (`| head`), end quietly, as typer does where it notices earlier."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes again
        raise SystemExit(UNREAD) from None


def command() -> None:
    """Run the command that the first word names; without one, list them all."""
    if sys.argv[1:2] != ["prefect"]:
        sys.argv[1:] = plugins.look_in_named(sys.argv[1:])
    first_word = sys.argv[1:2]
    if first_word and (first_word[0] in PLACES or first_word[0] in plugins.installed("command")):
        prefect_settings.apply(quiet=True)
        app_of(first_word)()
    else:
        app_of(dict.fromkeys([*PLACES, *plugins.installed("command")]), help_only)()


if __name__ == "__main__":
    main()
