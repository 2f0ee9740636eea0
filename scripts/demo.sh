#!/usr/bin/env bash
# A fresh environment, an install without test tools, one real plan, and where its figures come from.
set -euo pipefail
cd "$(dirname "$0")/.."
rm -rf .venv-demo
"${PYTHON:-python3}" -m venv .venv-demo
.venv-demo/bin/python -m pip install --quiet --disable-pip-version-check .
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
meshwright() {
    echo
    echo "\$ meshwright $*"
    "$OLDPWD/.venv-demo/bin/meshwright" "$@"
}
meshwright plan llama-3.1-70b --gpu H100:8 --nodes 8 --seq-len 8192 --global-batch 4Mtok --write plan.toml
meshwright predict plan.toml
meshwright explain plan.toml memory --depth 2
