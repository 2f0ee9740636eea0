"""Structure partitioning (5.1): how tensors, layers, experts and sequences are cut."""
