"""What costs a run time: rules each with its evidence and its lever."""

from __future__ import annotations

from meshwright.diagnose.causes.judge import causes
from meshwright.diagnose.causes.promises import promises
from meshwright.diagnose.causes.telling import lost_us, principal, step_us, summary

__all__ = ["causes", "lost_us", "principal", "promises", "step_us", "summary"]
