#!/usr/bin/env bash
# Serve a policy with vLLM, for engine.kind=vllm_server: r3l/engines/vllm/launch/serve.py says what it understands.
# Usage: infra/engine/serve.sh POLICY [PORT] [further options of vLLM, e.g. --tensor-parallel-size 2]
#   ENGINE_ENV (default .venv-vllm), ENGINE_PYTHON (the interpreter, where vLLM is not in an environment of its own: in its image)
set -euo pipefail
: "${1:?usage: infra/engine/serve.sh POLICY [PORT] [options]}"
here="$(cd "$(dirname "$0")" && pwd)"
exec "${ENGINE_PYTHON:-${ENGINE_ENV:-.venv-vllm}/bin/python}" "$here/../../r3l/engines/vllm/launch/serve.py" "$@"
