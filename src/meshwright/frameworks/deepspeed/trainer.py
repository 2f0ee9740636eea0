"""DeepSpeed under a trainer: "auto" is filled in, and values stated twice must agree.

Source: transformers 5.24, integrations/deepspeed.py HfTrainerDeepSpeedConfig, which compares the
JSON with the arguments (fill_match) and raises a ValueError that lists every difference, most of
them only after the model is loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.frameworks.deepspeed.meaning import AUTO, TRIAD, arithmetic_of, give_widths
from meshwright.frameworks.meanings import Meanings
from meshwright.frameworks.setting import UNKNOWN, Value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from meshwright.frameworks.reading import Config, Reading
    from meshwright.frameworks.setting import Setting

PAIRS = (
    ("train_micro_batch_size_per_gpu", "per_device_train_batch_size"),
    ("gradient_accumulation_steps", "gradient_accumulation_steps"),
    ("gradient_clipping", "max_grad_norm"),
    ("optimizer.params.lr", "learning_rate"),
    ("optimizer.params.eps", "adam_epsilon"),
    ("optimizer.params.weight_decay", "weight_decay"),
    ("scheduler.params.warmup_max_lr", "learning_rate"),
    ("scheduler.params.warmup_num_steps", "warmup_steps"),
    ("fp16.enabled", "fp16"),
    ("bf16.enabled", "bf16"),
)
"""The JSON's key, and the trainer's argument that must have the same value."""
DEFAULTS: Mapping[str, Any] = {
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 1,
    "max_grad_norm": 1.0,
    "learning_rate": 5e-5,
    "adam_epsilon": 1e-8,
    "weight_decay": 0.0,
    "warmup_steps": 0,
    "adam_beta1": 0.9,
    "adam_beta2": 0.999,
    "fp16": False,
    "bf16": False,
}
"""What the trainer runs with where nothing is stated (transformers 4 and 5)."""
TRAINER = "hf-trainer"
BETAS = "optimizer.params.betas"

Facts = dict[str, Value]
"""A trainer's arguments by transformers' names."""


def mismatches(
    inner: Mapping[str, Setting], facts: Mapping[str, Value], num_gpus: Any
) -> list[tuple[dict[str, Any], tuple[Setting, ...]]]:
    """Every value that the JSON and the trainer state differently, with the settings.

    Each is a mapping of `deepspeed` (the key), `deepspeed_value`, `trainer` (the argument, or how
    the figure comes about), `trainer_value` and `text`.
    """
    pairs = [(key, name, facts[name]) for key, name in PAIRS if name in facts]
    pairs += [(TRIAD[0], *v) for v in _whole_batch(facts, num_gpus)]
    pairs += [(BETAS, *v) for v in _betas(facts)]
    found = []
    for key, name, value in pairs:
        setting = inner.get(key)
        if setting is None or setting.value in (None, AUTO) or UNKNOWN in (setting.value,):
            continue
        theirs = _positive(value.value) if key.endswith("warmup_num_steps") else value.value
        if theirs is not UNKNOWN and not _equal(setting.value, theirs):
            entry = _entry(setting, name, value.value)
            found.append((entry, (setting, *value.settings)))
    return found


def _entry(setting: Setting, name: str, theirs: Any) -> dict[str, Any]:
    return {
        "deepspeed": setting.name,
        "deepspeed_value": setting.value,
        "trainer": name,
        "trainer_value": theirs,
        "text": f"{setting.name} {_said(setting.value)} against {name} {_said(theirs)}",
    }


def _said(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _whole_batch(facts: Mapping[str, Value], num_gpus: Any) -> Iterable[tuple[str, Value]]:
    """The batch of all processes, where everything that it is the product of is known."""
    micro, steps = facts.get("per_device_train_batch_size"), facts.get(TRIAD[2])
    if micro is None or not isinstance(micro.value, int) or not isinstance(num_gpus, int):
        return
    times = steps.value if steps is not None and isinstance(steps.value, int) else 1
    text = f"{micro.value} * {times} * {num_gpus} GPUs ="
    settings = micro.settings + (steps.settings if steps is not None else ())
    yield text, Value(value=micro.value * times * num_gpus, settings=settings)


def _betas(facts: Mapping[str, Value]) -> Iterable[tuple[str, Value]]:
    first, second = facts.get("adam_beta1"), facts.get("adam_beta2")
    if first is not None and second is not None:
        settings = first.settings + second.settings
        yield (
            "[adam_beta1, adam_beta2]",
            Value(value=[first.value, second.value], settings=settings),
        )


def _positive(value: Any) -> Any:
    """transformers hands over at least one step of warm-up."""
    return max(value, 1) if isinstance(value, int | float) and value <= 1 else value


def _equal(mine: Any, theirs: Any) -> bool:
    if isinstance(mine, list | tuple) and isinstance(theirs, list | tuple):
        return len(mine) == len(theirs) and all(map(_equal, mine, theirs))
    if isinstance(mine, bool) or isinstance(theirs, bool):
        return mine is theirs
    if isinstance(mine, int | float) and isinstance(theirs, int | float):
        return bool(abs(mine - theirs) <= 1e-9 * max(abs(mine), abs(theirs)))
    return str(mine) == str(theirs)


# Under a trainer


def under_trainer(
    m: Meanings, inner: Reading, facts: Mapping[str, Value], *, arithmetic: str
) -> None:
    """The JSON's meaning with the trainer's values for "auto", given to the trainer's `m`.

    `facts` are the trainer's arguments by transformers' names, defaults included; `arithmetic` is
    what the trainer asks for. The trainer's batch counts, as its loader makes the batches. At stage
    3 from_pretrained builds the model in shards.
    """
    theirs = Meanings(inner.config, inner.values)
    give_widths(theirs, arithmetic_of(inner.config, arithmetic))
    taken = {**inner.values, **theirs.given}
    for variable, value in taken.items():
        said = not value.default or not m.stating(variable)
        if variable not in _TRAINERS and value.value is not UNKNOWN and said:
            m.given[variable] = value
    if inner.value("ds_optimizer") is not None:
        m.given["optimizer"] = inner.values["optimizer"]
    if inner.value("zero_stage") == 3 and m.value("model_build") is None:
        m.given["model_build"] = Value(value="sharded", settings=inner.settings_of("zero_stage"))
    for name in TRIAD[:2]:
        stated = inner.values.get(name)
        if stated is None or not isinstance(stated.value, int):
            m.given[name] = Value(value=UNKNOWN, settings=stated.settings if stated else ())
    give_mismatches(m, inner.config.settings, facts)


_TRAINERS = frozenset(
    (
        *("micro_batch_size", "gradient_accumulation_steps", "learning_rate", "optimizer"),
        *("drop_last", "global_batch_size", "num_gpus", "num_nodes", "gpus_per_node"),
        *("environment", "client_optimizer", "compile", "ds_hf_mismatches", "gpu_name"),
        "model_remark",
    )
)
"""Variables that the trainer decides."""


def give_mismatches(m: Meanings, inner: Mapping[str, Setting], facts: Mapping[str, Value]) -> None:
    """`ds_hf_mismatches`: what the JSON and the trainer state differently."""
    found = mismatches(inner, facts, m.value("num_gpus"))
    settings: list[Setting] = []
    for _, pair in found:
        settings += [s for s in pair if s not in settings]
    m.given["ds_hf_mismatches"] = Value(value=[e for e, _ in found], settings=tuple(settings))


# A trainer that only remarks tell of


def remarked_trainer(config: Config, values: Mapping[str, Value]) -> dict[str, Value]:
    """What arguments of a trainer, mentioned in comments beside the JSON, say."""
    facts = remarked_facts(config)
    if not facts:
        return {}
    m = Meanings(config, values)
    for one, other in (("bf16", "fp16"), ("fp16", "bf16")):
        if one in facts and facts[one].value is True:
            facts.setdefault(other, Value(value=False, settings=facts[one].settings))
    give_mismatches(m, config.settings, facts)
    own = {new for old, new in PAIRS if old in config.settings}
    for name, variable in _PLAIN.items():
        if name in facts and facts[name].value is not UNKNOWN and name not in own:
            m.given[variable] = facts[name]
    from meshwright.frameworks.hugging_face.adapters import give_told_adapters

    give_told_adapters(m, facts)
    if facts.get("gradient_checkpointing") is not None:
        on = facts["gradient_checkpointing"]
        m.given["recompute"] = Value(value="full" if on.value else "none", settings=on.settings)
    word = next((w for w in ("bf16", "fp16") if w in facts and facts[w].value is True), "fp32")
    if arithmetic_of(config) == "fp32" and arithmetic_of(config, word) != "fp32":
        give_widths(m, word)
    return m.given


_PLAIN = {
    "per_device_train_batch_size": "micro_batch_size",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "learning_rate": "learning_rate",
    "model_name_or_path": "model_name",
}


def remarked_facts(config: Config) -> Facts:
    """Arguments of transformers' trainer that a comment mentions."""
    if not config.remarked:
        return {}
    from meshwright.frameworks.framework import framework

    table = framework(TRAINER).table
    facts: Facts = {}
    for setting in config.remarked:
        known = table.find(setting.spelled)
        if known is None:
            continue
        value, reason = known.read(setting.value)
        if not reason:
            typed = setting.replace(name=known.name, value=value)
            facts[known.name] = Value(value=value, settings=(typed,))
    return facts
