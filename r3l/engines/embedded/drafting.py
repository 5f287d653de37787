"""Guesses of the next tokens, from what was sampled before: agents repeat themselves.

A guess is fed together with the token before it, so one step can yield several tokens. It changes no reply: each token
is still drawn from its own distribution with its own uniform number, and what follows a wrong guess is thrown away.
"""

from collections.abc import Sequence

ORDER = 4  # tokens that a guess looks back at
LENGTH = 6  # tokens guessed at most
MEMORY = 200_000  # entries
SHY = 0.4  # share of right guesses under which only those seen often are made
OFTEN = 3


class Drafts:
    """Which token last followed each run of `ORDER` tokens, in the replies of all requests."""

    def __init__(self) -> None:
        self.following: dict[tuple[int, ...], tuple[int, int]] = {}  # token, how often in a row
        self.guessed = 0
        self.right = 0
        self._recent = 1.0  # share of right guesses, lately

    def guess(self, before: Sequence[int], limit: int) -> list[int]:
        """Guess up to `limit` tokens after `before` (its last ORDER tokens)."""
        tokens = list(before[-ORDER:])
        sightings_needed = 1 if self._recent >= SHY else OFTEN
        for _ in range(min(LENGTH, limit)):
            token, sightings = self.following.get(tuple(tokens[-ORDER:]), (0, 0))
            if sightings < sightings_needed:
                break
            tokens.append(token)
        return tokens[len(before[-ORDER:]) :]

    def learn(self, before: Sequence[int], sampled: Sequence[int], guessed: int, right: int) -> None:
        """Learn that `sampled` followed `before`, and that of `guessed` tokens `right` ones were drawn."""
        # forgetting all at once is cheaper than keeping an order of use, and the phrases in use are back in a few
        # replies
        if len(self.following) > MEMORY:
            self.following.clear()
        tokens = [*before[-ORDER:], *sampled]
        for place in range(len(tokens) - len(sampled), len(tokens)):
            if place >= ORDER:
                key = tuple(tokens[place - ORDER : place])
                token, sightings = self.following.get(key, (tokens[place], 0))
                self.following[key] = (token, sightings + 1) if token == tokens[place] else (tokens[place], 1)
        if guessed:
            self.guessed += guessed
            self.right += right
            self._recent += 0.02 * (right / guessed - self._recent)
