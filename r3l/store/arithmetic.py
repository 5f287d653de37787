"""How an advantage and a weight came about: each quantity of a source with its numbers, and the settings that chose
them.

A step is shown in numbers only where they give the value that is stored; a rule of a method's own has its value alone.
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

FACTS = """
SELECT w.term, w.reduction, w.coefficient, w.advantage AS row_advantage, w.trained_tokens,
       list_max(w.weights) AS weight, w.advantages IS NOT NULL AS by_turn, t.sampled_tokens,
       c.reward::DOUBLE - c.penalty AS reward, c.penalty, c.group_mean, c.group_std, c.scaled, c.rule,
       c.advantage, c.mask_turn, g.group_size, u.groups, u.tokens_rl, u.tokens_sft,
       (SELECT any_value(settings -> '$.method') FROM lines.stages
        WHERE (run, branch, iteration) = ($run, $branch, $iteration) AND stage = 'credit') AS method
FROM (SELECT $source AS source) s
LEFT JOIN lines.training_rows w ON (w.run, w.branch, w.iteration, w.source_id) = ($run, $branch, $iteration, source)
LEFT JOIN lines.credit c ON (c.run, c.branch, c.iteration, c.trajectory_id) = ($run, $branch, $iteration, source)
LEFT JOIN (SELECT group_id, any_value(group_size) AS group_size FROM lines.credit
           WHERE (run, branch, iteration) = ($run, $branch, $iteration) GROUP BY group_id) g
    ON g.group_id = coalesce(c.group_id, w.group_id)
LEFT JOIN (SELECT sum(len(response_ids)) AS sampled_tokens FROM lines.turns
           WHERE (run, branch, trajectory_id) = ($run, $branch, $source)) t ON true
LEFT JOIN (SELECT any_value(groups) AS groups, any_value(tokens_rl) AS tokens_rl, any_value(tokens_sft) AS tokens_sft
           FROM lines.updates WHERE (run, branch, iteration) = ($run, $branch, $iteration)
           HAVING count(*) = 1) u ON true -- of several steps each divides by what its own minibatch has
ORDER BY w.role = 'replay' LIMIT 1
"""


@dataclass(frozen=True, slots=True)
class Step:
    """One quantity: what it is called, how its numbers make it, its value, and what chose them."""

    name: str
    numbers: str
    value: str
    why: str

    def __str__(self) -> str:
        made = " = ".join(filter(None, (self.name, self.numbers, self.value)))
        return f"{made}   {self.why}".rstrip()


def steps(facts: Mapping[str, Any]) -> list[Step]:
    """Return the steps from the reward to the token's share of the loss, as far as the source came; `facts` is the row
    of FACTS."""
    method = json.loads(facts["method"] or "{}")
    found = [scaling_step(facts, method), amplification_step(facts, method)] if facts["rule"] is not None else []
    return [*found, *(of_the_row(facts, method) if facts["weight"] else ())]


def scaling_step(facts: Mapping[str, Any], method: Mapping[str, Any]) -> Step:
    """A: the reward against its group (paper, Eq. 5)."""
    value, reward, mean, std = (facts[name] for name in ("scaled", "reward", "group_mean", "group_std"))
    why = f"method.scale = {method.get('scale')}, group of {facts['group_size']}"
    if facts["penalty"]:
        why += f"; R = {reward + facts['penalty']:.4g} − {facts['penalty']:.4g} for its length"
    if facts["penalty"] and not value and method.get("outcome_gate"):
        return Step("A", "", "0", "no attempt of the group solved its task: method.outcome_gate")
    if not value and (facts["group_size"] == 1 or not std):
        return Step("A", "", "0", "all rewards of the group are equal" if facts["group_size"] > 1 else "alone")
    if method.get("scale") == "std" and close(value, (reward - mean) / (std + 1e-6)):
        return Step("A", f"(R − mean) / (std + 1e-6) = ({reward:.4g} − {mean:.4g}) / {std:.4g}", f"{value:+.4g}", why)
    if close(value, reward - mean):
        return Step("A", f"R − mean = {reward:.4g} − {mean:.4g}", f"{value:+.4g}", why)
    return Step("A", "", f"{value:+.4g}", as_method(method))


def as_method(method: Mapping[str, Any]) -> str:
    """Say whose rule gave a value; of a run that was imported nobody knows."""
    return f"as method {method['kind']} has it" if "kind" in method else "as it was stored"


def amplification_step(facts: Mapping[str, Any], method: Mapping[str, Any]) -> Step:
    """Â: the advantage after amplification (paper, Eq. 8)."""
    value, before, rule = facts["advantage"], facts["scaled"], facts["rule"]
    alpha, top_value = method.get("alpha", math.nan), method.get("top_value")
    if rule == "top" and close(value, alpha if top_value is None else top_value):
        name = "alpha" if top_value is None else "top_value"
        why = f"rule top: method.{name} in place of A, by method.top_rule = {method.get('top_rule')}"
        return Step("Â", name, f"{value:+.4g}", why)
    if rule == "positive" and alpha != 1 and close(value, alpha * before):
        return Step("Â", f"alpha × A = {alpha:g} × {before:.4g}", f"{value:+.4g}", "rule positive: method.alpha")
    if close(value, before):
        return Step("Â", "A", f"{value:+.4g}", f"rule {rule}: not amplified")
    return Step("Â", "", f"{value:+.4g}", f"rule {rule}, {as_method(method)}")


def of_the_row(facts: Mapping[str, Any], method: Mapping[str, Any]) -> Iterator[Step]:
    """Yield w, then w·Â, then the share of the loss."""
    weight, advantage = facts["weight"], facts["row_advantage"]
    yield Step("w", *normalisation(facts, method))
    if facts["by_turn"]:
        yield Step("w·Â", "w × Â of its turn", "", "each turn has its own Â")
        return
    pull = weight * advantage
    direction = "likelier" if pull > 0 else "less likely" if pull < 0 else "neither likelier nor less likely"
    yield Step("w·Â", f"{weight:.4g} × {advantage:.4g}", f"{pull:+.4g}", f"each trained token is made {direction}")
    divisor, name = {
        "groups": (facts["groups"], "groups"),
        "tokens": (facts[f"tokens_{facts['term']}"], "tokens"),
        "sum": (1, "1"),
    }[facts["reduction"]]
    if divisor:
        numbers = f"coefficient × w·Â / {name} = {facts['coefficient']:g} × {pull:.4g} / {divisor}"
        setting = "sft_weight" if facts["term"] == "sft" else "loss_factor"
        value = f"{facts['coefficient'] * pull / divisor:+.4g}"
        yield Step("in the loss", numbers, value, f"coefficient of the {facts['term']} term: method.{setting}")


def normalisation(facts: Mapping[str, Any], method: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return the numbers, the value and the reason of a trained token's weight."""
    weight, size, sft = facts["weight"], facts["group_size"] or 1, facts["term"] == "sft"
    trained, sampled = facts["trained_tokens"], facts["sampled_tokens"] or 0
    name = "sft_reduction" if sft else "loss_normalisation"
    why = f"method.{name} = {method.get(name)}"
    if facts["mask_turn"]:
        why += f"; turns before {facts['mask_turn']} have w = 0: method.pivot_mask = {method.get('pivot_mask')}"
    lengths = {
        f"its {sampled} sampled tokens, {trained} of them trained": sampled,
        f"its {trained} trained tokens": trained,
        "method.loss_tokens": method.get("loss_tokens", 0),
    }
    for meaning, length in lengths.items():
        if length and close(weight, 1 / (length * size)):
            return f"1 / (|τ| G) = 1 / ({length} × {size})", f"{weight:.4g}", f"{why}; |τ|: {meaning}, G: its group"
    return "", f"{weight:.4g}", why


def close(value: float, other: float) -> bool:
    """Return whether two numbers are the same to the digits that a column of 32 bits keeps."""
    return math.isclose(value, other, rel_tol=1e-5, abs_tol=1e-9)
