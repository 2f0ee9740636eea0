#!/usr/bin/env bash
# demo_train.sh [BIN]: this machine measured, a tiny Qwen3 planned for it, the repository's text made
# into shards, 50 steps of training, one rank killed half-way; ends with the prediction beside what
# was measured, and fails when the loss has not fallen. A fresh environment is installed first, or
# the one whose programs are in the folder BIN is used.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=${1:-$PWD/.venv-demo-train/bin}
if [ $# -eq 0 ]; then
    rm -rf .venv-demo-train
    "${PYTHON:-python3}" -m venv .venv-demo-train
    "$bin/python" -m pip install --quiet --disable-pip-version-check '.[train,data]'
fi
folder=$(mktemp -d)
training=
trap '[ -z "$training" ] || kill "$training"; rm -rf "$folder"' EXIT
cp examples/train/qwen3-2m.json examples/data/{raw.jsonl,tokenizer.json} "$folder"
cd "$folder"
meshwright() {
    echo
    echo "\$ meshwright $*"
    "$bin/meshwright" "$@"
}
steps=50
meshwright calibrate --quick -o this-machine.toml
meshwright plan qwen3-2m.json --cluster this-machine.toml --seq-len 256 --global-batch 16 --precision fp32 --top 3 --write plan.toml
meshwright data build raw.jsonl --id-field id --tokenizer tokenizer.json --seq-len 256 --bad-fraction 0.05 -o shards/ --quiet
meshwright train plan.toml --data shards/ --steps $steps --out runs/a --device cpu --lr 3e-3 --warmup 5 --checkpoint-every 5 --log-every 5 &
training=$!
"$bin/python" - runs/a $((steps / 2)) "$training" <<'END'
import os, signal, sys, time
from pathlib import Path

from meshwright.train.telling.metrics import read_metrics
from meshwright.train.watch.heart import beats_in

run, step, training = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
while len(read_metrics(run / "metrics.jsonl")) < step:
    os.kill(training, 0)  # fails when the run has ended
    time.sleep(0.02)
last = max(beats_in(run / "logs" / "beats").items())
print(f"\n$ kill -9 {last[1].pid}    # rank {last[0]}, in step {last[1].step}", flush=True)
os.kill(last[1].pid, signal.SIGKILL)
END
wait "$training"
training=
"$bin/python" - runs/a $steps <<'END'
import json, statistics, sys
from pathlib import Path

from meshwright.train.telling.metrics import read_metrics

run, steps = Path(sys.argv[1]), int(sys.argv[2])
told = read_metrics(run / "metrics.jsonl")
losses = [step["loss"] for step in told]
first, last = statistics.mean(losses[:5]), statistics.mean(losses[-5:])
print(f"\nloss {first:.2f} -> {last:.2f}, means of 5 steps; attempts {told[-1]['attempt'] + 1}")
if [step["step"] for step in told] != list(range(1, steps + 1)):
    sys.exit("a step is missing or there twice")
if told[-1]["attempt"] == 0:
    sys.exit("no rank was lost")
if last > first - 1:
    sys.exit("the loss has not fallen")
END
