"""SkyRL: a policy trained by Megatron through Megatron-Bridge, or by FSDP.

Sources: skyrl/train/config/config.py on main of 2026-08.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.frameworks import telling
from meshwright.frameworks.framework import Framework

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.frameworks.reading import Config
    from meshwright.frameworks.setting import Parsed, Value

_OWN = (
    "trainer.policy.megatron_config.",
    "trainer.ref.megatron_config.",
    "trainer.policy.fsdp_config.",
    "trainer.placement.",
    "trainer.policy.optimizer_config.",
    "trainer.micro_train_batch_size_per_gpu",
    "trainer.policy_mini_batch_size",
    "generator.inference_engine",
    "trainer.algorithm.",
)


def recognizes(parsed: Parsed) -> float:
    """By its programs and by its own groups."""
    if telling.runs(parsed, "skyrl"):
        return 0.97
    own = sum(name.startswith(_OWN) for name in telling.names(parsed))
    return min(0.5 + 0.15 * own, 0.96) if own else 0.0


def interpret(config: Config, values: Mapping[str, Value]) -> Mapping[str, Value]:
    """What the table does not say; see `meaning`."""
    from meshwright.frameworks.megatron_bridge.skyrl import meaning

    return meaning.interpret(config, values)


SKYRL = Framework(
    name="skyrl",
    title="SkyRL",
    package=__name__,
    syntaxes=("overrides", "shell", "yaml"),
    file_name="overrides.txt",
    scopes=("skyrl",),
    below=("megatron-bridge", "megatron-core"),
    newest="0.4",
    recognizes=recognizes,
    interpret=interpret,
    stack="megatron",
)
