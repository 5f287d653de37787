"""What a replay of stored stages shows: by stage, equal bit for bit, or the first row, turn and token that differs."""

from dataclasses import dataclass

from r3l.store.differences.first_difference import Line, Parting, compare_places
from r3l.store.stage import Store


@dataclass(frozen=True, slots=True)
class PlayedAgain:
    """A stage of a replay: how many of its shards were compared, how many are equal, and the first difference."""

    stage: str
    shards: int
    equal: int
    first: Parting | None

    def __str__(self) -> str:
        line = f"  {self.stage:<14} {self.equal} of {self.shards} shards equal, bit for bit"
        return f"{line}\n  {self.first}" if self.first else line


def played_again(store: Store, run: str, iteration: int, source: str, branch: str) -> list[PlayedAgain]:
    """Compare the stages that a branch made in an iteration with those of the branch that it replayed."""
    branch_stages = {(ref.stage, ref.shard) for ref in store.stages(run, branch, iteration)}
    by_stage: dict[str, list[Parting | None]] = {}
    for (_, stage, shard), differences in compare_places(Line(store, run, source), Line(store, run, branch), iteration):
        if (stage, shard) in branch_stages:
            by_stage.setdefault(stage, []).append(differences)
    return [
        PlayedAgain(stage, len(differences), differences.count(None), next(filter(None, differences), None))
        for stage, differences in by_stage.items()
    ]
