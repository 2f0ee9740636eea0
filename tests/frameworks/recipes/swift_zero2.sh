# Qwen2.5 14B under ZeRO-2 on 8 GPUs: examples/megatron/benchmark/deepspeed.sh (ms-swift, 2026-08).
PYTORCH_CUDA_ALLOC_CONF='expandable_segments:True' \
NPROC_PER_NODE=8 \
swift sft \
    --model Qwen/Qwen2.5-14B \
    --tuner_type full \
    --dataset liucong/Chinese-DeepSeek-R1-Distill-data-110k-SFT \
    --split_dataset_ratio 0.01 \
    --torch_dtype bfloat16 \
    --max_steps 2000 \
    --per_device_train_batch_size 1 \
    --learning_rate 1e-5 \
    --gradient_accumulation_steps 2 \
    --packing true \
    --eval_steps 200 \
    --save_steps 200 \
    --logging_steps 5 \
    --max_length 8192 \
    --warmup_ratio 0.05 \
    --dataloader_num_workers 8 \
    --save_only_model true \
    --output_dir output/Qwen2.5-14B \
    --deepspeed zero2 \
    --attn_impl flash_attn
