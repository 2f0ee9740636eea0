"""NeMo-RL: a policy trained by Megatron (`policy.megatron_cfg`) or by FSDP2 (`dtensor_cfg`)."""
