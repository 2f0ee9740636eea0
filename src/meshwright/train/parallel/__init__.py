"""How one stage is cut over the ranks: one file per axis, each with `apply(stage, ...)`."""
