"""MindSpeed and MindSpeed-LLM: Megatron's arguments on Ascend, and their own.

Sources: mindspeed/features_manager and mindspeed/arguments.py at 028de58c (2026-07), which runs on
Megatron-Core 0.12.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.frameworks import telling
from meshwright.frameworks.megatron_lm.extended import Extended

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.frameworks.framework import Expressed
    from meshwright.frameworks.reading import Config
    from meshwright.frameworks.setting import Parsed, Value
    from meshwright.plan.job import Job

_OWN = frozenset(
    {
        *("schedules_method", "context_parallel_algo", "ulysses_degree_in_cp", "moe_fb_overlap"),
        *("moe_tp_extend_ep", "use_ascend_mc2", "use_ascend_coc", "reuse_fp32_param"),
        *("swap_attention", "swap_optimizer", "recompute_activation_function", "recompute_norm"),
        *("use_fused_rmsnorm", "use_fused_swiglu", "use_fused_rotary_pos_emb", "layerzero"),
        *("optimize_recomp_communication_level", "moe_alltoall_overlap_comm", "npu_deterministic"),
        *("moe_allgather_overlap_comm", "use_fusion_attn_v2", "use_cp_send_recv_overlap"),
        *("gemm_gradient_accumulation_fusion", "ampipe_degree", "noop_layers", "use_mc2"),
        *("tp_2d", "tp_x", "tp_y", "use_fused_ring_attention_update", "shape_order", "sparse_mode"),
        *("megatron_cp_in_bnsd", "enable_high_availability", "dualpipev_dw_detach"),
        *("moe_zero_memory", "mla_mm_split", "num_layer_list", "attention_mask_type"),
    }
)


def recognizes(parsed: Parsed) -> float:
    """By its programs, and by its own arguments beside Megatron's."""
    if telling.runs(parsed, "mindspeed", "modellink", "posttrain_gpt"):
        return 0.97
    if not telling.are_arguments(parsed):
        return 0.0
    own = telling.count(telling.names(parsed), _OWN)
    return 0.97 if own else 0.0


def interpret(config: Config, values: Mapping[str, Value]) -> Mapping[str, Value]:
    """Megatron's meanings, and what MindSpeed's features change; see `features`."""
    from meshwright.frameworks.mindspeed import features

    return features.interpret(config, values)


def express(job: Job, version: str) -> Expressed:
    """The arguments that state a job; see `features`."""
    from meshwright.frameworks.mindspeed import features

    return features.express(job, version)


FRAMEWORKS = (
    Extended(
        name="mindspeed",
        title="MindSpeed",
        package=__name__,
        base="megatron-lm",
        syntaxes=("shell", "overrides"),
        file_name="train.sh",
        scopes=("mindspeed",),
        below=("megatron-lm", "megatron-core"),
        newest="2.3",
        recognizes=recognizes,
        interpret=interpret,
        express=express,
        aliases=("mindspeed-llm", "modellink"),
        stack="mindspeed",
    ),
)
