"""Task assignment: micro-batches, recompute units and captured graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.finding import Severity
from meshwright.frameworks.field import release
from meshwright.rules.demand import demand
from meshwright.rules.framework.megatron import sources

if TYPE_CHECKING:
    from meshwright.frameworks.knobs import Knobs

GRAPHS = ("none", "local", "transformer_engine", "full_iteration", "enable", "external")
MODULES = {
    "core_attn": "core-attention",
    "moe_act": "moe-activation",
    "layernorm": "norm",
    "mla_up_proj": "mla-up-projection",
    "mlp": "mlp",
    "moe": "moe",
}
LATER_MODULES = (
    ((0, 14), {"shared_experts": "shared-experts"}),
    ((0, 19), {"gdn_norm_out": "gdn_norm_out"}),
)


@demand(
    "CMP101",
    "Group of micro-batches outside pp to their number (Megatron)",
    severity=Severity.ERROR,
    section="6.1",
    scope="megatron-core>=0.10",
    source=f"{sources.SCHEDULES} forward_backward_pipelining_with_interleaving (0.19.2)",
    consequence='ValueError in the first step: "The number of contiguous micro-batches in a '
    'virtual pipeline stage should range in [PP=4 , M=8]"',
    says="groups of {mb_group} of {num_microbatches} micro-batches on pp {pp} with vpp {vpp}",
    suggest={"mb_group": None},
)
def group_is_between_stages_and_microbatches(k: Knobs) -> bool:
    """A stated group must fill the pipeline and be there.

    Fails: knobs(vpp=2, pp=4, num_microbatches=8, mb_group=3)
    Fails: knobs(vpp=2, pp=4, num_microbatches=8, mb_group=9)
    Passes: knobs(vpp=2, pp=4, num_microbatches=8, mb_group=4)
    Passes: knobs(vpp=1, pp=4, num_microbatches=8, mb_group=3)
    """
    return bool(k.vpp > 1 and not k.pp <= k.mb_group <= k.num_microbatches)


@demand(
    "CMP102",
    "Interleaved schedule remainder",
    severity=Severity.ERROR,
    section="6.1",
    scope="megatron-core>=0.10",
    source=f"{sources.SCHEDULES} forward_backward_pipelining_with_interleaving (0.19.2)",
    consequence='RuntimeError in the first step: "The remainder of M (the total micro-batches) '
    "divided by N (number of contiguous micro-batches in a virtual pipeline stage) should be 0, or "
    'larger than or equal to the pipeline-parallel size"',
)
def last_group_is_too_small(k: Knobs) -> bool:
    """Micro-batches pass the chunks of a rank in groups; the last group must fill the pipeline.

    The group is pp unless --microbatch-group-size-per-virtual-pipeline-stage says otherwise. torch
    takes some remainders that Megatron refuses, and the other way round.

    Fails: megatron-lm 0.19: --num-virtual-stages-per-pipeline-rank 2
        --pipeline-model-parallel-size 4 --micro-batch-size 1 --global-batch-size 10
        # 4 GPUs
    Fails: knobs(vpp=2, pp=4, num_microbatches=10)
    Passes: knobs(vpp=2, pp=4, num_microbatches=12)
    Passes: knobs(vpp=2, pp=4, num_microbatches=9, mb_group=5)
    Passes: knobs(vpp=1, pp=4, num_microbatches=10)
    """
    return bool(k.vpp > 1 and 0 < k.num_microbatches % (k.get("mb_group") or k.pp) < k.pp)


@last_group_is_too_small.message
def _(k: Knobs) -> str:
    group = k.get("mb_group") or k.pp
    return (
        f"{k.num_microbatches} micro-batches in groups of {group} leave "
        f"{k.num_microbatches % group}, fewer than pp {k.pp} (vpp {k.vpp})"
    )


@demand(
    "CMP102",
    "Interleaved schedule remainder (up to 0.9)",
    severity=Severity.ERROR,
    section="6.1",
    scope="megatron-core<=0.9",
    source=f"{sources.SCHEDULES} forward_backward_pipelining_with_interleaving (0.9.0)",
    confidence="read",
    consequence='RuntimeError: "number of microbatches is not divisible by pipeline-parallel-size '
    'when using interleaved schedule"',
    says="{num_microbatches} micro-batches over pp {pp} with vpp {vpp}",
)
def microbatches_do_not_fill_the_pipeline(k: Knobs) -> bool:
    """Up to 0.9 the group is the pipeline's size, and no remainder is allowed.

    Fails: knobs(framework="megatron-lm 0.9", vpp=2, pp=4, num_microbatches=15)
    Passes: knobs(framework="megatron-lm 0.9", vpp=2, pp=4, num_microbatches=16)
    """
    return bool(k.vpp > 1 and k.num_microbatches % k.pp)


@demand(
    "CMP117",
    "Unknown recompute granularity or module",
    severity=Severity.ERROR,
    section="6.1",
    scope="megatron-core>=0.12",
    source=sources.CONFIG,
    consequence='ValueError: "When using recompute_granuarlity: partial must be "full"or '
    '"selective"."; AssertionError: "Invalid choices for recompute_modules"',
)
def recompute_is_unknown(k: Knobs) -> bool:
    """The list of modules grows with the version: shared_experts from 0.14, gdn_norm_out from 0.19.

    Fails: knobs(recompute="partial")
    Fails: megatron-lm 0.19: --recompute-granularity selective --recompute-modules attention
    Fails: megatron-lm 0.12: --recompute-granularity selective --recompute-modules shared_experts
    Passes: megatron-lm 0.19: --recompute-granularity selective
        --recompute-modules core_attn shared_experts
    """
    return k.recompute not in ("none", "selective", "full") or bool(_unknown_modules(k))


@recompute_is_unknown.message
def _(k: Knobs) -> str:
    unknown = _unknown_modules(k)
    if not unknown:
        return f"recompute {k.recompute!r} is none of none, selective, full"
    return f"recompute_modules {', '.join(unknown)}: known are {', '.join(_known_modules(k))}"


def _known_modules(k: Knobs) -> dict[str, str]:
    """Megatron's names of modules in a version, with a plan's words for them."""
    found = dict(MODULES)
    for since, modules in LATER_MODULES:
        if not k.version or release(k.version) >= since:
            found |= modules
    return found


def _unknown_modules(k: Knobs) -> list[str]:
    known = _known_modules(k)
    words = {*known, *known.values()}
    return [m for m in k.get("recompute_modules") or () if m not in words]


@demand(
    "CMP123",
    "FP8 delayed scaling with fine-grained recompute",
    severity=Severity.ERROR,
    section="6.1",
    scope="megatron-core>=0.14",
    source=sources.CONFIG,
    consequence='ValueError: "Delayed scaling does not support moe_act and layernorm recompute for '
    'fp8."',
    says="fp8_recipe delayed with recompute_modules {recompute_modules}",
    suggest={"fp8_recipe": "tensorwise"},
)
def recompute_shifts_the_scales(k: Knobs) -> bool:
    """Delayed scaling takes its scale from earlier passes, and a recomputed pass would be counted.

    0.12 accepts the pair. Current, blockwise and MXFP8 scaling keep no history.

    Fails: knobs(fp8=True, fp8_recipe="delayed", recompute="selective", recompute_modules=["norm"])
    Passes: knobs(fp8=True, fp8_recipe="tensorwise", recompute="selective",
        recompute_modules=["norm"])
    """
    fine = {"norm", "layernorm", "moe-activation", "moe_act"}
    delayed = k.fp8 and k.fp8_recipe == "delayed" and k.get("recompute", "selective") == "selective"
    return bool(delayed and fine & set(k.get("recompute_modules") or ()))


@demand(
    "CMP124",
    "FP8 and FP4 together",
    severity=Severity.ERROR,
    section="6.1",
    scope="megatron-core>=0.15",
    source=f"{sources.CONFIG}; {sources.ARGUMENTS}",
    consequence='ValueError: "--fp4-format and --fp8-format cannot be used simultaneously. Please '
    'choose one."',
    says="fp8 {fp8} and fp4 {fp4}",
)
def two_quantizations(k: Knobs) -> bool:
    """A product has one quantized format.

    Fails: megatron-lm 0.19: --fp8-format hybrid --fp4-format e2m1
    Passes: megatron-lm 0.19: --fp8-format hybrid
    """
    return bool(k.get("fp8") and k.get("fp4"))


@demand(
    "CMP130",
    "Per-layer CUDA graphs with full recompute or CPU offload",
    severity=Severity.ERROR,
    section="6.1",
    scope="megatron-core>=0.16",
    source=sources.CONFIG,
    consequence='AssertionError: "full recompute is only supported with full iteration CUDA '
    'graph."; ValueError: "CUDA graphs not supported with CPU offloading."',
    says="cuda_graph_impl {cuda_graph_impl} with recompute {recompute}, cpu_offloading "
    "{cpu_offloading}",
)
def layer_graphs_cannot_replay(k: Knobs) -> bool:
    """A graph of one layer holds its buffers; recomputing or swapping them happens outside it.

    Fails: megatron-lm 0.19: --cuda-graph-impl local --recompute-granularity full
    Fails: knobs(cuda_graph_impl="transformer_engine", recompute="none", cpu_offloading=True)
    Passes: megatron-lm 0.19: --cuda-graph-impl full_iteration --recompute-granularity full
    """
    layered = k.cuda_graph_impl in ("local", "transformer_engine")
    return bool(layered and (k.get("recompute") == "full" or k.get("cpu_offloading")))


@demand(
    "CMP132",
    "Full-iteration graph with NaN checks",
    severity=Severity.ERROR,
    section="6.1",
    scope="megatron-lm>=0.15; megatron-bridge>=0.6",
    source=sources.ARGUMENTS,
    consequence='AssertionError: "--no-check-for-nan-in-loss-and-grad should be set with '
    '--cuda-graph-impl=full_iteration"',
    says="cuda_graph_impl {cuda_graph_impl} with check_for_nan {check_for_nan}",
    suggest={"check_for_nan": False},
)
def graph_cannot_look_at_the_loss(k: Knobs) -> bool:
    """The check reads the loss on the host in the middle of the step, which a graph cannot do.

    Fails: megatron-lm 0.19: --cuda-graph-impl full_iteration
    Passes: megatron-lm 0.19: --cuda-graph-impl full_iteration --no-check-for-nan-in-loss-and-grad
    """
    return bool(k.cuda_graph_impl == "full_iteration" and k.check_for_nan)


@demand(
    "CMP133",
    "Unknown CUDA graph implementation",
    severity=Severity.ERROR,
    section="6.1",
    scope="megatron-core>=0.15",
    source=sources.CONFIG,
    consequence='AssertionError: "Invalid cuda graph implementation: foo"',
    says="cuda_graph_impl {cuda_graph_impl} is none of none, local, transformer_engine, "
    "full_iteration",
)
def graphs_are_unknown(k: Knobs) -> bool:
    """The name decides who captures: Megatron by layer, Transformer Engine, or the whole step.

    The older values of enabled and external graphs are mapped.

    Fails: megatron-lm 0.19: --cuda-graph-impl layer
    Passes: megatron-lm 0.19: --cuda-graph-impl local
    """
    return k.cuda_graph_impl not in GRAPHS


@demand(
    "CMP135",
    "NoPE frequency does not divide the layers",
    severity=Severity.ERROR,
    section="6.1",
    scope="megatron-core>=0.13",
    source=sources.CONFIG,
    consequence='AssertionError: "no_rope_freq=3 should be divisible by num_layers=8." (worded the '
    "other way round)",
    says="no_rope_freq {no_rope_freq} for {num_hidden_layers} layers",
)
def pattern_without_positions_is_cut(k: Knobs) -> bool:
    """Every n-th layer goes without rotary positions, and the last period must be whole.

    Fails: megatron-lm 0.19: --no-rope-freq 3 --num-layers 8
    Passes: megatron-lm 0.19: --no-rope-freq 4 --num-layers 8
    """
    period = sources.integer(k.no_rope_freq)
    return period is not None and bool(k.num_hidden_layers % period)
