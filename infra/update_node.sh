#!/usr/bin/env bash
# One node of an update: the first runs what Prefect asked for, the others join it (infra/k8s/base/templates/update.json).
set -euo pipefail
if [ "${PET_NODE_RANK:-0}" = 0 ]; then exec "$@"; fi
exec python -m r3l.training.parallel.nodes
