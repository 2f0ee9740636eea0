"""What settings of FSDP and DDP mean in programs that call torch themselves.

Sources: torch 2.13 distributed/fsdp (sharding strategies, MixedPrecision: weights stay fp32 shards
and are cast when gathered); OLMo 0.6 train config, llama-recipes fsdp_config, LLaMA2-Accessory's
arguments, llm-foundry's fsdp_config and the degrees of Cosmos.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.frameworks.hugging_face.adapters import give_adapters
from meshwright.frameworks.hugging_face.mesh import give_context, give_plain, give_shards
from meshwright.frameworks.hugging_face.optimizers import optimizer_word
from meshwright.frameworks.hugging_face.sharding import Names, give_fsdp, strategy_of, truth
from meshwright.frameworks.hugging_face.widths import adapters, autocast, bytes_of, pure, single
from meshwright.frameworks.meanings import Meanings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.frameworks.reading import Config
    from meshwright.frameworks.setting import Value

FSDP = Names(
    strategy="fsdp.sharding_strategy",
    reshard="fsdp.reshard_after_forward",
    offload=("cpu_offload.offload_params", "fsdp_cpu_offload", "fsdp.cpu_offload"),
    checkpointing="fsdp_activation_checkpointing",
    state_dict="fsdp_config.state_dict_type",
)
WORDS = ("distributed_strategy", "trainer.distributed_parallelism", "data_parallel", "strategy")
FLAGS = ("enable_fsdp", "low_cpu_fsdp", "use_fsdp", "fsdp", "hsdp")
CHECKPOINTING = ("gradient_checkpointing", "checkpointing", "activation_checkpointing")
SHARDED = ("fsdp", "hsdp", "sdp", "fully")  # LLaMA2-Accessory calls it sdp
PRECISIONS = ("precision", "dtype", "mixed_precision_policy", "fsdp.mixed_precision")
_PURE = ("pure_bf16", "fsdp.precision", "fsdp.mixed_precision")


def meaning(config: Config, values: Mapping[str, Value]) -> dict[str, Value]:
    """The variables that the table alone does not give."""
    m = Meanings(config, values)
    _give_sharding(m)
    _give_recompute(m)
    _give_copies(m)
    _give_rest(m)
    give_shards(m)
    give_context(m)
    if m.count("tp") > 1:  # fairscale's layers: everything that can be split is
        for variable in ("vocab_parallel", "loss_parallel"):
            m.follow(variable, variable == "vocab_parallel", "tp")
    give_plain(m)
    return m.given


def is_sharded(m: Meanings) -> tuple[bool, tuple[str, ...]]:
    """Whether weights are sharded, and the fields that say so."""
    for name in WORDS:
        word = m.config.stated(name)
        if isinstance(word, str):
            return any(part in word.lower() for part in SHARDED), (name,)
    stated = tuple(n for n in FLAGS if truth(m.config.stated(n)))
    inner = tuple(n for n in m.config.settings if n.startswith(("fsdp.", "fsdp_config.")))
    if m.value("dp_shard") is not None:
        inner += tuple(s.name for s in m.stating("dp_shard"))
    return bool(stated or inner), stated or inner[:1]


def _give_sharding(m: Meanings) -> None:
    sharded, names = is_sharded(m)
    if not sharded:
        m.give("zero_stage", 0, *names)
        m.give("use_fsdp", False, *names)
        return
    words = [m.config.stated(n) for n in (*WORDS, "fsdp.wrapping_strategy")]
    found = next((str(w) for w in words if w is not None and strategy_of(w)), "")
    if truth(m.config.stated("hsdp")):
        found = "hsdp"
    give_fsdp(m, FSDP, version=1, stated=names, strategy=found)
    if m.count("gradient_accumulation_steps") > 1:
        m.give("reduce_every_microbatch", True)  # unless the program defers it for each backward
    copies = m.config.stated("fsdp.hybrid_sharding_num_model_replicas")
    if isinstance(copies, int) and copies > 0:
        m.give("dp_replicate", copies, "fsdp.hybrid_sharding_num_model_replicas")


def _give_recompute(m: Meanings) -> None:
    if "recompute" in m.given:
        return
    name = next((n for n in CHECKPOINTING if m.is_stated(n)), None)
    value = m.field(name) if name is not None else None
    on = truth(value)
    word = str(value).lower() if on is None and value is not None else ""
    if word in ("none", "null"):
        word = ""
    selective = "selective" in word or "fine_grained" in word or "one_in" in word
    m.give("recompute", "full" if (on or word) and not selective else "none", *CHECKPOINTING)
    if selective:
        m.give("recompute", "selective", *CHECKPOINTING)


def _give_copies(m: Meanings) -> None:
    """Bytes of weights, gradients and moments: fp32 shards, unless the program is pure."""
    names = (*PRECISIONS, *_PURE, "bf16", "fp16", "mixed_precision.param_dtype")
    for variable, value in copies(m).items():
        m.give(variable, value, *names)
    reduce = m.config.stated("mixed_precision.reduce_dtype")
    if reduce is not None:
        m.give("reduce_bytes", bytes_of(str(reduce).rpartition(".")[2], 4), *names)


def copies(m: Meanings) -> dict[str, Any]:
    """Plan fields of the precision that is stated, fp32 where none is."""
    word = precision(m)
    if word == "fp32":
        return single()
    if m.count("lora_rank", 0):
        return adapters(word)
    if is_pure(m):
        return pure(word)
    return autocast(word, reduce=2 if m.value("use_fsdp") else 4)


def precision(m: Meanings) -> str:
    """ "bf16", "fp16" or "fp32"."""
    for name in (*PRECISIONS, "mixed_precision.param_dtype"):
        text = str(m.config.stated(name) or "").lower()
        if "bf16" in text or "bfloat16" in text:
            return "bf16"
        if "fp16" in text or "float16" in text or text.startswith("16"):
            return "fp16"
    if truth(m.config.stated("pure_bf16")) or truth(m.config.stated("bf16")):
        return "bf16"
    if truth(m.config.stated("use_fp16")) or truth(m.config.stated("fp16")):
        return "fp16"
    mixed = ("mixed", "pure", "default")
    half = any(str(m.config.stated(name)).lower() in mixed for name in _PURE)
    return "bf16" if half or m.config.stated("enable_fsdp") else "fp32"


def is_pure(m: Meanings) -> bool:
    """Whether even the optimizer sees 16-bit weights only."""
    named = str(m.config.stated("fsdp.precision")).lower() == "pure"
    return named or bool(truth(m.config.stated("pure_bf16")))


def _give_rest(m: Meanings) -> None:
    """Adapters, optimizer, and a loss whose logits are held in fp32."""
    rank = m.config.stated("lora_rank") or m.config.stated("lora_config.r")
    if rank or (truth(m.field("use_peft")) and str(m.field("peft_method") or "lora") == "lora"):
        bits = 4 if truth(m.field("load_in_4bit")) else 8 if truth(m.field("load_in_8bit")) else 0
        size = rank if isinstance(rank, int) else 8
        names = ("lora_rank", "lora_config.r", "use_peft", "load_in_4bit", "load_in_8bit")
        give_adapters(m, rank=size, targets="", bits=bits, names=names)
        for variable, value in copies(m).items():
            m.give(variable, value, *names)
    for name in ("fsdp_config.optimizer", "optimizer.name", "optimizer_name", "optim"):
        word = optimizer_word(m.config.stated(name))
        if word is not None:
            m.give("optimizer", word, name)
            break
    if m.value("checkpoints_kept", 0) < 0:
        m.follow("checkpoints_kept", 0, "checkpoints_kept")  # OLMo keeps all at -1
    compiled = any(n.startswith("compile") for n in m.config.settings)
    if compiled:
        m.give("compile", m.config.stated("compile") is not False, "compile")
