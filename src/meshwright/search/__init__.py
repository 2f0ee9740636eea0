"""Space, pruning, evaluation in chunks, Pareto front, nearest miss, sensitivity."""
