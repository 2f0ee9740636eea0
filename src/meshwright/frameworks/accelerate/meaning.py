"""What a configuration of accelerate means.

Source: accelerate 1.15.0, commands/launch.py, utils/dataclasses.py (the FSDP and DeepSpeed plugins
and their defaults) and parallelism_config.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.frameworks.deepspeed.trainer import remarked_facts
from meshwright.frameworks.hugging_face.adapters import give_told_adapters
from meshwright.frameworks.hugging_face.mesh import give_context, give_plain, give_shards
from meshwright.frameworks.hugging_face.sharding import Names, give_fsdp, truth
from meshwright.frameworks.hugging_face.trainer import Arguments, copies, part_of
from meshwright.frameworks.hugging_face.widths import single, widths
from meshwright.frameworks.meanings import Meanings
from meshwright.frameworks.setting import UNKNOWN, Value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.frameworks.reading import Config

_F, _D, _M = "fsdp_config.fsdp_", "deepspeed_config.", "megatron_lm_config.megatron_lm_"
FSDP = Names(
    version=_F + "version",
    strategy=_F + "sharding_strategy",
    reshard=_F + "reshard_after_forward",
    offload=(_F + "offload_params", _F + "cpu_offload"),
    checkpointing=_F + "activation_checkpointing",
    checkpointing_offload=_F + "activation_checkpointing_offload",
    state_dict=_F + "state_dict_type",
    efficient_loading=_F + "cpu_ram_efficient_loading",
)
KINDS = {"fsdp": "FSDP", "deepspeed": "DEEPSPEED", "multi_gpu": "MULTI_GPU"}
KINDS |= {"megatron_lm": "MEGATRON_LM", "no": "NO"}
BESIDE_FILE = (
    *(_D + "gradient_accumulation_steps", _D + "gradient_clipping", _D + "zero_stage"),
    *(_D + "offload_optimizer_device", _D + "offload_param_device"),
    *(_D + "offload_optimizer_nvme_path", _D + "offload_param_nvme_path"),
    *(_D + "zero3_save_16bit_model", "mixed_precision"),
)
"""What a DeepSpeed file must state itself (accelerate 1.15, _deepspeed_config_checks)."""
DEFAULT_STAGE = 2  # of the DeepSpeed plugin without a file
_PRECISION = ("mixed_precision", "fp16")


def meaning(config: Config, values: Mapping[str, Value]) -> dict[str, Value]:
    """The variables that the table alone does not give."""
    m = Meanings(config, values)
    kind, names = kind_of(m)
    _give_processes(m)
    _give_program(m)
    if kind == "DEEPSPEED":
        _give_deepspeed(m)
    elif kind == "MEGATRON_LM":
        _give_megatron(m, names)
    else:
        _give_torch(m, kind, names)
    give_shards(m)
    give_context(m)
    give_plain(m)
    compiled = m.config.stated("dynamo_config.dynamo_backend")
    if isinstance(compiled, str):
        m.give("compile", compiled.lower() not in ("no", "none"), "dynamo_config.dynamo_backend")
    return m.given


def kind_of(m: Meanings) -> tuple[str, tuple[str, ...]]:
    """The kind of run in accelerate's words, and the fields that say so."""
    stated = m.config.stated("distributed_type")
    if isinstance(stated, str):
        return stated.upper().removeprefix("DISTRIBUTEDTYPE."), ("distributed_type",)
    for flag, kind in (("use_deepspeed", "DEEPSPEED"), ("use_fsdp", "FSDP")):
        if truth(m.field(flag)):
            return kind, (flag,)
    if truth(m.field("use_megatron_lm")):
        return "MEGATRON_LM", ("use_megatron_lm",)
    for prefix, kind in ((_F, "FSDP"), (_D + "zero", "DEEPSPEED"), (_M, "MEGATRON_LM")):
        names = tuple(n for n in m.config.settings if n.startswith(prefix))
        if names:
            return kind, names
    if part_of(m.config, "deepspeed") is not None:
        return "DEEPSPEED", ()
    return "MULTI_GPU", ("multi_gpu",)


def _give_processes(m: Meanings) -> None:
    """Processes are GPUs; -1 and none leave the number to the launcher."""
    processes = m.config.stated("num_processes")
    if isinstance(processes, int) and processes < 1:
        m.give("num_gpus", UNKNOWN, "num_processes")
    machines = m.config.stated("num_machines")
    counted = isinstance(processes, int) and isinstance(machines, int)
    if counted and processes > 0 and machines > 0 and processes % machines == 0:
        m.give("gpus_per_node", processes // machines, "num_processes", "num_machines")


def arithmetic(m: Meanings) -> str:
    """ "bf16", "fp16", "fp8" or "fp32"."""
    stated = m.config.stated("mixed_precision")
    if isinstance(stated, str) and stated.lower() in ("bf16", "fp16", "fp8"):
        return stated.lower()
    return "fp16" if truth(m.config.stated("fp16")) else "fp32"


def _arguments(m: Meanings) -> Arguments:
    return Arguments(
        arithmetic=arithmetic(m),
        half_weights=m.value("lora_rank", 0) > 0,
        upcast=False,
        names=_PRECISION,
    )


def _give_torch(m: Meanings, kind: str, names: tuple[str, ...]) -> None:
    """FSDP, or replicas that average their gradients."""
    sharded = kind == "FSDP"
    m.give("use_deepspeed", False, *names)
    if sharded:
        give_fsdp(m, FSDP, version=1, stated=names)
        _take_what_is_read(m)
    else:
        m.give("use_fsdp", False, *names)
        m.give("zero_stage", 0, *names)
    for variable, value in copies(m, _arguments(m), sharded=sharded).items():
        m.give(variable, value, *_PRECISION)


def _take_what_is_read(m: Meanings) -> None:
    """The launcher hands each generation of FSDP its own keys; the other's change nothing."""
    if m.value("fsdp_version") == 1:
        m.give("fsdp_reshard_stated", None)
    else:
        m.give("fsdp_forward_prefetch", False, f"{_F}forward_prefetch")


def _give_deepspeed(m: Meanings) -> None:
    """The plugin's settings, or those of the file that they name."""
    m.give("use_deepspeed", True, "distributed_type", "use_deepspeed")
    m.give("use_fsdp", False)
    beside = [name for name in BESIDE_FILE if m.config.stated(name) is not None]
    if m.config.stated(_D + "deepspeed_config_file"):
        m.give("ds_fields_beside_file", [n.rpartition(".")[2] for n in beside], *beside)
    inner = part_of(m.config, "deepspeed")
    if inner is not None:
        from meshwright.frameworks.deepspeed.trainer import under_trainer

        under_trainer(m, inner, {}, arithmetic=arithmetic(m))
        return
    stage = m.config.stated(_D + "zero_stage")
    stage = stage if isinstance(stage, int) else DEFAULT_STAGE
    m.give("zero_stage", stage, _D + "zero_stage", "distributed_type")
    m.give("overlap_grad_reduce", stage == 3, _D + "zero_stage")
    m.give("overlap_param_gather", stage == 3, _D + "zero_stage")
    optimizer, weights = (
        str(m.config.stated(f"{_D}offload_{part}_device")).lower() in ("cpu", "nvme")
        for part in ("optimizer", "param")
    )
    m.give("offload_optimizer", float(optimizer), _D + "offload_optimizer_device")
    m.give("optimizer_offload", optimizer, _D + "offload_optimizer_device")
    m.give("offload_params", weights, _D + "offload_param_device")
    if stage == 3 and truth(m.config.stated(_D + "zero3_init_flag")):
        m.give("model_build", "sharded", _D + "zero3_init_flag")
    steps = m.config.stated(_D + "gradient_accumulation_steps")
    if isinstance(steps, int):
        m.give("gradient_accumulation_steps", steps, _D + "gradient_accumulation_steps")
    half = arithmetic(m)
    held = single() if half == "fp32" else widths(half, param=2, grad=2, reduce=2, master=True)
    for variable, value in held.items():
        m.give(variable, value, *_PRECISION)


def _give_megatron(m: Meanings, names: tuple[str, ...]) -> None:
    """Megatron-LM under accelerate: its degrees stand in the table."""
    m.give("use_megatron_lm", True, *names)
    m.give("use_fsdp", False, *names)
    m.give("use_deepspeed", False, *names)
    shards = truth(m.field(_M + "use_distributed_optimizer"))
    m.give("zero_stage", int(shards is not False), _M + "use_distributed_optimizer")
    sequence = truth(m.field(_M + "sequence_parallelism"))
    m.give("sequence_parallel", bool(sequence), _M + "sequence_parallelism")
    m.give("vocab_parallel", True, _M + "tp_degree")
    m.give("loss_parallel", True, _M + "tp_degree")
    selective = truth(m.field(_M + "recompute_activations"))
    kind = m.config.stated(_M + "recompute_granularity")
    word = kind if kind in ("full", "selective") else ("selective" if selective else "none")
    m.give("recompute", word, _M + "recompute_granularity", _M + "recompute_activations")
    micro = m.config.stated(_M + "num_micro_batches")
    if isinstance(micro, int):
        m.give("gradient_accumulation_steps", micro, _M + "num_micro_batches")
    half = arithmetic(m)
    held = single() if half == "fp32" else widths(half, param=2, grad=4, reduce=4, master=True)
    for variable, value in held.items():
        m.give(variable, value, *_PRECISION)


# The program, as remarks tell of it


def _give_program(m: Meanings) -> None:
    """Arguments of the program that a comment mentions."""
    facts = remarked_facts(m.config)
    for name, variable in _PLAIN.items():
        if name in facts and facts[name].value is not UNKNOWN and m.value(variable) is None:
            m.given[variable] = facts[name]
    if "gradient_checkpointing" in facts:
        on = facts["gradient_checkpointing"]
        m.given["recompute"] = Value(value="full" if on.value else "none", settings=on.settings)
    give_told_adapters(m, facts)


_PLAIN = {
    "per_device_train_batch_size": "micro_batch_size",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "learning_rate": "learning_rate",
    "model_name_or_path": "model_name",
    "model_name": "model_name",
    "cutoff_len": "seq_len",
    "max_length": "seq_len",
    "max_seq_length": "seq_len",
    "block_size": "seq_len",
    "attn_implementation": "attn_implementation",
}
