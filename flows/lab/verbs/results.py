"""`r3l results`: pages and pictures of experiments, from their kept results."""

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.screen.console import say
from r3l.system.home import locate


def results(
    out: Annotated[Path, typer.Option(help="file of the page")] = Path("data/RESULTS.md"),
    claims: Annotated[Path, typer.Option(help="file of the paper's claims")] = Path("data/claims.toml"),
    folder: Annotated[Path, typer.Option(help="folder that `r3l compare` wrote")] = Path("data/results"),
) -> None:
    """Make the pages and pictures of experiments and the evidence of README.md anew from the kept results, and compare
    the paper's claims with them."""
    from r3l.lab.study.claims import load_claims
    from r3l.lab.study.pages.claims_page import UNDECIDED, results_pages
    from r3l.lab.study.pages.index import index
    from r3l.lab.study.pages.readme_block import with_evidence
    from r3l.lab.study.pages.results_page import write_again
    from r3l.store.files.local import replace_text

    page, experiments = locate(out), locate(folder)
    for file in sorted(experiments.glob("*.json")):
        write_again(file)
    pages = results_pages(load_claims(locate(claims)), experiments)
    replace_text(page, pages.decided)
    replace_text(page.with_name(UNDECIDED), pages.undecided)
    replace_text(experiments / "README.md", index(experiments))
    if (readme := locate(Path("README.md"))).exists() and experiments == locate(Path("data/results")):
        replace_text(readme, with_evidence(readme.read_text(), experiments))
    say(page)
