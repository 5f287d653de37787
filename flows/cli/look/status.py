"""`r3l status`: where a run stands."""

from flows.cli.options import Branch, Root, Run, RunWord, the_run
from flows.cli.screen.answers import warn_of_damage
from flows.cli.screen.console import screen
from r3l.store.stage import Store


def status(word: RunWord = "", run: Run = "", branch: Branch = "", store: Root = "") -> None:
    """Show where a run stands: the stages of its newest iteration, its figures, its account."""
    from r3l.audit.terminal import status as shown

    run, opened = the_run(word, run), Store.open(store, reading=True)
    warn_of_damage(opened, [run])
    screen().print(shown(opened, run, branch))
