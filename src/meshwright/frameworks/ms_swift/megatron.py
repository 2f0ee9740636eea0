"""`megatron sft`: Megatron's settings with ms-swift's defaults, and its own words.

Source: swift/megatron/arguments/megatron_args.py at 4.5.2.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from meshwright.frameworks.framework import framework as by_name
from meshwright.frameworks.meanings import Meanings
from meshwright.frameworks.megatron_lm.meaning import meaning
from meshwright.frameworks.megatron_lm.writing import express_as
from meshwright.frameworks.ms_swift.launched import launch_by_environment, launched, one_queue
from meshwright.frameworks.setting import Value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.frameworks.framework import Expressed
    from meshwright.frameworks.reading import Config
    from meshwright.plan.job import Job

_LORA_RANK = 8
_HALVES = {"float16": "fp16", "bfloat16": "bf16", "fp16": "fp16", "bf16": "bf16"}
_NAMED = ("lora_rank", "lora_all_linear", "model", "padded_vocab_size")
_SHAPE = frozenset(
    {
        *("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size"),
        *("group_query_attention", "num_query_groups", "head_dim", "gated_mlp", "vocab_size"),
        *("add_bias_linear", "qkv_bias", "normalization", "position_embedding_type", "qk_norm"),
        *("multi_latent_attention", "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim"),
        *("qk_rope_head_dim", "v_head_dim", "num_experts", "num_experts_per_tok", "window_size"),
        *("moe_intermediate_size", "shared_expert_intermediate_size", "shared_expert_gate"),
        *("moe_layer_freq", "moe_router_num_groups", "moe_router_group_topk", "expert_bias"),
        *("router_score_function", "tie_word_embeddings", "max_position_embeddings"),
        *("make_vocab_size_divisible_by", "padded_vocab_size", "quick_geglu", "squared_relu"),
    }
)


def interpret(config: Config, values: Mapping[str, Value]) -> Mapping[str, Value]:
    """The variables that the table alone does not give."""
    m = Meanings(config, values)
    _precision(m)
    meaning(m)
    _tuning(m)
    _data(m)
    launched(m)
    one_queue(m)
    return m.given


def _precision(m: Meanings) -> None:
    """bf16 where nothing says otherwise, as the weights of the hub are."""
    if any(m.stating(v) for v in ("bf16", "fp16")):
        return
    word = _HALVES.get(str(m.field("torch_dtype")).rsplit(".", 1)[-1])
    if m.is_stated("torch_dtype"):
        if word is not None:
            m.give(word, True, "torch_dtype")
    else:
        m.given["bf16"] = Value(value=True, default=True)


def _tuning(m: Meanings) -> None:
    """Adapters, whose rank counts only where they are asked for."""
    kind = str(m.field("tuner_type") or "full").lower()
    if kind.startswith("lora"):
        rank = m.value("lora_rank", _LORA_RANK)
        m.give("lora_rank", rank, "lora_rank", "tuner_type")
    else:
        m.given["lora_rank"] = Value(value=None, settings=m.settings("lora_rank"))


def _data(m: Meanings) -> None:
    """Packed rows keep their sequences apart; answers alone are trained on."""
    if m.value("packed"):
        m.give("packed", True, "packing")
        m.give("document_mask", True, "packing")
        m.give("packing", "offline", "packing")
    if m.value("per_token_loss") is None:
        m.follow("per_token_loss", not m.is_stated("rlhf_type"))
    m.follow("masked_loss", not any(p.split()[-1:] == ["pt"] for p in m.config.programs))


def express(job: Job, version: str) -> Expressed:
    """The arguments that state a job; the model is named, not spelled out."""
    own = by_name("ms-swift-megatron")
    said = express_as(
        own, job, version, translate=translated, said_otherwise=_NAMED, runs=("lora_rank",)
    )
    answers_only = job.workload.recipe.masked_loss or job.plan.row(0).lora_rank
    program = "megatron sft" if answers_only else "megatron pt"
    return replace(said, program=program, launch=launch_by_environment(said.launch))


def translated(raw: dict[str, Any], job: Job) -> tuple[dict[str, Any], dict[str, Any]]:
    """Raw values that the table spells, and settings that are ms-swift's own."""
    plan = job.plan.row(0)
    kept = {name: value for name, value in raw.items() if name not in _SHAPE}
    kept["cross_entropy_loss_fusion"] = bool(plan.fused_loss)
    if "recompute" not in kept:
        kept["recompute"] = "none"
    kept.pop("grad_reduce_in_bf16", None)
    also: dict[str, Any] = {"model": job.model.name}
    if plan.grad_bytes <= 2 and raw.get("bf16"):
        also["main_grads_dtype"] = "bf16"
    if plan.lora_rank:
        also |= {"tuner_type": "lora", "lora_rank": int(plan.lora_rank)}
    return kept, also
