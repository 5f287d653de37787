"""Winning commands read off a game's own facts: knows nothing of how the game was made or of any player."""

from typing import Any

DEVICES = {"heat": "microwave", "cool": "fridge", "clean": "sinkbasin"}


class Facts:
    """The engine's facts by name, with the names that a player sees."""

    def __init__(self, engine: Any) -> None:
        self.names = {key: info.name.strip() for key, info in engine.core._entity_infos.items()}
        self.facts: dict[str, list[tuple[str, ...]]] = {}
        for fact in engine.core._pddl_state.facts:
            self.facts.setdefault(fact.name, []).append(tuple(argument.name for argument in fact.arguments))

    def of(self, name: str) -> list[tuple[str, ...]]:
        return self.facts.get(name, [])

    def receptacles(self, kind: str) -> list[str]:
        return [key for key, of_type in self.of("receptacletype") if of_type == f"{kind}type"]

    def objects(self, kind: str) -> list[str]:
        return [key for key, of_type in self.of("objecttype") if of_type == f"{kind}type"]

    def holder(self, thing: str) -> str:
        return next(receptacle for item, receptacle in self.of("inreceptacle") if item == thing)

    def approach(self, receptacle: str) -> list[str]:
        closed = (receptacle,) in self.of("openable")
        return [f"go to {self.names[receptacle]}", *([f"open {self.names[receptacle]}"] if closed else [])]

    def fetch(self, thing: str) -> list[str]:
        return [*self.approach(self.holder(thing)), f"take {self.names[thing]} from {self.names[self.holder(thing)]}"]


def winning_actions(engine: Any, trajectory: dict[str, Any], treat: bool = True) -> list[str]:
    facts, params = Facts(engine), trajectory["pddl_params"]
    targets = facts.objects(params["object_target"].lower())
    if trajectory["task_type"] == "look_at_obj_in_light":
        lamp = facts.objects("desklamp")[0]
        return [*facts.fetch(targets[0]), *facts.approach(facts.holder(lamp)), f"use {facts.names[lamp]}"]
    verb = next((verb for verb in DEVICES if f"_{verb}_" in trajectory["task_type"]), "")
    parent = facts.receptacles(params["parent_target"].lower())[0]
    actions: list[str] = []
    for target in targets[:2] if "two" in trajectory["task_type"] else targets[:1]:
        actions += facts.fetch(target)
        if verb and treat:
            device = facts.receptacles(DEVICES[verb])[0]
            actions += [*facts.approach(device), f"{verb} {facts.names[target]} with {facts.names[device]}"]
        actions += [*facts.approach(parent), f"move {facts.names[target]} to {facts.names[parent]}"]
    return actions
