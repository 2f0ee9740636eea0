"""What PyTorch demands: its pipeline schedules, fully_shard, context parallelism and loaders."""
