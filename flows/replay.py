"""The flow `r3l-replay`: recompute an iteration from a stored stage on, into a sibling branch. The original is never
touched."""

from typing import Annotated

from prefect import flow
from pydantic import WithJsonSchema

from flows.cancellation import run_attended
from flows.placement.placed import PrefectPlacement
from flows.tasks import RUNNER, runner
from r3l.pipeline.replay import ORDER, Replayed, check_stages, recompute
from r3l.pipeline.workbench import Replay
from r3l.store.stage import Store

StageName = Annotated[str, WithJsonSchema({"type": "string", "enum": list(ORDER)})]


@flow(name="r3l-replay", flow_run_name="{run} iteration={iteration} from {from_stage}", task_runner=RUNNER)
def replay(
    run: str,
    iteration: int,
    from_stage: StageName = "credit",
    to_stage: StageName = "updates",
    assignments: list[str] | None = None,
    branch: str = "",
    source_branch: str = "",
    store: str = "",
) -> Replayed:
    """Recompute stages of a stored iteration into a branch.

    Args:
        run: name of the run.
        iteration: which iteration of it.
        from_stage: first stage that is computed again.
        to_stage: last stage that is computed.
        assignments: settings to change, each as key=value, for example method.alpha=5; empty proves that nothing
            changes.
        branch: name of the new branch; empty: replay-1, replay-2, ...
        source_branch: the branch that is replayed; empty: the run itself.
        store: folder or s3:// address of the store; empty: R3L_STORE, else data/runs.
    """
    check_stages(from_stage, to_stage)
    request = Replay(source_branch, from_stage, to_stage)
    return run_attended(
        recompute,
        Store.open(store),
        run,
        iteration,
        request,
        assignments or [],
        branch,
        runner=runner(),
        placement=PrefectPlacement(),
    )
