"""Replies constrained to a JSON schema by llguidance: the allowed next tokens, computed as the reply grows."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import torch
from torch import Tensor

from r3l.engines.base import with_blanks
from r3l.errors import EngineError
from r3l.system.packages import import_package


class Grammars:
    """The vocabulary of one policy, prepared once (about a second); makes the constraint of each request."""

    def __init__(self, policy_path: str, vocabulary: int) -> None:
        self.library = import_package("llguidance", "structured", EngineError)
        import_package("llguidance.hf", "structured", EngineError)
        from transformers import AutoTokenizer

        self.policy_path = policy_path
        self.vocabulary = vocabulary
        self._base = AutoTokenizer.from_pretrained(policy_path, trust_remote_code=False)
        self._by_stop: dict[tuple[int, ...], Any] = {}

    def constraint(self, schema: dict[str, Any], stop_ids: tuple[int, ...]) -> Constraint:
        """Make the constraint of one reply. Raise `EngineError` where the schema can't be compiled."""
        if stop_ids not in self._by_stop:
            try:
                self._by_stop[stop_ids] = self.library.hf.from_tokenizer(
                    self._base, self.vocabulary, eos_token=list(stop_ids)
                )
            except ValueError as error:
                raise EngineError(
                    f"the tokenizer of {self.policy_path} can't be constrained to a JSON schema: {error}"
                ) from error
        grammar = self.library.LLMatcher.grammar_from_json_schema(json.dumps(with_blanks(schema)))
        return Constraint(self.library.LLMatcher(self._by_stop[stop_ids], grammar), self.vocabulary)


class Constraint:
    """Where one reply stands in its grammar. After the whole JSON only a stop token is allowed."""

    def __init__(self, matcher: Any, vocabulary: int) -> None:
        self.matcher = matcher
        self.vocabulary = vocabulary
        self._refuse_broken()

    def allowed(self) -> Tensor:
        """Mark where the next token may be: (V,) true."""
        bits = np.zeros((self.vocabulary + 31) // 32, dtype=np.int32)
        self.matcher.unsafe_compute_mask_ptr(bits.ctypes.data, bits.nbytes)
        self._refuse_broken()
        return torch.from_numpy(np.unpackbits(bits.view(np.uint8), bitorder="little")[: self.vocabulary].astype(bool))

    def take(self, token: int) -> None:
        self.matcher.consume_token(token)

    def _refuse_broken(self) -> None:
        if self.matcher.is_error():
            raise EngineError(f"this JSON schema can't constrain a reply: {self.matcher.get_error()}")
