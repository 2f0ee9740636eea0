"""Checkpoints of a run: saved while it trains, verified, and read back under any other plan."""

from meshwright.train.checkpoint.folders import Latest, damage_of, latest
from meshwright.train.checkpoint.interval import Every
from meshwright.train.checkpoint.restoring import Restored, restore
from meshwright.train.checkpoint.saving import Saved, SaveFailed, Saver
from meshwright.train.checkpoint.state import State, state_of

__all__ = [
    "Every",
    "Latest",
    "Restored",
    "SaveFailed",
    "Saved",
    "Saver",
    "State",
    "damage_of",
    "latest",
    "restore",
    "state_of",
]
