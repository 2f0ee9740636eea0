"""Further figures of a rank, for the rules of causes."""

from __future__ import annotations

from meshwright.diagnose.split.facts.communication import communication_facts
from meshwright.diagnose.split.facts.copies import copy_facts
from meshwright.diagnose.split.facts.kernels import kernel_facts
from meshwright.diagnose.split.facts.names import FACTS
from meshwright.diagnose.split.facts.passes import pass_facts
from meshwright.diagnose.split.facts.running import running_facts
from meshwright.diagnose.split.facts.view import View, view_of
from meshwright.diagnose.split.facts.waiting import waiting_facts


def facts_of(view: View) -> dict[str, float]:
    """All further figures of a rank with device events, by name."""
    return {
        **kernel_facts(view),
        **copy_facts(view),
        **waiting_facts(view),
        **pass_facts(view),
        **communication_facts(view),
        **running_facts(view),
    }


__all__ = ["FACTS", "View", "facts_of", "view_of"]
