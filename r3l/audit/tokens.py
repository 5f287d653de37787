"""A training row token by token, in text by the tokenizer of the trained policy, and what its credit was made of."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from tokenizers import Tokenizer

from r3l.audit.attempts import find, group, panes, readings, shade_scales
from r3l.audit.lines import Line, line_settings
from r3l.audit.reader import Reader, Row
from r3l.audit.weights import Piece, ShadeScale
from r3l.errors import StoreError
from r3l.store.arithmetic import FACTS, Step, steps
from r3l.store.layout import line_folder
from r3l.system.home import locate

SIZE = 400
ROW = """
SELECT t.* EXCLUDE (run, branch, shard, token_ids, weights, logprobs, advantages),
       len(t.token_ids) AS tokens, list_sum(t.weights) AS weight_sum
FROM lines.training_rows t
WHERE t.run = $run AND t.branch = $branch AND t.iteration = $iteration AND t.source_id = $source
ORDER BY t.role = 'replay', t.row_id LIMIT 1
"""
TOKENS = """
WITH scored AS (
    SELECT logprobs, entropies, teacher_logprobs FROM lines.training_scores
    WHERE run = $run AND branch = $branch AND iteration = $iteration AND row_id = $row
),
tokens AS (
    SELECT unnest(range(len(token_ids))) AS place, unnest(token_ids) AS id, unnest(weights) AS weight,
           unnest(logprobs) AS logprob, coalesce(unnest(advantages), advantage) AS advantage
    FROM lines.training_rows WHERE run = $run AND branch = $branch AND iteration = $iteration AND row_id = $row
),
ranked AS (
    SELECT *, CASE WHEN weight <> 0 THEN count(*) FILTER (weight <> 0) OVER (ORDER BY place) END AS nth FROM tokens
)
SELECT ranked.*, logprobs[nth] AS trainer, entropies[nth] AS entropy, teacher_logprobs[nth] AS teacher
FROM ranked LEFT JOIN scored ON true
WHERE $every OR weight <> 0 ORDER BY place LIMIT $size OFFSET $offset
"""
FILE = "tokenizer.json"
LARGEST = 64_000_000  # bytes; the largest vocabularies in use take about 20 MB


@dataclass(frozen=True, slots=True)
class TokenPage:
    """The row without its lists, its arithmetic, and one page of its tokens: those with weight, or every one.

    `texts`: what each id on the page reads as; empty with the reason `untold` where no tokenizer is at hand. `behind`:
    places whose log-probability the row has not, as they were sampled behind guidance, and the turn has.
    """

    row: Row
    arithmetic: list[Step]
    tokens: list[Row]
    page: int
    every: bool
    scale: ShadeScale
    texts: dict[int, str]
    untold: str
    behind: dict[int, float]

    @property
    def last(self) -> int:
        return max(0, (int(self.row["tokens" if self.every else "trained_tokens"]) - 1) // SIZE)

    @property
    def runs(self) -> list[list[Row]]:
        """Split the page into runs of adjacent tokens."""
        split: list[list[Row]] = []
        for token in self.tokens:
            if not split or token["place"] != split[-1][-1]["place"] + 1:
                split.append([])
            split[-1].append(token)
        return split

    def has(self, score: str) -> bool:
        """Tell whether the update stored a score of these tokens: trainer, entropy or teacher."""
        return any(token[score] is not None for token in self.tokens)

    def difference(self, token: Row) -> float | None:
        """Compute by how many nats the trainer finds the token likelier than the engine that sampled it."""
        engine = self.logprob(token)
        return None if engine is None or token["trainer"] is None else token["trainer"] - engine

    def logprob(self, token: Row) -> float | None:
        """Find the log-probability under the policy that sampled the token; None if the token was not sampled."""
        logprob = token["logprob"]
        if logprob is not None and math.isnan(logprob):
            return self.behind.get(token["place"])
        return logprob or None


def token_page(reader: Reader, line: Line, iteration: int, source: str, page: int, every: bool) -> TokenPage:
    """Read one page of tokens. Raise StoreError where the source was not trained on."""
    place = {"run": line.run, "branch": line.branch, "iteration": iteration}
    rows = reader.rows(ROW, {**place, "source": source})
    if not rows:
        raise StoreError(f"{source}: no training row of {line} was made from it; the account says why")
    span = {"size": SIZE, "offset": SIZE * page, "every": every, "row": rows[0]["row_id"]}
    tokens = reader.rows(TOKENS, {**place, **span})
    scale = shade_scales(reader, line, iteration).get(rows[0]["term"], ShadeScale(0.0))
    try:
        read = decoder(reader, line)
        texts, untold = {token["id"]: read(token["id"]) for token in tokens}, ""
    except StoreError as error:
        texts, untold = {}, str(error)
    unknown = any(token["logprob"] is not None and math.isnan(token["logprob"]) for token in tokens)
    behind = sampled_logprobs(reader, line, source) if unknown else {}
    arithmetic = steps(reader.rows(FACTS, {**place, "source": source})[0])
    return TokenPage(rows[0], arithmetic, tokens, page, every, scale, texts, untold, behind)


def sampled_logprobs(reader: Reader, line: Line, source: str) -> dict[int, float]:
    """Map a place in the row to its log-probability, as the turns of its trajectory have them."""
    where = find(reader, line, source)
    if where is None or where.trajectory_id != source:
        return {}
    whole = group(reader, line, where.iteration, where.group_id)
    attempt = whole.attempt(source)
    shown_panes = panes(reader, whole, attempt)
    training_row = shown_panes.trained.get(source)
    for reading in readings(source, attempt, shown_panes.turns) if training_row else ():
        ids = [token for piece in reading for token in (*piece.context_ids, *piece.response_ids)]
        if training_row is not None and ids == training_row.row["token_ids"]:
            return laid_out(reading, source, shown_panes.turns)
    return {}


def laid_out(reading: Sequence[Piece], source: str, turns: dict[str, dict[int, Row]]) -> dict[int, float]:
    widths: dict[int, float] = {}
    place = 0
    for piece in reading:
        place += len(piece.context_ids)
        turn = turns[source].get(piece.turn)
        if turn is not None:
            widths |= {place + k: value for k, value in enumerate(turn["response_logprobs"])}
        place += len(piece.response_ids)
    return widths


def decoder(reader: Reader, line: Line) -> Callable[[int], str]:
    """Make what a token id reads as. Raise StoreError, with the reason, where no tokenizer is at hand."""
    content = next(tokenizer_files(reader, line), None)
    if content is None or len(content) > LARGEST:
        raise StoreError(f"{line}: its store has no policy with a {FILE}, and neither has the path of its settings")
    tokenizer = parse_tokenizer(content)
    return lambda id_: tokenizer.decode([id_], skip_special_tokens=False) or tokenizer.id_to_token(id_) or f"⟨{id_}⟩"


def tokenizer_files(reader: Reader, line: Line) -> Iterator[bytes]:
    """Yield those of the policies that the line or its run wrote, the newest first; then that of the starting
    policy."""
    files = reader.store.files
    for folder in dict.fromkeys((line_folder(line.run, line.branch), line.run)):
        for name in sorted(files.folders(f"{folder}/policies"), reverse=True):
            if (content := files.read(f"{folder}/policies/{name}/policy/{FILE}")) is not None:
                yield content
    settings = line_settings(reader, line)
    start = locate(str(settings.get("policy.path", "no policy"))) / FILE
    if start.is_file():
        yield start.read_bytes()


@lru_cache(maxsize=2)
def parse_tokenizer(content: bytes) -> Tokenizer:
    try:
        return Tokenizer.from_buffer(content)
    except Exception as error:
        raise StoreError(f"{FILE} of the policy can't be read: {error}") from error
