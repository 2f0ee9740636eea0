"""What must hold: rules that lint one plan and prune columns of plans."""
