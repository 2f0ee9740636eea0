#!/bin/bash
# RL of Qwen3 4B on 8 GPUs: scripts/run-qwen3-4B.sh and scripts/models/qwen3-4B.sh (slime, 2026-08),
# with one sequence a micro-batch instead of batches by tokens.
MODEL_ARGS=(
   --swiglu --num-layers 36 --hidden-size 2560 --ffn-hidden-size 9728
   --num-attention-heads 32 --group-query-attention --num-query-groups 8
   --use-rotary-position-embeddings --disable-bias-linear --normalization RMSNorm
   --rotary-base 1000000 --vocab-size 151936 --kv-channels 128 --qk-layernorm
)
PERF_ARGS=(
   --tensor-model-parallel-size 2 --sequence-parallel
   --pipeline-model-parallel-size 1 --context-parallel-size 1
   --recompute-granularity full --recompute-method uniform --recompute-num-layers 1
   --micro-batch-size 1 --seq-length 9216
)
ray job submit --address="http://127.0.0.1:8265" \
   -- python3 train.py \
   --actor-num-nodes 1 --actor-num-gpus-per-node 8 --colocate \
   "${MODEL_ARGS[@]}" "${PERF_ARGS[@]}" \
   --save-interval 20 --rollout-batch-size 32 --n-samples-per-prompt 8 --global-batch-size 256 \
   --rollout-max-response-len 8192 --optimizer adam --lr 1e-6 --weight-decay 0.1 \
   --accumulate-allreduce-grads-in-fp32 --attention-backend flash \
   --rollout-num-gpus-per-engine 2 --advantage-estimator grpo
