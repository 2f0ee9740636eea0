#!/bin/bash
# Llama-3 70B pretraining, 8 nodes x 8 H100. tp 4, pp 4, vpp 5, cp 2, 512 sequences of 8192:
# nemo/collections/llm/recipes/llama3_70b.py (NeMo 2.5); flags as in
# examples/llama/train_llama3_8b_h100_fp8.sh (Megatron-LM, 2026-08).
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS_PER_NODE=8
NNODES=8
TP=4
PP=4
MODEL=(
  --num-layers 80 --hidden-size 8192 --ffn-hidden-size 28672
  --num-attention-heads 64 --group-query-attention --num-query-groups 8
  --seq-length 8192 --max-position-embeddings 8192
  --position-embedding-type rope --rotary-base 500000
  --swiglu --normalization RMSNorm --disable-bias-linear
  --untie-embeddings-and-output-weights
  --attention-dropout 0.0 --hidden-dropout 0.0
  --vocab-size 128256 --tokenizer-type NullTokenizer
)
PARALLEL=(
  --tensor-model-parallel-size $TP --sequence-parallel
  --pipeline-model-parallel-size $PP --num-layers-per-virtual-pipeline-stage 4
  --context-parallel-size 2
  --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather
)
TRAIN=(
  --micro-batch-size 1 --global-batch-size 512 --train-iters 1168251
  --bf16 --lr 3e-4 --min-lr 3e-5 --lr-decay-style cosine --clip-grad 1.0 --weight-decay 0.1
  --adam-beta1 0.9 --adam-beta2 0.95 --use-mcore-models --attention-backend fused
  --cross-entropy-loss-fusion --manual-gc
  --save-interval 2000 --log-interval 10 --eval-iters 32 --eval-interval 2000
  --distributed-timeout-minutes 60 --mock-data --num-workers 1
)
torchrun --nproc_per_node $GPUS_PER_NODE --nnodes $NNODES --node_rank ${NODE_RANK:-0} \
  --master_addr ${MASTER_ADDR:-localhost} --master_port 29500 \
  pretrain_gpt.py "${MODEL[@]}" "${PARALLEL[@]}" "${TRAIN[@]}"
