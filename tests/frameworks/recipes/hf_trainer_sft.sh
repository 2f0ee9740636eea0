#!/bin/bash
# TRL's SFT of Llama-3.1 8B on 8 GPUs under ZeRO-3: trl/accelerate_configs/zero3.yaml and
# examples/scripts/sft.py (TRL, 2026-07); batch as in alignment-handbook's recipes.
accelerate launch --config_file hf_trainer_zero3.yaml trl/scripts/sft.py \
  --model_name_or_path meta-llama/Llama-3.1-8B --dtype bfloat16 \
  --attn_implementation flash_attention_2 \
  --dataset_name HuggingFaceTB/smoltalk --max_length 8192 --packing \
  --per_device_train_batch_size 1 --gradient_accumulation_steps 4 \
  --gradient_checkpointing --bf16 --learning_rate 2.0e-5 --num_train_epochs 1 \
  --lr_scheduler_type cosine --warmup_ratio 0.03 --logging_steps 5 --save_steps 500 \
  --output_dir data/sft --report_to none --seed 42
