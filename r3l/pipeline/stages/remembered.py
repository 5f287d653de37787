"""What a reflector is shown of earlier iterations: the newest guidance after which a retry of the same task won."""

from collections.abc import Sequence

from r3l.exploration.prompting import remembered_guidance
from r3l.methods import guidance_memory
from r3l.pipeline.stages import stage_io
from r3l.pipeline.stages.replay_buffer import earlier
from r3l.pipeline.workbench import Workbench
from r3l.records import Reflection, Task, observation_hash


def remembered(bench: Workbench, tasks: Sequence[Task]) -> dict[str, Reflection]:
    """Find it for each task that has one, by the task's name; the newest iteration counts, and its last one."""
    missing = {task.task_id for task in tasks}
    found: dict[str, Reflection] = {}
    first = max(bench.iteration - guidance_memory(bench.config.method), 0)
    for iteration in range(bench.iteration - 1, first - 1, -1):
        columns = ["task_id", "success", "reflection_id"]
        won = {
            row["reflection_id"]: row["task_id"]
            for ref in earlier(bench, iteration, "retries")
            for row in bench.store.read(ref, "trajectories", columns).to_pylist()
            if row["success"] and row["task_id"] in missing
        }
        refs = earlier(bench, iteration, "reflections") if won else []
        reflections = [
            one
            for ref in refs
            if not bench.store.pruned(ref, "reflections")
            for one in stage_io.records(bench.store, ref, "reflections", Reflection)
        ]
        found |= {won[one.reflection_id]: one for one in reflections if one.reflection_id in won}
        missing -= found.keys()
    return found


def identity_of_remembered(found: dict[str, Reflection]) -> dict[str, dict[str, list[str]]]:
    """Name what is shown, for the identity of the stage: no setting and no parent of it tells."""
    shown = {
        task: [one.reflection_id, observation_hash(remembered_guidance(one.report))] for task, one in found.items()
    }
    return {"remembered": shown} if shown else {}
