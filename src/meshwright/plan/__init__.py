"""How: workload, plan, mesh, placement and stages."""
