#!/usr/bin/env bash
# Serve a policy with vLLM, for engine.kind=vllm_server.
# Usage: infra/engine/serve.sh POLICY [PORT] [further options of vLLM, e.g. --tensor-parallel-size 2]
#   POLICY  a folder that the servers see under the same path as the trainer does, or a hub name
#   ENGINE_ENV (default .venv-vllm), CONTEXT (default 20480), HOST (default 127.0.0.1),
#   LORA_RANK (default 16; 8, 16, 32, 64 ...; 0: no adapters),
#   R3L_ENGINE_KEY (a key, asked for on every route but /health), VLLM_CPU_KVCACHE_SPACE (GB on a CPU),
#   ENGINE_PYTHON (the interpreter, where vLLM is not in an environment of its own: in its image)
set -euo pipefail
policy="${1:?usage: infra/engine/serve.sh POLICY [PORT] [options]}"
port="${2:-8000}"
context="${CONTEXT:-20480}"
python="${ENGINE_PYTHON:-${ENGINE_ENV:-.venv-vllm}/bin/python}"
shift $(( $# > 2 ? 2 : $# ))
options=(--model "$policy" --host "${HOST:-127.0.0.1}" --port "$port" --max-model-len "$context"
         --enable-prefix-caching --enable-prompt-tokens-details --generation-config vllm --logprobs-mode raw_logprobs
         --structured-outputs-config.backend guidance)  # the backend that can be told where blanks go
if "$python" -c 'import importlib.metadata as m; m.version("vllm-cpu")' >/dev/null 2>&1; then
  # Prompts whole, never in pieces: after a piece vLLM rewinds a seeded request's generator, which no CPU generator can do, and ends.
  options+=(--no-enable-chunked-prefill --max-num-batched-tokens "$context")
fi
rank="${LORA_RANK:-16}"
if [ "$rank" -gt 0 ]; then
  options+=(--enable-lora --max-loras 2 --max-lora-rank "$rank")  # 2: the next adapter is loaded before the last one goes
fi
if [ -n "${R3L_ENGINE_KEY:-}" ]; then
  export VLLM_API_KEY="$R3L_ENGINE_KEY"  # by the environment: a key on the command line is seen by every user
  here="$(cd "$(dirname "$0")" && pwd)"
  export PYTHONPATH="$here${PYTHONPATH:+:$PYTHONPATH}"
  options+=(--middleware require_key.RequireKey)
else
  case "${HOST:-127.0.0.1}" in 127.*|localhost|::1) ;; *)
    echo "serve.sh: HOST=$HOST is not loopback, and whoever reaches the server can load weights into it: set R3L_ENGINE_KEY" >&2
    exit 2 ;;
  esac
fi
export VLLM_SERVER_DEV_MODE=1 VLLM_ALLOW_RUNTIME_LORA_UPDATING=1
export VLLM_CPU_NUM_OF_RESERVED_CPU="${VLLM_CPU_NUM_OF_RESERVED_CPU:-0}" VLLM_CPU_KVCACHE_SPACE="${VLLM_CPU_KVCACHE_SPACE:-1}"
exec "$python" -m vllm.entrypoints.openai.api_server "${options[@]}" "$@"
