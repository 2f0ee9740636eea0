"""Units, findings, located reading and errors; knows nothing of training."""
