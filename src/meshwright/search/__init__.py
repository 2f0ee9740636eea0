"""Space, pruning, evaluation in chunks, Pareto front, nearest miss, sensitivity."""

from meshwright.search.planner import fastest, plan_job
from meshwright.search.result import Candidate, Result
from meshwright.search.space import Options

__all__ = ["Candidate", "Options", "Result", "fastest", "plan_job"]
