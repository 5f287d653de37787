"""`r3l status`: where a run stands."""

from flows.cli.options import Branch, Root, Run, RunWord, the_run
from flows.cli.screen.console import screen
from r3l.store.stage import Store


def status(word: RunWord = "", run: Run = "", branch: Branch = "", store: Root = "") -> None:
    """Show where a run stands: the stages of its newest iteration, its figures, its account."""
    from r3l.audit.terminal import status as shown

    screen().print(shown(Store.open(store, reading=True), the_run(word, run), branch))
