"""What forks of Megatron-LM and trainers on top of it demand beyond Megatron itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.finding import Severity
from meshwright.rules.demand import demand, set_to
from meshwright.rules.framework.megatron.sources import degree

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from meshwright.frameworks.knobs import Knobs

_SKYRL = "SkyRL skyrl/train/utils/utils.py validate_batch_sizes (00cb5305)"


@demand(
    "DAT275",
    "ZeRO-2/3 with the pipeline engine (Megatron-DeepSpeed)",
    severity=Severity.ERROR,
    section="4.2",
    scope="megatron-lm",
    source="bigscience-workshop/Megatron-DeepSpeed#407; deepspeedai/Megatron-DeepSpeed#474; "
    "DeepSpeed deepspeed/runtime/pipe/engine.py PipelineEngine.__init__ (0.19.8)",
    confidence="read",
    consequence="AssertionError: ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism",
)
def pipeline_engine_takes_stage_one(k: Knobs) -> bool:
    """With --deepspeed the model is built for the pipeline engine, also on a single stage.

    Pass --no-pipeline-parallel where the stage is above 1, or keep stage 1.

    Fails: megatron-lm: --deepspeed --zero-stage 3 --pipeline-model-parallel-size 1
    Fails: megatron-lm: --deepspeed --zero-stage 2 --pipeline-model-parallel-size 2
    Passes: megatron-lm: --deepspeed --zero-stage 1 --pipeline-model-parallel-size 2
    Passes: megatron-lm: --deepspeed --zero-stage 3 --no-pipeline-parallel
    """
    piped = degree(k, "pp") > 1 or not k.get("no_pipeline_parallel")
    return bool(k.get("use_deepspeed") and piped and k.zero_stage >= 2)


@pipeline_engine_takes_stage_one.message
def _(k: Knobs) -> str:
    engine = "" if degree(k, "pp") > 1 else " and no --no-pipeline-parallel"
    return f"zero stage {k.zero_stage} under DeepSpeed's pipeline engine: pp {k.pp}{engine}"


pipeline_engine_takes_stage_one.fix(set_to(zero_stage_stated=1))


def _budget(k: Knobs) -> int:
    """Tokens that one micro-batch of a data-parallel rank may have."""
    return int(k.max_token_len_per_gpu) * degree(k, "cp")


def _exceeds_budget(k: Knobs) -> bool:
    longest = k.max_response_len + (k.get("max_prompt_len") or 0)
    return bool(k.get("dynamic_batch_size") and longest > _budget(k))


def _says_budget(k: Knobs) -> str:
    return (
        f"answers of up to {k.max_response_len} tokens, micro-batches of max_tokens_per_gpu "
        f"{k.max_token_len_per_gpu} * cp {degree(k, 'cp')} = {_budget(k)} tokens"
    )


@demand(
    "DAT269",
    "Token budget of a GPU below the longest sequence (slime)",
    severity=Severity.WARNING,
    section="4.2",
    scope="slime",
    source="THUDM/slime#1839; slime/utils/seqlen_balancing.py (main of 2026-08)",
    confidence="read",
    consequence="the longest samples make micro-batches of their own that are larger than the "
    "memory was planned for",
)
def the_longest_answer_fits_the_budget(k: Knobs) -> bool:
    """Dynamic batches pack samples up to a number of tokens, and one sample is never cut.

    The budget counts tokens of a GPU and is multiplied by the context-parallel ranks.

    Fails: slime: --actor-num-nodes 1 --use-dynamic-batch-size --max-tokens-per-gpu 4096
        --rollout-max-response-len 8192
    Passes: slime: --actor-num-nodes 1 --use-dynamic-batch-size --max-tokens-per-gpu 4608
        --rollout-max-response-len 8192 --context-parallel-size 2
    """
    return _exceeds_budget(k)


the_longest_answer_fits_the_budget.message(_says_budget)


@demand(
    "DAT269",
    "Token budget of a GPU below the longest sequence (slime 0.2.4)",
    severity=Severity.ERROR,
    section="4.2",
    scope="slime==0.2.4",
    source="THUDM/slime#1839 (0.2.4): _get_capped_partitions",
    confidence="read",
    consequence='AssertionError: "This should never happen." on the first sample that is longer '
    "than the budget",
)
def the_longest_answer_is_placed(k: Knobs) -> bool:
    """This release's fallback places no sample that is longer than the budget.

    Raise --max-tokens-per-gpu above the longest prompt and answer, or shorten the answers.

    Fails: slime 0.2.4: --actor-num-nodes 1 --use-dynamic-batch-size --max-tokens-per-gpu 4096
        --rollout-max-response-len 8192
    Passes: slime 0.2.4: --actor-num-nodes 1 --use-dynamic-batch-size --max-tokens-per-gpu 9216
        --rollout-max-response-len 8192
    """
    return _exceeds_budget(k)


the_longest_answer_is_placed.message(_says_budget)


@demand(
    "DAT262",
    "Batch that mini-batches do not fill (SkyRL)",
    severity=Severity.ERROR,
    section="4.2",
    scope="skyrl",
    source=_SKYRL,
    confidence="read",
    consequence="AssertionError: train_batch_size should be divisible by policy_mini_batch_size",
    says="policy_mini_batch_size {mini_batch_size}, train_batch_size {rollout_batch_size} prompts",
)
def a_step_is_whole_updates(k: Knobs) -> bool:
    """Both count prompts over all GPUs, and a step is a whole number of updates.

    Fails: skyrl: trainer.train_batch_size=128 trainer.policy_mini_batch_size=256
    Fails: skyrl: trainer.train_batch_size=1000 trainer.policy_mini_batch_size=256
    Passes: skyrl: trainer.train_batch_size=1024 trainer.policy_mini_batch_size=256
    """
    return bool(k.rollout_batch_size % k.mini_batch_size)


@a_step_is_whole_updates.fix
def _(k: Knobs) -> Mapping[str, Any]:
    fitting = (n for n in range(k.mini_batch_size, 0, -1) if k.rollout_batch_size % n == 0)
    return {"mini_batch_size": next(fitting)}


@demand(
    "DAT264",
    "Samples of an update do not fill micro-batches (SkyRL)",
    severity=Severity.ERROR,
    section="4.2",
    scope="skyrl",
    source=_SKYRL,
    confidence="read",
    consequence="AssertionError: normalized policy_mini_batch_size_per_gpu should be divisible by "
    "micro_train_batch_size_per_gpu",
)
def an_update_is_whole_micro_batches(k: Knobs) -> bool:
    """An update has mini_batch_size prompts times their answers, shared by the replicas.

    Fails: knobs(framework="skyrl", mini_batch_size=6, rollout_n=1, dp=2, micro_batch_size=2)
    Passes: knobs(framework="skyrl", mini_batch_size=8, rollout_n=1, dp=2, micro_batch_size=2)
    """
    own = _samples_of_a_rank(k)
    return own < 1 or bool(own % k.micro_batch_size)


def _samples_of_a_rank(k: Knobs) -> int:
    return int(k.mini_batch_size * (k.get("rollout_n") or 1) // k.dp)


@an_update_is_whole_micro_batches.message
def _(k: Knobs) -> str:
    return (
        f"mini-batch of {k.mini_batch_size} prompts * {k.get('rollout_n') or 1} answers over dp "
        f"{k.dp} = {_samples_of_a_rank(k)} samples, in micro-batches of {k.micro_batch_size}"
    )


@demand(
    "DAT167",
    "Context parallelism without packing (SkyRL)",
    severity=Severity.ERROR,
    section="4.1",
    scope="skyrl",
    source="SkyRL skyrl/train/utils/utils.py validate_megatron_cfg (00cb5305)",
    confidence="read",
    consequence='AssertionError: "context parallel is only supported with sample packing"',
    says="cp {cp} with sequence_packing {sequence_packing}",
    suggest={"sequence_packing": True},
)
def context_ranks_take_packs(k: Knobs) -> bool:
    """Megatron's context parallelism is written for packed samples alone.

    Fails: skyrl: trainer.strategy=megatron trainer.use_sample_packing=false
        trainer.policy.megatron_config.context_parallel_size=2
    Passes: skyrl: trainer.strategy=megatron trainer.use_sample_packing=false
    """
    return degree(k, "cp") > 1 and k.get("sequence_packing") is False
