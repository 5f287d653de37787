#!/usr/bin/env bash
# What a Prefect server of one's own is given: the work pool, the deployments, two concurrency limits, two automations. Again: the same, once.
# R3L_ENGINE_SLOTS: shards that sample at once, over all runs (8). R3L_GPU_SLOTS: updates at once (1). Needs PREFECT_API_URL.
set -euo pipefail
cd "$(dirname "$0")/.."
: "${PREFECT_API_URL:?set it to the address of the server, e.g. export PREFECT_API_URL=http://127.0.0.1:4200/api}"
PREFECT="${VENV:-.venv}/bin/prefect --no-prompt"

limit() {
  $PREFECT global-concurrency-limit update "$1" --limit "$2" >/dev/null 2>&1 || $PREFECT global-concurrency-limit create "$1" --limit "$2"
}

$PREFECT work-pool create r3l --type process --overwrite
$PREFECT deploy --all
limit r3l-engine "${R3L_ENGINE_SLOTS:-8}"
limit r3l-gpu "${R3L_GPU_SLOTS:-1}"
for name in "r3l crashed runs" "r3l hung runs"; do $PREFECT automation delete "$name" >/dev/null 2>&1 || true; done
$PREFECT automation create --from-file infra/prefect-automations.yaml
