"""Why a token was trained with its weight: the history of a trajectory, from its task to the optimiser step."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from r3l.errors import StoreError
from r3l.store.arithmetic import FACTS, steps
from r3l.store.catalog import connect
from r3l.store.query import query
from r3l.store.stage import Store

Row = dict[str, Any]
LINE = "SELECT * FROM lines.genealogy WHERE branch = $branch AND trajectory_id = $id"
NEAR = "SELECT trajectory_id FROM lines.trajectories WHERE branch = ? ORDER BY levenshtein(trajectory_id, ?) LIMIT 3"
TURNS = """
SELECT t.turn, t.action, t.valid, t.observation, t.response, t.response_ids, t.response_logprobs,
len(t.context_ids) AS context_tokens
FROM lines.turns t
WHERE t.branch = $branch AND (t.trajectory_id = $id OR (t.trajectory_id = $parent AND t.turn < $kept)) ORDER BY t.turn
"""
FROM_HERE = """
SELECT f.reflection_id, f.status, f.outcome, f.pivot_turn, f.decision, p.retry_id, p.retry_reward, p.gain,
p.distilled_id
FROM lines.reflections f LEFT JOIN lines.pivots p USING (run, branch, iteration, reflection_id)
WHERE f.branch = $branch AND f.trajectory_id = $id ORDER BY f.reflection_id
"""


@dataclass(frozen=True, slots=True)
class Story:
    """The answer of `why`: `line` is the trajectory's row of the view `genealogy`."""

    line: Row
    # turn, action, tokens, weight (of each of its tokens; 0: masked or not trained), advantage,
    # loss_weight = weight x advantage
    turns: list[Row]
    offspring: list[Row]  # reflections on it, and the retries they led to
    tokens: list[Row]  # of the turn that was asked for: token, id, logprob, weight
    facts: Row  # what its arithmetic is made of

    def __str__(self) -> str:
        return "\n".join(story_lines(self))


def why(store: Store, run: str, trajectory_id: str, branch: str = "", turn: int | None = None) -> Story:
    """Tell the story of a trajectory, with the tokens of one turn of it if asked.

    Raises StoreError for a trajectory or turn that isn't stored.
    """
    with connect(store, [run], at=iteration_of(trajectory_id)) as connection:
        place = {"branch": branch, "id": trajectory_id}
        lines = query(connection, LINE, place).to_pylist()
        if not lines:
            raise unknown(store, run, branch, trajectory_id)
        line = lines[0]
        turns = read_turns(connection, line)
        offspring = query(connection, FROM_HERE, place).to_pylist()
        place = {name: line[name] for name in ("run", "branch", "iteration")} | {"source": trajectory_id}
        (facts,) = query(connection, FACTS, place).to_pylist()
    if turn is not None and turn not in {row["turn"] for row in turns}:
        raise StoreError(
            f"{trajectory_id}: no turn {turn}; it has {', '.join(str(row['turn']) for row in turns) or 'no turns'}"
        )
    asked = [token for row in turns if row["turn"] == turn for token in tokens(row)]
    return Story(line, turns, offspring, asked, facts)


def iteration_of(trajectory_id: str) -> int | None:
    """Find the iteration that an id begins with; None where it begins otherwise."""
    match = re.match(r"iteration=(-?\d{1,9})/", trajectory_id)
    return int(match[1]) if match else None


def unknown(store: Store, run: str, branch: str, trajectory_id: str) -> StoreError:
    """Say that the line has no such trajectory, and which ids of the whole line are closest."""
    with connect(store, [run], question=NEAR) as connection:
        others = [row["trajectory_id"] for row in query(connection, NEAR, [branch, trajectory_id]).to_pylist()]
    return StoreError(
        f"{trajectory_id}: not in run {run}{' branch ' + branch if branch else ''}; the closest are "
        f"{', '.join(others) or 'none'}"
    )


def read_turns(connection: duckdb.DuckDBPyConnection, line: Row) -> list[Row]:
    """Read the turns with their weights, as the training row has them; all weights 0 where there is no row."""
    place = {"branch": line["branch"], "id": line["trajectory_id"]}
    turns_kept = line["pivot_turn"] if line["kind"] in ("retry", "continuation") else 0
    turns: list[Row] = query(
        connection, TURNS, place | {"parent": line["parent_id"] or "", "kept": turns_kept or 0}
    ).to_pylist()
    row = query(
        connection,
        "SELECT weights, advantages FROM lines.training_rows WHERE branch = $branch AND source_id = $id",
        place,
    ).to_pylist()
    weights = row[0]["weights"] if row else []
    advantages = (row[0]["advantages"] if row else None) or [line["row_advantage"] or 0.0] * len(weights)
    if len(weights) < sum(turn["context_tokens"] + len(turn["response_ids"]) for turn in turns):
        turns = [turn for turn in turns if turn["turn"] >= (turns_kept or 0)]
    position = 0
    for turn in turns:
        position += turn["context_tokens"]
        own = weights[position : position + len(turn["response_ids"])] or [0.0] * len(turn["response_ids"])
        advantage = advantages[position] if position < len(advantages) else 0.0
        position += len(own)
        turn |= {
            "weights": own,
            "weight": max(own, default=0.0),
            "advantage": advantage,
            "loss_weight": max(own, default=0.0) * advantage,
        }
    return turns


def tokens(turn: Row) -> list[Row]:
    """List one row per sampled token of a turn."""
    return [
        {"token": index, "id": id_, "logprob": logprob, "weight": weight}
        for index, (id_, logprob, weight) in enumerate(
            zip(turn["response_ids"], turn["response_logprobs"], turn["weights"], strict=True)
        )
    ]


def story_lines(story: Story) -> Iterator[str]:
    """Yield the story in lines of text."""
    line = story.line
    yield (
        f"{line['trajectory_id']}  {line['kind']} of run "
        f"{line['run']}{' branch ' + line['branch'] if line['branch'] else ''}"
    )
    task = f"{as_line(line['task_id'])} ({as_line(line['task_type'])})"
    yield f"  task         {line['environment']}/{line['split']} {task}"
    yield (
        f"  came to      {line['status']}, reward {line['reward']:g} after {line['turns']} turns, sampled by "
        f"policy {line['sampled_by']}"
    )
    if line["kind"] == "continuation":
        yield (
            f"  base         {line['base_id']}, reward {line['base_reward']:g}; played on from its turn "
            f"{line['pivot_turn']}"
        )
    elif line["base_id"] != line["trajectory_id"]:
        yield f"  base         {line['base_id']}, reward {line['base_reward']:g}"
        yield f"  reflection   {line['reflection_id']}: {line['outcome']}, asks for turn {line['pivot_asked']}"
        yield f"  guidance     {guide_of(line['guidance'], line['hint_level'], line['guided_by'])}"
        yield from (f"               {as_line(text)}" for text in (line["root_cause"], line["suggestion"]) if text)
        yield (
            f"  pivot        {line['pivot_turn']} turns kept of {line['parent_id']}, {line['shared_turns']} shared "
            "with the base"
        )
        yield f"  retry        {line['retry_id']}, distilled into {line['distilled_id'] or 'nothing'}"
    yield from credit_lines(line)
    yield from (f"  {'' if number else 'arithmetic':<12} {step}" for number, step in enumerate(steps(story.facts)))
    yield from (f"  led to       {offspring_line(row)}" for row in story.offspring)
    yield from turn_lines(story.turns)
    for t in story.tokens:
        yield f"      token {t['token']:>4}  id {t['id']:>7}  logprob {t['logprob']:8.4f}  weight {t['weight']:.6g}"


def guide_of(source: str, level: int | None, policy: str) -> str:
    """Say who wrote the guidance, in words."""
    return {
        "policy": "written by the policy itself",
        "teacher": f"written by teacher {as_line(policy)}",
        "oracle": "the environment's oracle",
        "hint": f"hint of level {level}",
    }.get(source, as_line(source))


def credit_lines(line: Row) -> Iterator[str]:
    if line["rule"]:
        own = "; its turns have their own" if line["turn_advantages"] is not None else ""
        yield f"  credit       {line['rule']}: advantage {line['advantage']:+.4g}{own}"
    if line["row_id"]:
        term = f"{line['term']} term, coefficient {line['coefficient']:g}, by {line['reduction']}"
        yield (
            f"  row          {line['row_id']}: {line['objective']} as {line['role']}, {term}; "
            f"{line['trained_tokens']} tokens with weight"
        )
    if line["events"]:
        yield f"  events       {as_line(line['events'])}"
    if line["row_id"] and line["step"] is not None:
        yield (
            f"  step         {line['step']}: {line['parent_policy']} -> {line['written_policy']} in "
            f"{line['written_path']}"
        )


def offspring_line(row: Row) -> str:
    reflection = f"{row['reflection_id']}: {row['outcome'] or row['status']}"
    if row["retry_id"] is None:
        return f"{reflection}; no retry: {as_line(row['decision']).removeprefix('no retry: ')}"
    came_to = f"reward {row['retry_reward']:g} ({row['gain']:+g})"
    return f"{reflection}; retried from turn {row['pivot_turn']}, {came_to}, {row['distilled_id'] or 'not distilled'}"


def turn_lines(turns: Sequence[Row]) -> Iterator[str]:
    for turn in turns:
        weight = weight_of(turn) if turn["weight"] else "no weight"
        nothing = "(no text is told)" if turn["valid"] else "(invalid reply)"
        yield f"    turn {turn['turn']:>3}  {as_line(turn['action']) or nothing:<40.40}  {weight}"


def weight_of(turn: Row) -> str:
    """Write, for example, ``weight 0.25 x 12 tokens, w·A +0.75``: each token's weight times the advantage, whose sign
    says whether it is made likelier or less likely."""
    text_so_far = f"weight {turn['weight']:.6g} x {len(turn['response_ids'])} tokens"
    return f"{text_so_far}, w·A {turn['loss_weight']:+.4g}" if turn["loss_weight"] else text_so_far


def as_line(text: str) -> str:
    """Put text of a model or a world on one line and without control characters, so that it cannot control a
    terminal."""
    line = "".join(character if character.isprintable() else " " for character in text)
    return line if len(line) <= 300 else f"{line[:299]}…"
