#!/bin/bash
# Llama-3 8B in FP8 on one node of H100, data parallel only:
# examples/llama/train_llama3_8b_h100_fp8.sh (Megatron-LM, 2026-08).
export CUDA_DEVICE_MAX_CONNECTIONS=${CUDA_DEVICE_MAX_CONNECTIONS:-1}
torchrun --nproc_per_node 8 --nnodes 1 pretrain_gpt.py \
  --use-mcore-models --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 \
  --num-attention-heads 32 --group-query-attention --num-query-groups 8 --kv-channels 128 \
  --seq-length 8192 --max-position-embeddings 8192 --position-embedding-type rope \
  --rotary-base 1000000 --swiglu --normalization RMSNorm --attention-backend fused \
  --untie-embeddings-and-output-weights --disable-bias-linear \
  --attention-dropout 0.0 --hidden-dropout 0.0 \
  --micro-batch-size 1 --global-batch-size 128 --train-samples 1953125000 \
  --lr 0.00015 --min-lr 0.00001 --lr-decay-style cosine --clip-grad 1.0 --weight-decay 0.1 \
  --bf16 --grad-reduce-in-bf16 --cross-entropy-loss-fusion --calculate-per-token-loss --manual-gc \
  --fp8-format hybrid --fp8-amax-history-len 1024 --fp8-amax-compute-algo max --fp8-param-gather \
  --tensor-model-parallel-size 1 --context-parallel-size 1 \
  --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather \
  --mock-data --tokenizer-type NullTokenizer --vocab-size 128256 --num-workers 1 \
  --save-interval 1000 --ckpt-format torch_dist --distributed-timeout-minutes 60
