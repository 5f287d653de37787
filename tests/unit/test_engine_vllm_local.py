"""vLLM in one process with its caller, run by vLLM's own Python: policies after one another, held against transformers,
and planted ones that the canary has to catch."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.unit.engine_canaries import updated_adapter, updated_weights
from tests.unit.engine_policies import plain_logprobs, plain_model
from tests.unit.test_engine_reuse import adapter_on
from tests.unit.test_engine_vllm_real import ENVIRONMENT, PROMPT, ROOT, served_policy

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        not (ENVIRONMENT / "bin/python").exists(), reason="no vLLM environment: infra/engine/install.sh"
    ),
]


def test_policies_loaded_one_after_the_other_answer_as_transformers_does_and_planted_ones_are_caught(
    tmp_path: Path,
) -> None:
    policies = [served_policy(tmp_path / "start", 0), served_policy(tmp_path / "later", 1)]
    adapter, whole = updated_adapter(policies[0], tmp_path), updated_weights(policies[0], tmp_path / "whole")
    others = (adapter_on(policies[0], tmp_path / "other", 2).path, policies[1].path)
    updates = [
        {
            "canary": str(update.canary),
            "planted": [asdict(update.planted(path)) for path in (update.before.path, other, update.after.path)],
        }
        for update, other in zip((adapter, whole), others, strict=True)
    ]
    request = {
        "policies": [asdict(policy) for policy in policies],
        "prompt": PROMPT,
        "memory_share": 0.1,
        "updates": updates,
    }
    done = subprocess.run(
        [str(ENVIRONMENT / "bin/python"), "-m", "tests.unit.vllm_local_play", json.dumps(request)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=1700,
        env={**os.environ, "PYTHONPATH": str(ROOT), "VLLM_CPU_KVCACHE_SPACE": "1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answered = json.loads(done.stdout.splitlines()[-1])
    assert answered["long"] == "context"
    assert answered["policies"][0]["ids"] != answered["policies"][1]["ids"]
    for policy, said in zip(policies, answered["policies"], strict=True):
        expected = plain_logprobs(plain_model(policy), [*PROMPT, *said["ids"]]).tolist()
        assert said["finish"] == "length"
        assert said["scores"] == pytest.approx(expected[: len(PROMPT) - 1], abs=5e-3)
        assert said["logprobs"] == pytest.approx(expected[len(PROMPT) - 1 :], abs=5e-3)
        assert said["again"][0] == said["again"][1]
    for stale, wrong, new in (answered["refusals"][:3], answered["refusals"][3:]):
        assert "the policy from before the last update" in stale
        assert "does not run the policy" in wrong
        assert new == ""
