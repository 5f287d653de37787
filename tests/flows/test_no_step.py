"""An iteration that gives nothing to learn from says so wherever it is shown, and shows no figure that was not
measured."""

import logging
from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
from prefect import State
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterFlowRunId
from rich.console import Console

from flows.cli.screen.figures import result
from flows.iterate import iterate
from r3l.audit.lines import Line, iterations
from r3l.audit.reader import Reader
from r3l.audit.report import render
from r3l.audit.terminal import status
from r3l.pipeline import preflight
from r3l.pipeline.summary import figure_rows
from r3l.pipeline.workbench import Workbench
from r3l.store.stage import Store
from tests.flows.small import small_config
from tests.support import records
from tests.support.fakes import explorer

pytestmark = pytest.mark.usefixtures("prefect_server")
SAID = "no step taken: 0 of 2 groups have mixed rewards; 0 % of reflections parse"


def test_a_step_that_was_not_taken_is_said_everywhere(monkeypatch, tmp_path, caplog) -> None:
    """Two tasks, two bases each: none is won, and no reflection can be read."""
    monkeypatch.setattr(preflight, "check", lambda config, training=True: Store.open(config.store.root))
    monkeypatch.setattr(
        "r3l.pipeline.stages.calls.draw", lambda config, iteration: records.corridor_tasks(iteration, 2)
    )
    monkeypatch.setattr(
        Workbench,
        "_start",
        lambda bench: replace(explorer(lambda name, prompt: "!wait"), policy=bench.policies.behaviour.digest),
    )
    with caplog.at_level(logging.WARNING, logger="r3l.pipeline"):
        state: State[Any] = iterate(small_config(tmp_path, "training.processes=0", iteration=0), return_state=True)
    assert SAID in caplog.text
    store = Store.open(str(tmp_path))
    assert (state.type.value, state.message) == ("COMPLETED", SAID)  # the list of runs
    summary = state.result()
    assert summary["no_step"] == SAID
    figures = dict(figure_rows(summary))
    unmeasured = ("loss", "RL term", "SFT term", "gradient norm", "entropy (nats)", "KL to the starting policy")
    assert {figures[name] for name in unmeasured} == {"–"}
    assert figures["mixed-reward groups"] == "0"

    console = Console(file=StringIO(), width=200)
    result(console, summary, ask=False)
    assert SAID in console.file.getvalue()  # type: ignore[attr-defined]
    console = Console(file=StringIO(), width=200)
    console.print(status(store, "small"))
    assert SAID in console.file.getvalue()  # type: ignore[attr-defined]
    with get_client(sync_client=True) as client:
        ours = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[state.state_details.flow_run_id]))
        pages = {artifact.key: artifact for artifact in client.read_artifacts(artifact_filter=ours)}
    assert f"**{SAID}**" in pages["r3l-small-iteration"].data  # type: ignore[operator]
    assert SAID in str(pages["r3l-small-iteration"].description)
    reader = Reader(store, ["small"])
    [row] = iterations(reader, Line("small"))
    assert (row["no_step"], row["loss"], row["grad_norm"]) == (SAID, None, None)
    assert SAID in render(reader, Line("small"))
