"""A scripted player for the guessing game that learns: between halving what is left and guessing at random it chooses
by what the trained policy thinks of the two. It is an engine of r3l, since an engine is what writes replies."""

import json
import math
import random
import re
from concurrent.futures import Future

from r3l.config.engines import TransformersLocalSettings
from r3l.engines.base import Completion
from r3l.engines.chat_format import ChatFormat
from r3l.engines.embedded.engine import TransformersLocal

TOLD = re.compile(r"<action>(\d+)</action>.*?(Too low|Too high)", re.DOTALL)
REPORT = json.dumps(
    {
        "trajectory_summary": "s",
        "root_cause_analysis": "c",
        "trajectory_outcome": "failure",
        "improvement_suggestion": "halve what is left",
        "retry_from_step": 0,
    }
)


class Player(TransformersLocal):
    Settings = TransformersLocalSettings

    def load_policy(self, snapshot):
        super().load_policy(snapshot)
        self.chat = ChatFormat.load(snapshot.path)

    def complete(self, request_id, prompt_ids, sampling):
        prompt, chance = self.chat.text(prompt_ids), random.Random(sampling.seed)
        low, high = 0, int(re.search(r"from 0 to (\d+)", prompt + "from 0 to 0")[1])
        for guess, said in TOLD.findall(prompt):
            low, high = (int(guess) + 1, high) if said == "Too low" else (low, int(guess) - 1)
        guesses = {"half": (low + high) // 2, "luck": chance.randint(0, 15)}
        texts = [f"<think>{how}</think> <action>{guess}</action>" for how, guess in guesses.items()]
        texts = [REPORT] if "reflection" in request_id else texts[:1] if "previous attempt" in prompt else texts
        scored = [self.scored(list(prompt_ids), text) for text in texts]
        weights = [math.exp(sum(logprobs) - max(sum(one[1]) for one in scored)) for _, logprobs in scored]
        ids, logprobs = chance.choices(scored, weights)[0]
        future: Future = Future()
        future.set_result(Completion(ids, logprobs, "stop"))
        return future

    def scored(self, prompt_ids, text):
        ids = [*self.chat.tokenizer.encode(text, add_special_tokens=False), *self.chat.stop_ids]
        return ids, self.score([*prompt_ids, *ids])[len(prompt_ids) - 1 :]
