"""Mixtral: Mistral's attention, every layer routed."""

from __future__ import annotations

from meshwright.train.families.layout import Layout

FAMILIES = {"mixtral": Layout()}
