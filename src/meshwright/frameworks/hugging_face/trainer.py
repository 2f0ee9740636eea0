"""What arguments of transformers' trainer mean, whichever framework passes them on.

Sources: transformers 5.24 training_args.py and trainer.py; accelerate 1.15 accelerator.py, which
keeps FSDP's trained shards in fp32 when mixed precision is on, and casts the products.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.base.noun import dataclass
from meshwright.frameworks.hugging_face.mesh import give_context, give_plain, give_shards
from meshwright.frameworks.hugging_face.optimizers import optimizer_word
from meshwright.frameworks.hugging_face.quantized import give_quantized, give_reentrant
from meshwright.frameworks.hugging_face.sharding import Names, give_fsdp, truth
from meshwright.frameworks.hugging_face.widths import adapters, autocast, pure, single, widths
from meshwright.frameworks.setting import UNKNOWN, Value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.frameworks.meanings import Meanings
    from meshwright.frameworks.reading import Config, Reading


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """What one framework says of a run, read from its fields.

    `arithmetic` is "bf16", "fp16", "fp8" or "fp32"; `half_weights` that the model is loaded in 16
    bits; `upcast` that weights which train are kept in fp32 nevertheless; `mixed` that the
    trainer's mixed precision is on; `names` the fields that say so. `facts` are the arguments by
    transformers' names, for comparison with DeepSpeed's.
    """

    arithmetic: str
    half_weights: bool = False
    upcast: bool = True
    mixed: bool = True
    names: tuple[str, ...] = ()
    fsdp: Names | None = None
    fsdp_on: tuple[str, ...] = ()
    fsdp_strategy: str = ""
    fsdp_version: int = 1
    deepspeed: str = "deepspeed"
    facts: Mapping[str, Value] | None = None


def give_run(m: Meanings, args: Arguments) -> None:
    """Sharding and the bytes of every copy: by DeepSpeed, by FSDP, or replicated."""
    zero = deepspeed_part(m.config, args.deepspeed)
    outer = part_of(m.config, "accelerate")
    if zero is not None:
        from meshwright.frameworks.deepspeed.trainer import under_trainer

        under_trainer(m, zero, args.facts or {}, arithmetic=_half(args.arithmetic))
    elif args.fsdp_on and args.fsdp is not None:
        on, version = args.fsdp_on, args.fsdp_version
        give_fsdp(m, args.fsdp, version=version, stated=on, strategy=args.fsdp_strategy)
        _give_reduction(m)
        _give_copies(m, args, sharded=True)
    elif outer is not None and (outer.value("use_fsdp") or outer.value("use_deepspeed")):
        _give_outer(m, args, outer)
    elif _names_file(m, args):
        _give_absent(m, args)
    else:
        m.give("zero_stage", 0, *args.fsdp_on)
        m.give("use_fsdp", False)
        _give_copies(m, args, sharded=False)
    if _names_file(m, args):
        m.give("use_deepspeed", True, args.deepspeed)
    give_shards(m)
    give_context(m)
    give_plain(m)
    give_quantized(m)
    give_reentrant(m)


def _half(arithmetic: str) -> str:
    return "bf16" if arithmetic == "fp8" else arithmetic


def _give_reduction(m: Meanings) -> None:
    """The trainer reduces FSDP's gradients with the last micro-batch, unless told otherwise."""
    name = "accelerator_config.gradient_accumulation_kwargs.sync_each_batch"
    each = truth(m.config.stated(name)) is True
    m.give("reduce_every_microbatch", each, name)


def _names_file(m: Meanings, args: Arguments) -> bool:
    """Whether a DeepSpeed file is named, at hand or not."""
    stated = m.config.stated(args.deepspeed)
    return isinstance(stated, str) and truth(stated) is not False and bool(stated.strip())


def _give_absent(m: Meanings, args: Arguments) -> None:
    """DeepSpeed by a file that is not there and whose name does not tell the stage."""
    m.give("use_fsdp", False)
    m.give("zero_stage", UNKNOWN, args.deepspeed)
    half = _half(args.arithmetic)
    held = single() if half == "fp32" else widths(half, param=2, grad=2, reduce=2, master=True)
    for variable, value in held.items():
        m.give(variable, value, *args.names)


def _give_outer(m: Meanings, args: Arguments, outer: Reading) -> None:
    """Sharding that accelerate's own file states."""
    taken = ("zero_stage", "reshard_after_forward", "dp_replicate", "offload_params")
    more = ("offload_optimizer", "use_fsdp", "use_deepspeed", "fsdp_version", "dp_shard")
    for variable in (*taken, *more):
        if variable in outer.values:
            m.given[variable] = outer.values[variable]
    if outer.value("use_deepspeed"):
        half = _half(args.arithmetic)
        held = single() if half == "fp32" else widths(half, param=2, grad=2, reduce=2, master=True)
        for variable, value in held.items():
            m.give(variable, value, *args.names)
    else:
        _give_copies(m, args, sharded=True)


def _give_copies(m: Meanings, args: Arguments, *, sharded: bool) -> None:
    """Bytes of weights, gradients and moments, without DeepSpeed."""
    for variable, value in copies(m, args, sharded=sharded).items():
        m.give(variable, value, *args.names)


def copies(m: Meanings, args: Arguments, *, sharded: bool) -> dict[str, Any]:
    """Plan fields for the copies of a parameter."""
    half = args.arithmetic != "fp32"
    if m.count("lora_rank", 0) and args.half_weights:
        return adapters(args.arithmetic if half else "bf16")
    if half and args.mixed and (sharded or args.upcast or not args.half_weights):
        return autocast(args.arithmetic, reduce=2 if sharded else 4)
    if args.half_weights:
        return pure(args.arithmetic if half else "bf16")
    return single()


# Parts


def part_of(config: Config, framework: str) -> Reading | None:
    """The part that is of a framework, also one inside another part."""
    for part in config.parts:
        if part.config.framework.name == framework:
            return part
        inner = part_of(part.config, framework)
        if inner is not None:
            return inner
    return None


def deepspeed_part(config: Config, field: str) -> Reading | None:
    """The DeepSpeed JSON of a run: a file, settings in place, or a shipped file by its name."""
    found = part_of(config, "deepspeed")
    if found is not None:
        return found
    from meshwright.frameworks.deepspeed.known import known_reading
    from meshwright.frameworks.framework import framework

    zero = framework("deepspeed")
    inline = _inline(config, field, zero)
    if inline is not None:
        return inline
    setting = config.settings.get(field)
    return known_reading(zero, setting) if setting is not None else None


def _inline(config: Config, field: str, zero: Any) -> Reading | None:
    """A DeepSpeed configuration that stands inside another file, under `field`."""
    from meshwright.frameworks.reading import Config as Plain
    from meshwright.frameworks.reading import Reading as Read
    from meshwright.frameworks.reading import table_values

    prefix = field + "."
    settings, unknown = {}, []
    for name, setting in config.settings.items():
        if not name.startswith(prefix):
            continue
        known = zero.table.find(name[len(prefix) :])
        if known is None:
            unknown.append(setting.replace(spelled=name[len(prefix) :]))
            continue
        value, reason = known.read(setting.value)
        typed = UNKNOWN if reason else value
        settings[known.name] = setting.replace(name=known.name, value=typed)
    if not settings:
        return None
    inner = Plain(framework=zero, version="", settings=settings, unknown=tuple(unknown))
    inner_values = table_values(inner)
    return Read(config=inner, values=inner_values | dict(zero.interpret(inner, inner_values)))


# Pieces that the frameworks call one by one


def give_optimizer(m: Meanings, *names: str) -> None:
    """The optimizer by the trainer's name, from the first of the fields that is stated."""
    stated = next((n for n in names if m.is_stated(n) and isinstance(m.field(n), str)), None)
    if stated is None:
        m.give("optimizer", "adam")
        return
    word = optimizer_word(m.field(stated))
    m.give("optimizer", UNKNOWN if word is None else word, stated)


def give_recompute(m: Meanings, *names: str, default: bool = False) -> None:
    """Whole layers are recomputed where one of the fields says so."""
    stated = [n for n in names if m.is_stated(n)]
    on = any(truth(m.field(n)) for n in stated) if stated else default
    m.give("recompute", "full" if on else "none", *stated)
    m.give("gradient_checkpointing", on, *stated)


def give_loss(m: Meanings, *names: str) -> None:
    """Logits are held in fp32, unless a fused kernel never writes them."""
    fused = [n for n in names if truth(m.field(n))]
    m.give("fused_loss", bool(fused), *names)


def give_attention(m: Meanings, *names: str, old: bool = False) -> None:
    """The attention kernel; transformers picks torch's fused one from 4.36 on."""
    stated = next((n for n in names if m.is_stated(n)), None)
    value = m.field(stated) if stated is not None else None
    if isinstance(value, str) and truth(value) is None:
        m.give("flash_attention", value.lower() not in ("eager", "disabled"), *names)
        if value.lower() not in ("auto", "disabled"):
            m.give("attn_implementation", value, *names)
    elif stated is not None and truth(value):
        m.give("flash_attention", True, *names)
    else:
        m.give("flash_attention", not old)


def stated_facts(
    m: Meanings, names: Mapping[str, str], defaults: Mapping[str, Any]
) -> dict[str, Value]:
    """Arguments by transformers' names from fields that may have others, defaults included."""
    facts: dict[str, Value] = {}
    for name, default in defaults.items():
        field = names.get(name, name)
        setting = m.config.settings.get(field)
        if setting is not None:
            facts[name] = Value(value=setting.value, settings=(setting,))
        else:
            facts[name] = Value(value=default, default=True)
    return facts
