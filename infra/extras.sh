#!/usr/bin/env bash
# The tests that `make test` skips for want of an extra: in an environment of its own, $VENV, that has every extra, and with a Java runtime.
# What is skipped still is listed in the end, with its reason.
set -euo pipefail
cd "$(dirname "$0")/.."
export VENV="${VENV:-.venv-extras}"
if ! command -v java >/dev/null; then
  { apt-get update -qq && apt-get install -y -qq default-jre-headless; } || echo "no Java can be installed here: tests of ScienceWorld are skipped"
fi
# alfworld is left out: `make test` has it, and its engine takes minutes to compile. Verifiers wants another version of mcp than
# MCP servers do: each has an environment of its own.
apart() {  # EXTRA TESTS
  python3 -m venv "$VENV-$1"
  "$VENV-$1/bin/python" -m pip install --quiet -e ".[$1,dev]"
  "$VENV-$1/bin/python" -m pytest -m 'slow or not slow' -n 2 --timeout 600 -rs "$2"
}
apart mcp tests/unit/test_tool_servers.py
apart verifiers tests/unit/test_verifiers_tasksets.py
R3L_EXTRAS="$(sed -n '/^\[project.optional-dependencies\]/,/^\[/s/^\([a-z0-9]*\) = .*/\1/p' pyproject.toml | grep -vxE "alfworld|mcp|verifiers" | paste -sd,)"
export R3L_EXTRAS
bash infra/setup.sh
exec "$VENV/bin/python" -m pytest -n 2 --dist loadfile --timeout 600 -rs "$@" \
  tests/flows/test_ray.py tests/unit/test_warm_start_gguf.py tests/unit/test_gymnasium_world.py tests/unit/test_notebook.py \
  tests/unit/test_prepare.py tests/unit/test_scienceworld.py tests/unit/test_scienceworld_oracle.py \
  tests/unit/test_trackers.py \
  tests/unit/test_warm_start_adapter.py tests/unit/test_won_and_lost.py
