"""GPT-OSS: a sink beside the keys of every head, biases everywhere, every layer routed."""

from __future__ import annotations

from meshwright.train.families.layout import Layout

FAMILIES = {"gpt_oss": Layout(per_head=("sinks",), router="router")}
