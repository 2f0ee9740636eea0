"""Starts a plan's ranks: here under a supervisor, elsewhere by a file for a scheduler.

`local` supervises torchrun's agent on this machine, `agent` is that process, `rank` what a rank
does before its work. `target` is what a job file says, and `slurm`, `kubernetes`, `ray`, `skypilot`
and `torchrun` write one each. Nothing here imports torch before the agent does.
"""
