#!/usr/bin/env bash
# The tests that `make test` skips for want of an extra: in an environment of its own, $VENV, that has every extra, and with a Java runtime.
# What is skipped still is listed in the end, with its reason.
set -euo pipefail
cd "$(dirname "$0")/.."
export VENV="${VENV:-.venv-extras}"
if ! command -v java >/dev/null; then
  { apt-get update -qq && apt-get install -y -qq default-jre-headless; } || echo "no Java can be installed here: tests of ScienceWorld are skipped"
fi
# alfworld is left out: `make test` has it, and its engine takes minutes to compile. The constraints have verifiers 0.3, which
# wants the first major version of mcp, and 0.4 wants 2.0.0: 0.4 and MCP servers have an environment each.
apart() {  # NAME EXTRA TESTS [PACKAGE]
  python3 -m venv "$VENV-$1"
  "$VENV-$1/bin/python" -m pip install --quiet -e ".[$2,dev]" ${4:+"$4"}
  "$VENV-$1/bin/python" -m pytest -m 'slow or not slow' -n 2 --timeout 600 -rs "$3"
}
apart mcp mcp tests/unit/test_tool_servers.py
apart verifiers verifiers tests/unit/test_verifiers_tasksets.py 'verifiers>=0.4'
R3L_EXTRAS="$(sed -n '/^\[project.optional-dependencies\]/,/^\[/s/^\([a-z0-9]*\) = .*/\1/p' pyproject.toml | grep -vx alfworld | grep -vx mcp | paste -sd,)"
export R3L_EXTRAS
bash infra/setup.sh
exec "$VENV/bin/python" -m pytest -n 2 --dist loadfile --timeout 600 -rs "$@" \
  tests/flows/test_ray.py tests/unit/test_engine_gguf_policy.py tests/unit/test_gymnasium_world.py tests/unit/test_notebook.py \
  tests/unit/test_prepare.py tests/unit/test_scienceworld.py tests/unit/test_scienceworld_oracle.py \
  tests/unit/test_trackers.py \
  tests/unit/test_verifiers_world.py tests/unit/test_warm_start_adapter.py tests/unit/test_won_and_lost.py
