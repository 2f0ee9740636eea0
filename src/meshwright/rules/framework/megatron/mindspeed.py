"""MindSpeed (Ascend): what its features exclude."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.finding import Severity
from meshwright.rules.demand import demand
from meshwright.rules.framework.megatron.sources import MINDSPEED, degree

if TYPE_CHECKING:
    from meshwright.frameworks.knobs import Knobs

DUALPIPE_V = ("dualpipe-v", "dualpipev")


@demand(
    "MOD136",
    "DualPipeV exclusions",
    severity=Severity.ERROR,
    section="5.1",
    scope="mindspeed",
    source=f"{MINDSPEED}/pipeline_parallel/dualpipev_feature.py",
    consequence='AssertionError: "The dualpipev and context_parallel are incompatible." '
    "(overlap_grad_reduce, virtual pipeline, custom FSDP likewise)",
    says="schedule {schedule} with cp {cp}, overlap_grad_reduce {overlap_grad_reduce}, vpp {vpp}",
)
def dualpipe_excludes(k: Knobs) -> bool:
    """DualPipeV brings its own order of chunks, which other features have not been written for.

    Fails: mindspeed: --schedules-method dualpipev --context-parallel-size 2
    Fails: mindspeed: --schedules-method dualpipev --context-parallel-size 1 --overlap-grad-reduce
    Passes: mindspeed: --schedules-method dualpipev --context-parallel-size 1
    """
    if k.schedule not in DUALPIPE_V:
        return False
    flags = k.get("overlap_grad_reduce") or k.get("use_custom_fsdp")
    chunks = k.is_stated("num_layers_per_virtual_stage")
    return bool(degree(k, "cp") > 1 or flags or chunks)


@demand(
    "MOD138",
    "VPP that equals one layer group per rank",
    severity=Severity.ERROR,
    section="5.1",
    scope="mindspeed",
    source=f"{MINDSPEED}/megatron_basic/megatron_basic.py",
    confidence="read",
    consequence='ValueError: "please close --num-layers-per-virtual-pipeline-stage"',
    says="num_layers_per_virtual_stage {num_layers_per_virtual_stage} * pp {pp} is all "
    "{num_hidden_layers} layers",
    suggest={"num_layers_per_virtual_stage": None},
    safe=True,
)
def one_chunk_is_no_interleaving(k: Knobs) -> bool:
    """A rank would hold one virtual stage, which is plain 1F1B; Megatron takes it as that.

    Fails: mindspeed: --num-layers-per-virtual-pipeline-stage 8 --pipeline-model-parallel-size 4
        --num-layers 32
    Passes: mindspeed: --num-layers-per-virtual-pipeline-stage 4 --pipeline-model-parallel-size 4
        --num-layers 32
    """
    return bool(k.num_layers_per_virtual_stage * k.pp == k.num_hidden_layers)


@demand(
    "MOD153",
    "Experts not divisible by tp*ep",
    severity=Severity.ERROR,
    section="5.1",
    scope="mindspeed",
    source=f"{MINDSPEED}/moe/tp_extend_ep.py",
    consequence='AssertionError: "`--moe-tp-extend-ep` only support when num_experts % ( tp * ep ) '
    '== 0"',
    says="num_experts {num_experts} over tp {tp} * ep {ep}",
)
def experts_do_not_fill_both_axes(k: Knobs) -> bool:
    """With --moe-tp-extend-ep tensor-parallel ranks hold different whole experts.

    Fails: mindspeed: --moe-tp-extend-ep --num-experts 8 --tensor-model-parallel-size 4
        --expert-model-parallel-size 4
    Passes: mindspeed: --moe-tp-extend-ep --num-experts 16 --tensor-model-parallel-size 4
        --expert-model-parallel-size 4
    """
    return bool(k.moe_tp_extend_ep and k.num_experts % (k.tp * k.ep))


@demand(
    "MOD204",
    "Tied embeddings with DualPipeV",
    severity=Severity.ERROR,
    section="5.2",
    scope="mindspeed",
    source=f"{MINDSPEED}/pipeline_parallel/dualpipev_feature.py",
    consequence='AssertionError: "The dualpipev requires untie_embeddings_and_output_weights."',
    says="schedule {schedule} with tied embeddings",
)
def dualpipe_with_tied_embeddings(k: Knobs) -> bool:
    """In a V embedding and head share a rank, but MindSpeed has no reduction for that case.

    Fails: mindspeed: --schedules-method dualpipev
    Passes: mindspeed: --schedules-method dualpipev --untie-embeddings-and-output-weights
    """
    return bool(k.schedule in DUALPIPE_V and k.tie_word_embeddings)


@demand(
    "MOD324",
    "Forward-backward overlap prerequisites (Ascend)",
    severity=Severity.ERROR,
    section="5.3",
    scope="mindspeed",
    source=f"{MINDSPEED}/moe/fb_overlap.py",
    confidence="read",
    consequence="AssertionError: only ETP 1 and EP > 1, the alltoall dispatcher, and no pipeline, "
    "virtual stages or dualpipev",
    says="moe_fb_overlap with etp {etp}, ep {ep}, pp {pp}, vpp {vpp}, moe_token_dispatcher_type "
    "{moe_token_dispatcher_type}",
)
def forward_hides_no_backward(k: Knobs) -> bool:
    """One micro-batch's forward pass hides the exchange of another's backward pass.

    It needs two of them in one rank at a time: virtual stages with more than one micro-batch a
    stage, or DualPipeV.

    Fails: knobs(moe_fb_overlap=True, etp=1, ep=8, pp=4, vpp=1, schedule="1f1b",
        moe_token_dispatcher_type="alltoall")
    Fails: mindspeed: --moe-fb-overlap --expert-tensor-parallel-size 2
        --expert-model-parallel-size 8 --pipeline-model-parallel-size 1
    Passes: mindspeed: --moe-fb-overlap --expert-tensor-parallel-size 1
        --expert-model-parallel-size 8 --pipeline-model-parallel-size 4
        --schedules-method dualpipev --moe-token-dispatcher-type alltoall
    """
    if not k.moe_fb_overlap:
        return False
    if degree(k, "etp") != 1 or k.ep == 1:
        return True
    if k.get("moe_token_dispatcher_type") in ("allgather", "alltoall_seq"):
        return True
    if k.pp > 1 and k.vpp == 1:
        return k.schedule not in DUALPIPE_V
    return bool(k.vpp > 1 and k.num_microbatches // k.pp <= 1)
