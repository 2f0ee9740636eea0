#!/bin/bash
# 8 layers of a Llama-like model on 8 devices, tp 2, pp 2, vpp 4 chunks of one layer:
# tests_extend/example/train_distributed.sh (MindSpeed, 2026-07), with two of its features.
export CUDA_DEVICE_MAX_CONNECTIONS=1
torchrun --nproc_per_node 8 --nnodes 1 pretrain_gpt.py \
  --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 \
  --num-layers-per-virtual-pipeline-stage 1 --sequence-parallel \
  --num-layers 8 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 64 \
  --seq-length 4096 --max-position-embeddings 4096 --micro-batch-size 1 --global-batch-size 16 \
  --lr 1.0e-6 --min-lr 1.0e-7 --train-iters 1000 --weight-decay 0.1 --clip-grad 1.0 \
  --disable-bias-linear --attention-softmax-in-fp32 --bf16 --swiglu --normalization RMSNorm \
  --untie-embeddings-and-output-weights --position-embedding-type rope \
  --vocab-size 32000 --tokenizer-type NullTokenizer --mock-data \
  --use-distributed-optimizer --use-flash-attn --use-fused-rmsnorm --use-fused-swiglu \
  --log-interval 1 --save-interval 10000
