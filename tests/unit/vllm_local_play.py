"""Run by vLLM's own Python: what `vllm_local` says with each of some policies, one loaded after the other, as JSON on
the last line."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from r3l.config.engines import VllmLocalSettings
from r3l.config.sections import PolicySettings
from r3l.engines.base import PolicySnapshot, Sampling
from r3l.engines.canary import check_canary
from r3l.engines.vllm.local import VllmLocal
from r3l.errors import EngineError


def said(engine: VllmLocal, prompt: list[int]) -> dict[str, Any]:
    for one in [engine.complete(f"many={k}", [*prompt, *[5 + k] * 100], Sampling(1.0, 4, k, ())) for k in range(40)]:
        one.result()  # together more than a step takes: a prompt that were cut in pieces would end the engine
    greedy = engine.complete("greedy", prompt, Sampling(0.0, 12, 0, ())).result()
    again = [engine.complete("seeded", prompt, Sampling(1.0, 12, 7, ())).result().token_ids for _ in range(2)]
    return {
        "ids": greedy.token_ids,
        "logprobs": greedy.logprobs,
        "finish": greedy.finish_reason,
        "scores": engine.score(prompt),
        "again": again,
    }


def refusal(engine: VllmLocal, canary: str) -> str:
    """What the canary says of the policy that the engine runs; nothing where it passes."""
    try:
        check_canary(engine, Path(canary), "float32")
    except EngineError as error:
        return str(error)
    return ""


def main() -> None:
    request = json.loads(sys.argv[1])
    policy_settings = PolicySettings(adapter="lora", dtype="float32", context_tokens=256)
    engine = VllmLocal(VllmLocalSettings(memory_share=request["memory_share"]), policy_settings)
    found = []
    for policy in request["policies"]:
        engine.load_policy(PolicySnapshot(**policy))
        found.append(said(engine, request["prompt"]))
    refusals = []
    for update in request["updates"]:
        for planted in update["planted"]:
            engine.load_policy(PolicySnapshot(**planted))
            refusals.append(refusal(engine, update["canary"]))
    long = engine.complete("long", [5] * 256, Sampling(0.0, 4, 0, ())).result()
    engine.close()
    print("\n" + json.dumps({"policies": found, "long": long.finish_reason, "refusals": refusals}))


if __name__ == "__main__":
    main()
