"""What a nanotron configuration means beyond its table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.frameworks.meanings import Meanings, with_files
from meshwright.frameworks.nanotron.placing import block_costs, cost_balanced

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.frameworks.reading import Config
    from meshwright.frameworks.setting import Value

ENGINE = "parallelism.pp_engine"
TP_MODE = "parallelism.tp_mode"
RECOMPUTE = "parallelism.recompute_layer"
DTYPE = "model.dtype"
ACCUMULATE = "optimizer.accumulate_grad_in_fp32"
EXPERTS = "model.model_config.moe_config.num_experts"
OPTIMIZER = "optimizer.optimizer_factory.name"
_MOST_STAGES = 1024
_MOST_LAYERS = 10_000
PRECISIONS = {
    "bfloat16": "bf16",
    "bf16": "bf16",
    "float16": "fp16",
    "fp16": "fp16",
    "float32": "fp32",
    "fp32": "fp32",
    "float": "fp32",
}


def interpret(config: Config, values: Mapping[str, Value]) -> Mapping[str, Value]:
    """Variables that the table does not give, or gives in nanotron's words."""
    m = Meanings(*with_files(config, values))
    _mesh(m)
    _batch(m)
    _precision(m)
    _checkpoints(m)
    _layout(m)
    return m.given


def _mesh(m: Meanings) -> None:
    """Pipeline engine, the tensor-parallel mode, experts."""
    engine = str(m.field(ENGINE) or "afab").lower()
    m.give("schedule", "1f1b" if engine == "1f1b" else "gpipe", ENGINE)
    m.give("schedule_class", "1F1B" if engine == "1f1b" else "GPipe", ENGINE)
    tp = m.count("tp")
    scatter = str(m.field(TP_MODE) or "").upper() == "REDUCE_SCATTER"
    m.give("sequence_parallel", scatter and tp > 1, TP_MODE)
    m.give("loss_parallel", True)
    m.follow("overlap_tp", bool(m.value("overlap_tp", False)) and scatter, "overlap_tp")
    m.give("context_parallel", "ring")
    m.follow("etp", tp if m.count("ep") == 1 else 1, "ep")
    m.give("recompute", "full" if m.field(RECOMPUTE) else "none", RECOMPUTE)
    m.give("overlap_grad_reduce", True)
    m.give("overlap_param_gather", False)
    m.give("overlap_pp", False)
    stage = m.value("zero_stage", 0)
    m.follow("zero_stage", stage, "zero_stage")


def _batch(m: Meanings) -> None:
    """The global batch follows from the replicas and the accumulation."""
    micro, dp = m.value("micro_batch_size"), m.value("dp")
    accumulation = m.value("gradient_accumulation_steps")
    if isinstance(accumulation, int) and m.count("pp") > 1:
        m.follow("num_microbatches", accumulation, "gradient_accumulation_steps")
    if not all(isinstance(x, int) and x > 0 for x in (micro, dp, accumulation)):
        return
    batch = micro * dp * accumulation
    m.follow("global_batch_size", batch, "micro_batch_size", "gradient_accumulation_steps", "dp")
    steps, seq_len = m.value("train_iters"), m.value("seq_len")
    if isinstance(steps, int) and isinstance(seq_len, int):
        m.follow("train_tokens", float(steps * batch * seq_len), "train_iters")


def _precision(m: Meanings) -> None:
    """Widths: with fp32 accumulation the optimizer holds fp32 weights and gradients of its own."""
    named = str(m.field(DTYPE) or "bfloat16").removeprefix("torch.")
    precision = PRECISIONS.get(named.lower(), "bf16")
    wide = precision == "fp32"
    accumulates = bool(m.field(ACCUMULATE)) and not wide
    m.give("precision", precision, DTYPE)
    m.give("bf16", precision == "bf16", DTYPE)
    m.give("fp16", precision == "fp16", DTYPE)
    m.give("param_bytes", 4 if wide else 2, DTYPE)
    width = 4 if wide or accumulates else 2
    for variable in ("grad_bytes", "reduce_bytes", "optimizer_state_bytes"):
        m.give(variable, width, ACCUMULATE, DTYPE)
    m.give("master_weights", accumulates, ACCUMULATE, DTYPE)
    name = str(m.field(OPTIMIZER) or "adamW").lower()
    m.give("optimizer", "sgd" if name == "sgd" and m.is_stated(OPTIMIZER) else "adam", OPTIMIZER)
    m.give("pads_vocab", True, "model.make_vocab_size_divisible_by")
    _vocabulary(m)


def _vocabulary(m: Meanings) -> None:
    """The vocabulary is padded to a multiple of the stated divisor times tp."""
    rows, divisor = m.value("vocab_size"), m.field("model.make_vocab_size_divisible_by")
    if isinstance(rows, int) and isinstance(divisor, int) and rows > 0 and divisor > 0:
        unit = divisor * m.count("tp")
        padded = -(-rows // unit) * unit
        m.give("padded_vocab_size", padded, "model.make_vocab_size_divisible_by")


def _layout(m: Meanings) -> None:
    """Layers per stage, which nanotron deals out by the cost of blocks."""
    stages, layers = m.count("pp"), m.value("num_hidden_layers")
    names = ("hidden_size", "num_attention_heads", "intermediate_size", "vocab_size")
    sizes = [m.value(name) for name in names]
    if not 1 < stages <= _MOST_STAGES or not all(isinstance(n, int) for n in (layers, *sizes)):
        return
    hidden, heads, ffn, vocab = sizes
    if not 0 < layers <= _MOST_LAYERS or m.is_stated(EXPERTS) or min(sizes) < 1:
        return
    width = heads * (m.value("head_dim") or hidden // heads)
    costs = block_costs(hidden=hidden, width=width, ffn=ffn, vocab=vocab)
    counts = cost_balanced(layers, stages, costs)
    if counts is not None and len(set(counts)) > 1:
        m.give("layout", list(counts))


def _checkpoints(m: Meanings) -> None:
    """Whether the run resumes, and from checkpoints that any mesh can load."""
    m.follow("resume", m.value("ckpt_load") is not None, "ckpt_load")
    m.give("checkpoint_async", False)
    m.give("checkpoint_reshardable", True)
