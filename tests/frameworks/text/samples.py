"""Files of every syntax, as people write them, for the tests of reading and editing."""

from __future__ import annotations

SAMPLES = {
    "array.sh": r"""#!/bin/bash
# trains on 2 nodes
export NCCL_ALGO=Ring
TP=8
SHARED=4
DISTRIBUTED_ARGS=(
    --nproc_per_node 8
    --nnodes 2
)
MODEL_ARGS=(
    --num-layers 32  # blocks
    --tensor-model-parallel-size $TP
    --pipeline-model-parallel-size ${SHARED}
    --context-parallel-size $SHARED
    --fsdp "full_shard auto_wrap"
    --hierarchical-context-parallel-sizes 2 4
    --swiglu
)
torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py "${MODEL_ARGS[@]}"
""",
    "continued.sh": r"""set -x
GBS=$((4 * 16))
OPTIONS="--lr 1e-4 --min-lr 1e-5 \
    --weight-decay 0.1"
python train.py \
    --micro-batch-size 1 --global-batch-size $GBS \
    --name='a b' \
    $OPTIONS \
    --bf16 \
    --save-interval=100
echo done
""",
    "bare.txt": "--num-layers 16\n--hidden-size 64 --swiglu\n# a remark\n--lr 0.1\n",
    "hydra.sh": r"""python -m verl.trainer.main_ppo \
    data.train_batch_size=1024 \
    +actor.extra=2 \
    'model.path=a b' \
    trainer.nnodes=1 $@
""",
    "overrides.txt": "a.b=1\na.c=x\n# why\nd.e=0.5\n",
    "ds.json": """{
  // by hand
  "train_batch_size": 8,
  "fp16": {"enabled": true, "loss_scale": 0},
  "zero_optimization": {
    "stage": 3, # all
    "offload_param": {"device": "cpu"}
  }
}
""",
    "plain.json": '{"a": 1, "b": {"c": [1, 2], "d": "x"}, "e": {}}',
    "titan.toml": """# titan
title = "x" # why

[training]
seq_len = 8192  # long
degrees = [1, 2]
inner = { a = 1, b = "c" }

[parallelism]
tp = 8
""",
    "hf.yaml": """### model
model: &m
  hidden_size: 4096 # wide
  name: 'a b'
parallel: {dp: 1, tp: 2}
data:
  - path: x
    weight: 0.5
list: [1, 2]
on: true
""",
    "recipe.py": """from titan import Trainer, Training

def recipe():
    config = Trainer.Config(
        training=Training(seq_len=2048, steps=10),
        name="x",
    )
    config.parallelism.tp = 8  # fast
    config.training.seq_len = 4096
    return config
""",
    "plain.py": """SEQ = 2048
parallel = dict(zero1=8, tensor=1)
data = dict(seq_len=4096, micro_num=4)
""",
}
