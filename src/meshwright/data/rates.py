"""Measured rates of one core, from `rates.toml`: for estimates before anything is run."""

from __future__ import annotations

import tomllib
from functools import lru_cache

from meshwright.base.noun import dataclass
from meshwright.base.shipped import shipped


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What a CPU core does in a second, and the command that measures it."""

    loader_tokens_per_s: float
    loader_source: str
    build_text_bytes_per_s: float
    build_source: str


@lru_cache(maxsize=1)
def rates() -> Rates:
    """The rates that come with the package."""
    text = (shipped("meshwright.data") / "rates.toml").read_text(encoding="utf-8")
    found = tomllib.loads(text)
    loader, build = found["loader"], found["build"]
    return Rates(
        loader_tokens_per_s=float(loader["tokens_per_s"]),
        loader_source=str(loader["source"]),
        build_text_bytes_per_s=float(build["text_bytes_per_s"]),
        build_source=str(build["source"]),
    )
