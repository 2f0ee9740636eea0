#!/usr/bin/env bash
# A fresh environment, an install without test tools, one real plan, where its figures come from, and
# its launch script: written, broken, checked; then a small corpus made into shards, and looked into.
set -euo pipefail
cd "$(dirname "$0")/.."
rm -rf .venv-demo
"${PYTHON:-python3}" -m venv .venv-demo
.venv-demo/bin/python -m pip install --quiet --disable-pip-version-check '.[data]'
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
meshwright plan llama-3.1-70b --gpu H100:8 --nodes 8 --seq-len 8192 --global-batch 4Mtok --pin schedule=1f1b --top 1 --write megatron.toml
meshwright convert megatron.toml --to megatron-lm -o train.sh
sed -i.bak 's/--tensor-model-parallel-size [0-9]*/--tensor-model-parallel-size 3/' train.sh
meshwright check train.sh --gpus H100:8 || test $? -eq 1  # findings
cp "$OLDPWD"/examples/data/{raw.jsonl,tokenizer.json} .
meshwright data build raw.jsonl --id-field id --tokenizer tokenizer.json --seq-len 512 --pack best-fit --near-dedup --bad-fraction 0.05 -o shards/
meshwright data stats shards/
meshwright data verify shards/
meshwright data show shards/ --row 3
