"""Where: GPUs, nodes, fabrics, clusters and their measured efficiency."""
