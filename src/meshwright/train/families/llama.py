"""Llama and the decoders of the same shape: Mistral and Qwen 2 (which adds biases)."""

from __future__ import annotations

from meshwright.train.families.layout import Layout

FAMILIES = {"llama": Layout(), "mistral": Layout(), "qwen2": Layout()}
