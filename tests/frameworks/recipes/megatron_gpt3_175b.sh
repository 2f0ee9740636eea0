#!/bin/bash
# GPT-3 175B, fp16, tp 8, pp 16, 1536 sequences of 2048, 16 nodes x 8:
# examples/gpt3/train_gpt3_175b_distributed.sh (Megatron-LM, 2026-08).
export CUDA_DEVICE_MAX_CONNECTIONS=1
torchrun --nproc_per_node 8 --nnodes 16 pretrain_gpt.py \
  --num-layers 96 --hidden-size 12288 --num-attention-heads 96 \
  --seq-length 2048 --max-position-embeddings 2048 --attention-backend auto \
  --micro-batch-size 1 --global-batch-size 1536 --train-iters 500000 \
  --weight-decay 0.1 --adam-beta1 0.9 --adam-beta2 0.95 --init-method-std 0.006 \
  --clip-grad 1.0 --fp16 --lr 6.0e-5 --lr-decay-style cosine --min-lr 6.0e-6 \
  --tensor-model-parallel-size 8 --pipeline-model-parallel-size 16 \
  --vocab-size 51200 --tokenizer-type NullTokenizer --mock-data \
  --log-interval 100 --save-interval 10000 --eval-interval 1000 --eval-iters 10
