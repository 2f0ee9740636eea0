"""Values that name another configuration file."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from meshwright.base.pattern import pattern

if TYPE_CHECKING:
    from collections.abc import Iterable

    from meshwright.frameworks.setting import Setting

_FILE = pattern(r"[^\s{}\[\]:,]+\.(?:json|jsonc|yaml|yml|toml|py|hjson)\Z", re.IGNORECASE)
_NAMES = (
    "config",
    "deepspeed",
    "config_file",
    "config_path",
    "config_name",
    "config_dir",
    "ds_config",
    "fsdp",
    "fsdp_config",
    "deepspeed_config",
    "deepspeed_config_file",
    "accelerate_config",
    "fsdp_config_file",
    "yaml_cfg",
    "conf",
    "recipe",
)


def references_in(settings: Iterable[Setting]) -> tuple[Setting, ...]:
    """The settings whose value is the name of a configuration file."""
    return tuple(item for item in settings if names_a_file(item))


def names_a_file(setting: Setting) -> bool:
    """Whether a setting, by its name and value, points at another configuration file."""
    name = setting.spelled.lstrip("-+").replace("-", "_").lower().rpartition(".")[2]
    if not isinstance(setting.value, str) or not setting.value:
        return False
    if name in ("config_path", "config_name", "config_dir"):
        return True
    listed = name in _NAMES or name.endswith(("_config", "_config_file", "_config_path"))
    return listed and bool(_FILE.match(setting.value))
