"""Which model a torchtitan configuration trains: registry names, recipes and their calls."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from meshwright.base.pattern import pattern
from meshwright.frameworks.field import release
from meshwright.frameworks.torchtitan import models

if TYPE_CHECKING:
    from meshwright.frameworks.meanings import Meanings

SPEC = ("model_spec", "model_spec.name", "model_spec.flavor")
_ASKED_FOR = ("module", "config")
_FLAVOR = pattern(r"""model_registry\(\s*(?:flavor\s*=\s*)?["']([^"']{1,40})["']""")
_IMPORT = pattern(r"torchtitan\.models\.(\w{1,40})")
_KERNELS = (("attention_backend", "attn_backend"), ("ep_backend", "moe_comm_backend"))
_BACKENDS = {"minimal_async_ep": "minimal_async"}


def is_before(m: Meanings, version: str) -> bool:
    """Whether the configuration is of an older release than `version`."""
    return bool(m.config.version) and release(m.config.version) < release(version)


def give_model(m: Meanings) -> None:
    """Name and shape of the model, and its attention kernel."""
    _spec(m)
    family, flavor = _family_and_flavor(m)
    if not family or not flavor:
        return
    size, kernel = models.size_of(flavor)
    names = ("model.name", "model.flavor", *SPEC, *_ASKED_FOR)
    preset = models.PRESETS.get((family, size))
    if preset is not None:
        m.give("model_name", preset, *names)
    for variable, value in models.SHAPES.get((family, size), {}).items():
        m.give(variable, value, *names)
    limit = models.ROTARY_LIMITS.get((family, size)) or models.ROTARY_LIMITS.get((family, ""))
    if limit is not None and not is_before(m, "0.3"):
        m.give("rotary_max_seq_len", limit, *names)
    if kernel:
        m.give("attention_backend", kernel, *names)
    elif is_before(m, "0.3") and (family, size) in models.FLEX_SINCE_02:
        m.give("attention_backend", "flex", *names)
    elif m.value("attention_backend") is None:
        m.give("attention_backend", "sdpa" if is_before(m, "0.3") else "flex")


def spec_text(m: Meanings) -> str:
    """The call that makes the model of a recipe, as it is written."""
    setting = m.config.settings.get("model_spec")
    if setting is None:
        return ""
    if isinstance(setting.value, str):
        return setting.value
    return setting.source.text[setting.where.start : setting.where.end]


def _spec(m: Meanings) -> None:
    """What the call that makes the model says of kernels and dispatchers."""
    text = spec_text(m)
    for variable, argument in _KERNELS:
        if found := re.search(argument + r"""\s*=\s*["']([\w.]+)["']""", text):
            m.give(variable, _BACKENDS.get(found.group(1), found.group(1)), "model_spec")
    if found := re.search(r"non_blocking_capacity_factor\s*=\s*(\d+(?:\.\d+)?)", text):
        m.give("non_blocking_capacity_factor", float(found.group(1)), "model_spec")


def _family_and_flavor(m: Meanings) -> tuple[str, str]:
    """Family and size: in so many words, or as a recipe's name tells."""
    named = models.recipe_model(_recipe(m))
    family = models.family_of(str(m.field("model_spec.name", "model.name", "module") or ""))
    flavor = m.config.stated("model_spec.flavor") or m.config.stated("model.flavor")
    if found := _FLAVOR.search(spec_text(m)):
        flavor = found.group(1)
    if not isinstance(flavor, str):
        if named[0]:
            return named
        flavor = m.field("model.flavor") if is_before(m, "0.3") else None
    if isinstance(flavor, str):
        family = family or named[0] or models.only_family(models.size_of(flavor)[0])
    family = family or _imported(m)
    return (family, flavor) if family and isinstance(flavor, str) else ("", "")


def _recipe(m: Meanings) -> str:
    """The name of the recipe function, asked for or read."""
    stated = m.field("config")
    return stated if isinstance(stated, str) and stated else " ".join(m.config.programs)


def _imported(m: Meanings) -> str:
    """The family that a recipe imports; Llama 3 is what older releases train unless told."""
    for source in m.config.sources:
        if found := _IMPORT.search(source.text):
            return models.family_of(found.group(1))
    return "llama3" if is_before(m, "0.3") else ""
