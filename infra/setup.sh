#!/usr/bin/env bash
# Make the environment that flows and the update job run in: $VENV with the exact versions of infra/constraints/.
set -euo pipefail
cd "$(dirname "$0")/.."
VENV="${VENV:-.venv}"
CONSTRAINTS=infra/constraints/python311.txt
EXTRAS="${R3L_EXTRAS:-trainer,alfworld,math,webshop,structured,trackers,cluster,experiments,dev}"

missing() { printf 'r3l: %s is missing: %s\n' "$1" "$2" >&2; exit 1; }

PYTHON="${PYTHON:-}"
if [ -z "$PYTHON" ]; then
  for candidate in python3.11 python3.12 python3.13 python3; do
    if command -v "$candidate" >/dev/null && "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then PYTHON="$candidate"; break; fi
  done
fi
[ -n "$PYTHON" ] || missing "Python 3.11 or newer" "install it (Debian: apt install python3.11 python3.11-venv), or set PYTHON=/path/to/python"
case ",$EXTRAS," in *,alfworld,*)
  command -v g++ >/dev/null || missing "a C++ compiler (the ALFWorld engine is compiled on installation)" "Debian: apt install g++; macOS: xcode-select --install"
  command -v make >/dev/null || missing "make" "Debian: apt install make; macOS: xcode-select --install" ;;
esac

say() { printf '\033[1m%s\033[0m\n' "$*"; }
started=$SECONDS
say "[1/3] virtual environment $VENV ($("$PYTHON" --version))"
[ -x "$VENV/bin/python" ] || "$PYTHON" -m venv "$VENV" || missing "the venv module" "Debian: apt install python3-venv"

# uv where it is at hand or can be had: seconds instead of minutes. It does not read pip's find-links.
[ -z "${PIP_FIND_LINKS:-}" ] || export UV_FIND_LINKS="$PIP_FIND_LINKS"
export UV_LINK_MODE="${UV_LINK_MODE:-copy}"
# Where another set-up builds the same package, uv waits for it without a word and gives up after 300 s: too soon for ALFWorld's planner.
export UV_LOCK_TIMEOUT="${UV_LOCK_TIMEOUT:-3600}"
if command -v uv >/dev/null; then UV=uv
elif "$VENV/bin/python" -m pip install --quiet uv; then UV="$VENV/bin/uv"
else UV=""; fi
install() {
  if [ -n "$UV" ]; then "$UV" pip install --compile-bytecode --python "$VENV/bin/python" "$@"; else "$VENV/bin/python" -m pip install "$@"; fi
}
# Without a GPU the CPU build of torch is enough; where wheels are given by find-links they decide.
if [ -n "$UV" ] && [ -z "${PIP_FIND_LINKS:-}" ] && ! command -v nvidia-smi >/dev/null; then export UV_TORCH_BACKEND="${UV_TORCH_BACKEND:-cpu}"; fi
case ",$EXTRAS," in *,trainer,*)
  say "[2/3] torch, before anything that would choose another build of it"
  install "$(grep '^torch==' "$CONSTRAINTS")" ;;
*) say "[2/3] no torch: extras are $EXTRAS" ;; esac
say "[3/3] r3l with extras $EXTRAS (the ALFWorld engine is compiled the first time: about two minutes)"
[ -z "$UV" ] || say "      where another set-up is compiling it, this one waits for it, up to $UV_LOCK_TIMEOUT s (UV_LOCK_TIMEOUT)"
install -c "$CONSTRAINTS" -e ".[$EXTRAS]"
say "ready after $((SECONDS - started)) s"
