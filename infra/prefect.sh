#!/usr/bin/env bash
# What a Prefect server of one's own is given: the work pool, the deployments, two concurrency limits, two automations. Again: the same, once.
# R3L_FORKS=0: leave the start of flow runs to Prefect, where a worker on another host has no Python at the path of this one.
# R3L_ENGINE_SLOTS: shards that sample at once, over all runs (8). R3L_GPU_SLOTS: updates at once (1). Needs PREFECT_API_URL.
# Where updates and shards run elsewhere: R3L_UPDATE_POOL and R3L_SHARD_POOL, pools of their own. On a cluster: R3L_POOL_TEMPLATE and
# R3L_UPDATE_POOL_TEMPLATE, job templates of infra/k8s; R3L_UPDATE_VARIABLES, what updates need, as JSON; R3L_REGISTRY, ends with a slash.
set -euo pipefail
cd "$(dirname "$0")/.."
: "${PREFECT_API_URL:?set it to the address of the server, e.g. export PREFECT_API_URL=http://127.0.0.1:4200/api}"
BIN="${VENV:-.venv}/bin"
PREFECT="$BIN/prefect --no-prompt"

limit() {
  $PREFECT global-concurrency-limit update "$1" --limit "$2" >/dev/null 2>&1 || $PREFECT global-concurrency-limit create "$1" --limit "$2"
}

pool() {  # NAME [TEMPLATE]: of processes, or with a template of Kubernetes jobs
  if [ -z "${2:-}" ]; then $PREFECT work-pool create "$1" --type process --overwrite; return; fi
  local filled; filled="$(mktemp)"
  sed "s#\"r3l-\(flows\|trainer\):#\"${R3L_REGISTRY:-}r3l-\1:#" "$2" > "$filled"
  $PREFECT work-pool create "$1" --type kubernetes --base-job-template "$filled" --overwrite
  rm "$filled"
}

forking_pool() {  # NAME: of processes that flows/serving/flow_run.py starts
  local filled; filled="$(mktemp)"
  $PREFECT work-pool get-default-base-job-template --type process | "$BIN/python" -c 'if True:
    import json, shlex, sys
    template = json.load(sys.stdin)
    command = shlex.join([sys.executable, "-P", "-m", "flows.serving.flow_run"])
    template["variables"]["properties"]["command"]["default"] = command
    json.dump(template, sys.stdout)' > "$filled"
  $PREFECT work-pool create "$1" --type process --base-job-template "$filled" --overwrite
  rm "$filled"
}

if [ -z "${R3L_POOL_TEMPLATE:-}" ] && [ "${R3L_FORKS:-1}" != 0 ]; then forking_pool r3l; else pool r3l "${R3L_POOL_TEMPLATE:-}"; fi
# What has a pool of its own is not sent to this one first: in between a worker of it would take an update.
$PREFECT deploy $(sed -n 's/^- name: /--name /p' prefect.yaml | grep -vx -e "--name ${R3L_UPDATE_POOL:+update}" -e "--name ${R3L_SHARD_POOL:+shard}")
if [ -n "${R3L_UPDATE_POOL:-}" ]; then
  pool "$R3L_UPDATE_POOL" "${R3L_UPDATE_POOL_TEMPLATE:-}"
  $PREFECT deploy --name update --pool "$R3L_UPDATE_POOL" ${R3L_UPDATE_VARIABLES:+--job-variable "$R3L_UPDATE_VARIABLES"}
fi
if [ -n "${R3L_SHARD_POOL:-}" ]; then
  pool "$R3L_SHARD_POOL"
  $PREFECT deploy --name shard --pool "$R3L_SHARD_POOL"
fi
limit r3l-engine "${R3L_ENGINE_SLOTS:-8}"
limit r3l-gpu "${R3L_GPU_SLOTS:-1}"
for name in "r3l crashed runs" "r3l hung runs"; do $PREFECT automation delete "$name" >/dev/null 2>&1 || true; done
$PREFECT automation create --from-file infra/prefect-automations.yaml
