"""What transformers' Trainer and its DistributedConfig demand.

Sections 4.2, 4.3, 5.1 and 6.1 of the guidelines. Programs on top of the Trainer (trl, axolotl,
LLaMA-Factory) meet the same checks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.finding import Severity
from meshwright.rules.demand import demand
from meshwright.rules.framework.degrees import data_parallel, degree, runs_deepspeed
from meshwright.rules.nearest import divisors

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from meshwright.frameworks.knobs import Knobs

_TRAINER = "transformers src/transformers/trainer.py Trainer.__init__ (5.23.0)"
_DISTRIBUTED = (
    "transformers src/transformers/distributed/configuration_utils.py DistributedConfig (5.23.0)"
)


@demand(
    "CMP126",
    "Activation checkpointing requested twice",
    severity=Severity.ERROR,
    section="6.1",
    scope="transformers>=4.39",
    source=_TRAINER,
    consequence="ValueError: The activation_checkpointing in FSDP config and the "
    "gradient_checkpointing in training arg can't be set to True simultaneously.",
    confidence="read",
    says="fsdp_config.activation_checkpointing = true and gradient_checkpointing = true",
    suggest={"gradient_checkpointing": False},
    safe=True,
)
def checkpointing_is_asked_once(k: Knobs) -> bool:
    """FSDP wraps layers for recomputation, and so does the Trainer.

    Twice wrapped, layers would be recomputed twice, with one more gather. Keep FSDP's. axolotl,
    whose own examples state both, is not judged.

    Fails: knobs(framework="transformers 5.23", use_fsdp=True, fsdp_activation_checkpointing=True,
        gradient_checkpointing=True)
    Passes: knobs(framework="transformers 5.23", use_fsdp=True, fsdp_activation_checkpointing=True,
        gradient_checkpointing=False)
    """
    twice = k.get("fsdp_activation_checkpointing", False) and k.get("gradient_checkpointing", False)
    return k.framework != "axolotl" and bool(k.get("use_fsdp", False) and twice)


@demand(
    "DAT208",
    "FSDP with pipeline parallelism (transformers)",
    severity=Severity.ERROR,
    section="4.2",
    scope="transformers>=5.20",
    source=f"{_DISTRIBUTED} _validate_mesh_config",
    consequence="ValueError: Combining FSDP with pipeline parallelism is not supported yet.",
)
def pipeline_has_no_shards(k: Knobs) -> bool:
    """DistributedConfig composes tp with FSDP, and tp with pp, but not FSDP with pp.

    Fails: knobs(framework="transformers 5.23", pp=2, dp=4)
    Passes: knobs(framework="transformers 5.23", pp=2, tp=4, dp=1)
    """
    return degree(k, "pp") > 1 and data_parallel(k) > 1


@pipeline_has_no_shards.message
def _(k: Knobs) -> str:
    return f"pp {k.pp} with {data_parallel(k)} data-parallel ranks"


@demand(
    "DAT240",
    "FSDP and DeepSpeed both requested",
    severity=Severity.ERROR,
    section="4.2",
    scope="transformers",
    source=_TRAINER,
    consequence="ValueError: Using --fsdp xxx together with --deepspeed is not possible, "
    "deactivate one of those flags.",
    confidence="read",
    says="fsdp and deepspeed are both given: use_fsdp {use_fsdp}, use_deepspeed {use_deepspeed}",
    suggest={"use_fsdp": None},
)
def one_engine_shards(k: Knobs) -> bool:
    """Both would shard parameters and step the optimizer.

    Fails: knobs(framework="transformers 5.23", use_fsdp=True, use_deepspeed=True)
    Passes: knobs(framework="transformers 5.23", use_fsdp=True, use_deepspeed=False)
    """
    return bool(k.get("use_fsdp", False) and k.get("use_deepspeed", False))


@demand(
    "DAT328",
    "Save steps not a multiple of eval steps with best-model loading",
    severity=Severity.ERROR,
    section="4.3",
    scope="transformers; paddlenlp",
    source="transformers src/transformers/training_args.py TrainingArguments._validate_args "
    "(5.23.0); PaddleNLP paddlenlp/trainer/training_args.py (2.8.1)",
    consequence="ValueError: --load_best_model_at_end requires the saving steps to be a round "
    "multiple of the evaluation steps",
    says="save_steps {save_steps} is no multiple of eval_steps {eval_steps}",
)
def every_save_was_evaluated(k: Knobs) -> bool:
    """The best checkpoint can only be one that was both saved and evaluated.

    Fails: knobs(framework="transformers 5.23", load_best_model_at_end=True, eval_steps=300,
        save_steps=500)
    Passes: knobs(framework="transformers 5.23", load_best_model_at_end=True, eval_steps=250,
        save_steps=500)
    """
    if not k.get("load_best_model_at_end", False):
        return False
    return bool(k.eval_steps >= 1 and k.save_steps >= 1 and k.save_steps % k.eval_steps)


@every_save_was_evaluated.fix
def _(k: Knobs) -> Mapping[str, Any]:
    return {"save_steps": max(round(k.save_steps / k.eval_steps), 1) * k.eval_steps}


@demand(
    "DAT329",
    "save_only_model with FSDP/DeepSpeed resume features",
    severity=Severity.ERROR,
    section="4.3",
    scope="transformers>=4.37",
    source=_TRAINER,
    consequence="ValueError: DeepSpeed can't be used with `save_only_model` along with "
    "`load_best_model_at_end`; save_only_model option is not compatible with FSDP state dict type "
    "'SHARDED_STATE_DICT'",
    confidence="read",
    suggest={"save_only_model": False},
)
def sharded_runs_save_their_state(k: Knobs) -> bool:
    """An engine that shards loads its weights back together with its optimizer state.

    Fails: knobs(framework="transformers 5.23", save_only_model=True, use_deepspeed=True,
        load_best_model_at_end=True)
    Fails: knobs(framework="transformers 5.23", save_only_model=True, use_fsdp=True,
        fsdp_state_dict_type="SHARDED_STATE_DICT")
    Passes: knobs(framework="transformers 5.23", save_only_model=True, use_deepspeed=True)
    """
    if not k.get("save_only_model", False):
        return False
    fsdp, engine = k.get("use_fsdp", False), k.get("use_deepspeed", False)
    best = k.get("load_best_model_at_end", False) and (fsdp or engine)
    return bool(best or (fsdp and k.get("fsdp_state_dict_type") == "SHARDED_STATE_DICT"))


@sharded_runs_save_their_state.message
def _(k: Knobs) -> str:
    return (
        f"save_only_model = True with load_best_model_at_end = "
        f"{k.get('load_best_model_at_end', False)}, state_dict_type = "
        f"{k.get('fsdp_state_dict_type')}"
    )


@demand(
    "DAT330",
    "auto_find_batch_size with ZeRO-3",
    severity=Severity.ERROR,
    section="4.3",
    scope="transformers>=4.37",
    source=_TRAINER,
    consequence="ValueError: `auto_find_batch_size` isn't supported yet with DeepSpeed Zero-3.",
    confidence="read",
    says="auto_find_batch_size = true at ZeRO stage {zero_stage}",
    suggest={"auto_find_batch_size": False},
)
def batch_is_not_searched_under_stage_three(k: Knobs) -> bool:
    """The search frees the model and builds it again, which partitioned weights do not survive.

    Fails: knobs(framework="transformers 5.23", auto_find_batch_size=True, zero_stage=3,
        use_deepspeed=True)
    Passes: knobs(framework="transformers 5.23", auto_find_batch_size=True, zero_stage=2,
        use_deepspeed=True)
    """
    searched = k.get("auto_find_batch_size", False) and k.get("use_deepspeed", False)
    return bool(searched) and k.get("zero_stage", 0) == 3


@demand(
    "MOD150",
    "EP must contain TP (transformers)",
    severity=Severity.ERROR,
    section="5.1",
    scope="transformers>=5.20",
    source=f"{_DISTRIBUTED} _validate_mesh_config",
    consequence="ValueError: `ep_size` must be a multiple of `tp_size` and divide "
    "`fsdp_size * tp_size`.",
)
def experts_span_whole_tensor_groups(k: Knobs) -> bool:
    """Here expert parallelism is laid over tensor-parallel groups, and within FSDP's.

    Fails: knobs(framework="transformers 5.23", ep=2, tp=4, dp_shard=2)
    Passes: knobs(framework="transformers 5.23", ep=4, tp=4, dp_shard=2)
    """
    ep, tp = degree(k, "ep"), degree(k, "tp")
    if ep == 1:
        return False
    return ep % tp != 0 or (_shards(k) * tp) % ep != 0


def _shards(k: Knobs) -> int:
    """Ranks of FSDP: as stated, else all data-parallel ones."""
    stated = k.get("dp_shard")
    return int(stated) if stated and stated > 0 else data_parallel(k)


@experts_span_whole_tensor_groups.message
def _(k: Knobs) -> str:
    return f"ep {k.ep} with tp {degree(k, 'tp')} and fsdp_size {_shards(k)}"


@experts_span_whole_tensor_groups.fix
def _(k: Knobs) -> Mapping[str, Any]:
    tp = degree(k, "tp")
    legal = [d * tp for d in divisors(_shards(k))]
    return {"ep": min(legal, key=lambda e: abs(e - k.ep))}


@demand(
    "MOD184",
    "HF Trainer CP without SDPA or with a non-causal mask",
    severity=Severity.ERROR,
    section="5.1",
    scope="transformers>=4.56; accelerate>=1.10",
    source="transformers src/transformers/trainer.py _prepare_context_parallel_inputs (5.23.0)",
    consequence="ValueError: Context parallelism is supported only with SDPA attention; only "
    "causal masks",
    confidence="read",
)
def split_attention_is_sdpa(k: Knobs) -> bool:
    """Context parallelism replaces torch's SDPA call, which flash and eager attention do not make.

    Fails: knobs(framework="transformers 5.23", cp=2, attn_implementation="flash_attention_2")
    Passes: knobs(framework="transformers 5.23", cp=2, attn_implementation="sdpa")
    """
    if degree(k, "ring_cp" if k.get("ring_cp") else "cp") == 1 or degree(k, "ulysses") > 1:
        return False
    return k.get("attn_implementation", "sdpa") != "sdpa" or k.get("causal", True) is False


@split_attention_is_sdpa.message
def _(k: Knobs) -> str:
    return (
        f"cp {k.get('ring_cp') or k.get('cp')} with attn_implementation = "
        f"{k.get('attn_implementation', 'sdpa')}, causal = {k.get('causal', True)}"
    )


split_attention_is_sdpa.fix(lambda _k: {"attn_implementation": "sdpa"})


@demand(
    "MOD233",
    "KV heads not divisible by TP (transformers)",
    severity=Severity.ERROR,
    section="5.2",
    scope="transformers>=4.50; accelerate>=1.10",
    source="transformers issue 48307; src/transformers/integrations/tensor_parallel.py (5.23.0)",
    consequence="RuntimeError: shape is invalid for input of size: a rank holds less than one head",
    confidence="read",
)
def native_tp_divides_key_value_heads(k: Knobs) -> bool:
    """transformers' own tensor parallelism cuts k_proj by columns and copies no heads.

    Fails: knobs(framework="accelerate 1.15", num_key_value_heads=4, tp=8)
    Passes: knobs(framework="accelerate 1.15", num_key_value_heads=4, tp=4)
    """
    if runs_deepspeed(k) or k.get("use_megatron_lm", False):
        return False
    return degree(k, "tp") > 1 and k.num_key_value_heads % k.tp != 0


@native_tp_divides_key_value_heads.message
def _(k: Knobs) -> str:
    return (
        f"{k.num_key_value_heads} KV heads over tensor parallel size {k.tp}: heads are not "
        "replicated"
    )


@native_tp_divides_key_value_heads.fix
def _(k: Knobs) -> Mapping[str, Any]:
    heads = int(k.num_key_value_heads)
    return {"tp": max(d for d in range(1, int(k.tp) + 1) if heads % d == 0)}
