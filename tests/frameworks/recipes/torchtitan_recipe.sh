#!/bin/bash
# torchtitan 0.3 on 2 nodes x 8: the recipe llama3_8b of torchtitan/models/llama3/config_registry.py
# with tensor parallelism, as its README starts it.
torchrun --nproc_per_node 8 --nnodes 2 -m torchtitan.train \
  --module llama3 --config llama3_8b \
  --parallelism.tensor_parallel_degree 2 \
  --training.steps 1000
