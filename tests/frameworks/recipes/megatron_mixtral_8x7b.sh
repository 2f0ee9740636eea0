#!/bin/bash
# Mixtral 8x7B, 8 nodes x 8 H100, pp 4 and ep 8:
# examples/mixtral/train_mixtral_8x7b_distributed.sh (Megatron-LM, 2026-08).
export CUDA_DEVICE_MAX_CONNECTIONS=1
ARGS="
  --use-mcore-models --disable-bias-linear --seq-length 4096 --max-position-embeddings 32768
  --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32
  --group-query-attention --num-query-groups 8 --normalization RMSNorm --swiglu
  --position-embedding-type rope --rotary-base 1000000 --untie-embeddings-and-output-weights
  --attention-dropout 0.0 --hidden-dropout 0.0
  --num-experts 8 --moe-router-topk 2 --moe-router-load-balancing-type aux_loss
  --moe-aux-loss-coeff 1e-2 --moe-grouped-gemm --moe-token-dispatcher-type alltoall
  --tokenizer-type NullTokenizer --vocab-size 32000 --mock-data
  --micro-batch-size 1 --global-batch-size 256 --lr 1e-4 --min-lr 1.0e-5 --train-iters 500000
  --lr-decay-style cosine --weight-decay 0.1 --clip-grad 1.0 --bf16
  --tensor-model-parallel-size 1 --pipeline-model-parallel-size 4
  --expert-model-parallel-size 8 --use-distributed-optimizer
  --overlap-grad-reduce --overlap-param-gather
  --log-interval 1 --save-interval 10000 --eval-interval 1000 --eval-iters 10
"
torchrun --nproc_per_node 8 --nnodes 8 --node_rank ${RANK:-0} pretrain_gpt.py $ARGS
