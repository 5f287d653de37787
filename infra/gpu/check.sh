#!/usr/bin/env bash
# What a machine with CUDA, torch and transformers, and perhaps without a network, does with r3l, in eight minutes at most.
#   infra/gpu/check.sh pack FOLDER [VERSION]     here, with a package index: what such a machine lacks, for its Python (3.12), below 64 MiB
#   infra/gpu/check.sh run FOLDER OUT.json       there, in the repository's root: nothing is installed; --toy: small shapes, also on a CPU
# PYTHON: the interpreter there that has torch. PACKAGES: those that it lacks, where that is known. `pack` keeps a package a folder, and `run` uses those that are not there.
set -euo pipefail
cd "$(dirname "$0")/../.."
PYTHON="${PYTHON:-python3}"
PACKAGES="${PACKAGES:-pyarrow duckdb peft pydantic pydantic-core annotated-types typing-inspection obstore fsspec psutil httpx jinja2 typer rich markdown-it-py mdurl pygments shellingham pytest pluggy iniconfig accelerate}"
LEFT_OUT="pyarrow/include pyarrow/tests pyarrow/libarrow_flight* pyarrow/libarrow_python_flight* pyarrow/_flight* pyarrow/libarrow_s3* pyarrow/_s3fs*"

pack() {  # FOLDER [VERSION]
  local folder="$1" version="${2:-3.12}" work wheel name
  work="$(mktemp -d)"; trap 'rm -rf "$work"' RETURN
  mkdir -p "$folder" "$work/packages"
  for name in $PACKAGES; do
    "$PYTHON" -m pip download --quiet --no-deps --only-binary=:all: --python-version "$version" --implementation cp \
      --platform manylinux_2_28_x86_64 --platform manylinux2014_x86_64 --platform manylinux_2_17_x86_64 \
      --constraint infra/constraints/python311.txt --dest "$work/$name" "$name"
    wheel="$(ls "$work/$name"/*.whl)"
    mkdir "$work/packages/$name"; "$PYTHON" -m zipfile -e "$wheel" "$work/packages/$name"
  done
  [ ! -d "$work/packages/pyarrow" ] || for name in $LEFT_OUT; do (cd "$work/packages/pyarrow" && rm -rf $name); done
  XZ_OPT="-3 -T0" tar -C "$work" -cJf "$folder/packages.tar.xz" packages
  du -h "$folder/packages.tar.xz"
  [ "$(stat -c %s "$folder/packages.tar.xz")" -lt $((64 * 1024 * 1024)) ] || { echo "above 64 MiB" >&2; exit 1; }
}

run() {  # FOLDER OUT.json [--toy]
  local folder="$1" out="$2" name module path=""; shift 2
  work="$(mktemp -d)"; trap 'rm -rf "$work"' EXIT
  tar -C "$work" -xJf "$folder/packages.tar.xz"
  for name in $PACKAGES; do
    case "$name" in markdown-it-py) module=markdown_it ;; *) module="${name//-/_}" ;; esac
    "$PYTHON" -c "import importlib.util, sys; sys.exit(importlib.util.find_spec('$module') is None)" || path="$path:$work/packages/$name"
  done
  echo "taken from $folder: $(echo "$path" | tr : '\n' | sed 's#.*/##' | xargs)"
  PYTHONPATH="$PWD$path" R3L_CACHE="$work/cache" timeout 480 "$PYTHON" -m tests.benchmarks.gpu_check --out "$out" "$@"
}

case "${1:-}" in
  pack) shift; pack "$@" ;;
  run) shift; run "$@" ;;
  *) sed -n 2,5p "$0"; exit 2 ;;
esac
