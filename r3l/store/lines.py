"""Which stages each branch sees: its own, and the earlier ones of the line that it was forked from."""

from collections.abc import Sequence

from r3l.stages import STAGES
from r3l.store.manifest import Manifest

ORDER = {stage: place for place, stage in enumerate(STAGES)}


def list_inherited(manifests: Sequence[Manifest]) -> list[tuple[str, Manifest]]:
    """List (branch, manifest of another line that it sees). In an iteration that a branch takes up, it sees of its
    origin the stages before its own first one; an origin may itself be a branch."""
    origins = find_origins(manifests)
    own: dict[tuple[str, str, int], list[Manifest]] = {}
    for manifest in manifests:
        own.setdefault((manifest["run"], manifest["branch"], manifest["iteration"]), []).append(manifest)

    def seen(run: str, branch: str, iteration: int) -> list[Manifest]:
        mine = own.get((run, branch, iteration), [])
        first = min((ORDER[manifest["stage"]] for manifest in mine), default=len(ORDER))
        above = seen(run, origins[run, branch], iteration) if branch else []
        return mine + [manifest for manifest in above if ORDER[manifest["stage"]] < first]

    return [
        (branch, manifest)
        for run, branch, iteration in own
        if branch
        for manifest in seen(run, branch, iteration)
        if manifest["branch"] != branch
    ]


def find_origins(manifests: Sequence[Manifest]) -> dict[tuple[str, str], str]:
    """Map (run, branch) to the branch that it was forked from: the one whose stages its own first stages were made
    from."""
    origins: dict[tuple[str, str], str] = {}
    for manifest in manifests:
        place = (manifest["run"], manifest["branch"])
        origins.setdefault(place, "")
        for parent in manifest["parents"]:
            if parent["branch"] != manifest["branch"] and not leads_to(
                origins, manifest["run"], parent["branch"], manifest["branch"]
            ):
                origins[place] = origins[place] or parent["branch"]
    return origins


def leads_to(origins: dict[tuple[str, str], str], run: str, branch: str, target: str) -> bool:
    """Tell whether `target` is an origin of `branch`. A cycle means damage: no fork makes one."""
    while branch:
        if branch == target:
            return True
        branch = origins.get((run, branch), "")
    return False
