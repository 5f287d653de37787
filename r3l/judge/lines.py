"""What a run holds, by its lines and iterations, and the policies that each iteration worked with, by their digests."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from r3l.config import Config
from r3l.errors import StoreError
from r3l.judge.bench import snapshot
from r3l.pipeline.policies import Policies
from r3l.pipeline.settings.continuing import load_config
from r3l.pipeline.workbench import Replay
from r3l.stages import STAGES
from r3l.store import manifest as manifests
from r3l.store.catalog import load_manifests
from r3l.store.check import folder_of, pruned_iterations
from r3l.store.index.contents import find_origins
from r3l.store.layout import StageKey
from r3l.store.manifest import Manifest
from r3l.store.policies.snapshots import Written, read_update
from r3l.store.stage import Store

ORDER = list(STAGES)
APART = tuple(name for name, stage in STAGES.items() if stage.apart)


@dataclass(frozen=True, slots=True)
class Place:
    """One iteration of one line, with the manifests of the stages that it made itself. `pruned`: columns of
    it, or of what it took over, were emptied."""

    run: str
    branch: str
    iteration: int
    origin: str
    manifests: tuple[Manifest, ...]
    pruned: bool = False

    @property
    def folder(self) -> str:
        return f"{self.run}{f'/branch={self.branch}' if self.branch else ''}/iteration={self.iteration:05d}"

    @property
    def replay(self) -> Replay:
        """Find what is made anew: of a branch that took the stages before from its origin, the ones from its first
        on; of any other line, everything."""
        stages = sorted((one["stage"] for one in self.manifests if one["stage"] not in APART), key=ORDER.index)
        if not self.branch or stages[:1] in ([], ["tasks"]):
            return Replay(self.branch, "tasks", "replay")
        return Replay(self.origin, stages[0], "replay")

    def of(self, stage: str) -> list[Manifest]:
        return [one for one in self.manifests if one["stage"] == stage]

    def sees(self, one: Manifest) -> bool:
        """Tell whether a stage is of this iteration: made in it, or taken over from its origin."""
        is_before = ORDER.index(one["stage"]) < ORDER.index(self.replay.from_stage)
        lines = (self.branch, *([self.replay.source_branch] if is_before else []))
        return one["iteration"] == self.iteration and one["branch"] in lines


class Lines:
    """The sound stages of a run."""

    def __init__(self, store: Store, run: str) -> None:
        self.store, self.run, self.contents = store, run, load_manifests(store, [run])
        self.origins = find_origins(self.contents)

    def places(self, pruned: bool = False) -> Iterator[Place]:
        """Yield the iterations of each line, in their order, without the pruned ones; or these alone."""
        emptied = pruned_iterations(self.contents)
        by_place: dict[tuple[str, int], list[Manifest]] = {}
        for one in self.contents:
            if (folder_of(one) in emptied) == pruned:
                by_place.setdefault((one["branch"], one["iteration"]), []).append(one)
        for (branch, iteration), mine in sorted(by_place.items()):
            yield Place(self.run, branch, iteration, self.origins.get((self.run, branch), ""), tuple(mine), pruned)

    def place(self, key: StageKey) -> Place | None:
        """Return the iteration that a stage belongs to; None where it was pruned."""
        places = (place for place in self.places() if (place.branch, place.iteration) == (key.branch, key.iteration))
        return next(places, None)

    def config(self, branch: str, iteration: int) -> Config | None:
        """Load the settings that the iteration was run with; None where none are stored, as in the oldest stores."""
        try:
            return load_config(self.store, self.run, branch, iteration)
        except StoreError:
            return None

    @cached_property
    def updates(self) -> dict[tuple[str, int], Written]:
        """Read what each update wrote, by line and iteration."""
        return {
            (one["branch"], one["iteration"]): read_update(self.store, manifests.reference(one))
            for one in self.contents
            if one["stage"] == "updates"
        }

    @cached_property
    def start(self) -> str:
        """Find the digest of the policy that the run began with: what sampled its first bases."""
        first_stages = sorted(
            (one["iteration"], one["branch"], one["policy"])
            for one in self.contents
            if one["stage"] == "base" or (one["stage"] == "evaluations" and one["iteration"] == -1)
        )
        return first_stages[0][2] if first_stages else ""

    def latest(self, branch: str, before: int) -> Written | None:
        """Find what the newest update before an iteration wrote, of the line or else of the run."""
        for line in dict.fromkeys((branch, "")):
            iterations = [iteration for own, iteration in self.updates if own == line and iteration < before]
            if iterations:
                return self.updates[line, max(iterations)]
        return None

    def policies(self, place: Place, config: Config) -> Policies:
        """Find the policies of an iteration, as `r3l.pipeline.policies.find` does, by their digests alone."""
        line = place.replay.source_branch
        newest = self.latest(line, place.iteration)
        behaviour = self.latest(line, config.training.sampled_before(place.iteration))
        start = snapshot(self.start)
        return Policies(
            start,
            snapshot(newest.policy) if newest else start,
            snapshot(behaviour.policy) if behaviour else start,
            None,
            None,
            steps=newest.step if newest else 0,
            optimiser=newest.optimiser if newest else "",
        )


def key_of_manifest(manifest: Manifest) -> StageKey:
    return manifests.reference(manifest).key
