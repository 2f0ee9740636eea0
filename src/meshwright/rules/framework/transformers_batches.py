"""Values that a trainer and what runs under it both state, and batches of sampled answers.

Section 4.2 of the guidelines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.finding import Severity
from meshwright.rules.demand import demand
from meshwright.rules.framework.degrees import data_parallel

if TYPE_CHECKING:
    from meshwright.frameworks.knobs import Knobs


@demand(
    "DAT261",
    "DeepSpeed config and trainer state different values",
    severity=Severity.ERROR,
    section="4.2",
    scope="transformers; accelerate; deepspeed",
    source="transformers src/transformers/integrations/deepspeed.py HfTrainerDeepSpeedConfig "
    "(5.23.0)",
    consequence="ValueError: Please correct the following DeepSpeed config values that mismatch "
    "TrainingArguments values; most are found only after the model is loaded",
    confidence="read",
)
def both_files_agree(k: Knobs) -> bool:
    """The JSON has its own batch, learning rate and warm-up, which must equal the trainer's.

    "auto" in the JSON takes the trainer's value.

    Fails: knobs(framework="transformers 5.23", ds_hf_mismatches=[{"deepspeed":
        "optimizer.params.lr", "deepspeed_value": 1e-4, "trainer": "learning_rate",
        "trainer_value": 5e-5, "text": "optimizer.params.lr 0.0001 against learning_rate 5e-05"}])
    Passes: knobs(framework="transformers 5.23", ds_hf_mismatches=[])
    """
    return bool(k.get("ds_hf_mismatches"))


@both_files_agree.message
def _(k: Knobs) -> str:
    found = k.ds_hf_mismatches
    texts = "; ".join(str(one["text"]) for one in found)
    many = "value differs" if len(found) == 1 else "values differ"
    return f"{len(found)} {many} between the DeepSpeed config and the TrainingArguments: {texts}"


def _answers(k: Knobs) -> int:
    """Answers of one step over all processes."""
    steps = int(k.get("gradient_accumulation_steps") or 1)
    return int(k.micro_batch_size) * data_parallel(k) * steps


@demand(
    "DAT268",
    "Batch of answers not divisible by the answers of a prompt",
    severity=Severity.ERROR,
    section="4.2",
    scope="transformers",
    source="trl trl/trainer/grpo_config.py GRPOConfig.__post_init__ (0.25)",
    consequence="ValueError: generation_batch_size must be divisible by num_generations",
    confidence="read",
)
def prompts_have_all_their_answers(k: Knobs) -> bool:
    """GRPO compares the answers of one prompt with each other, so a batch holds whole groups.

    The batch counts answers: per_device_train_batch_size * processes * accumulation steps.

    Fails: knobs(framework="transformers 5.23", micro_batch_size=1, dp=4, num_generations=8,
        gradient_accumulation_steps=1)
    Passes: knobs(framework="transformers 5.23", micro_batch_size=2, dp=4, num_generations=8,
        gradient_accumulation_steps=1)
    """
    return bool((k.num_generations or 0) > 1 and _answers(k) % k.num_generations)


@prompts_have_all_their_answers.message
def _(k: Knobs) -> str:
    return (
        f"{k.micro_batch_size} a GPU * {data_parallel(k)} processes * "
        f"{k.get('gradient_accumulation_steps') or 1} steps = {_answers(k)} answers, no multiple "
        f"of num_generations {k.num_generations}"
    )


@demand(
    "DAT268",
    "Batch of answers of one pass not divisible by the answers of a prompt (trl)",
    severity=Severity.ERROR,
    section="4.2",
    scope="trl<0.18",
    source="trl trl/trainer/grpo_trainer.py GRPOTrainer.__init__ (0.16)",
    consequence="ValueError: The global train batch size must be evenly divisible by the number of "
    "generations per prompt",
    confidence="read",
)
def one_pass_has_all_answers(k: Knobs) -> bool:
    """Before generation batches each forward pass over all processes held whole groups of answers.

    Accumulation did not count: per_device_train_batch_size * processes alone was divided.

    Fails: knobs(micro_batch_size=1, dp=1, num_generations=8)
    Passes: knobs(micro_batch_size=8, dp=1, num_generations=8)
    """
    answers = int(k.micro_batch_size) * data_parallel(k)
    return bool((k.num_generations or 0) > 1 and answers % k.num_generations)


@one_pass_has_all_answers.message
def _(k: Knobs) -> str:
    return (
        f"{k.micro_batch_size} a GPU * {data_parallel(k)} processes = "
        f"{int(k.micro_batch_size) * data_parallel(k)} answers of one pass, no multiple of "
        f"num_generations {k.num_generations}"
    )


@demand(
    "DAT266",
    "Accumulated losses averaged micro-batch by micro-batch",
    severity=Severity.WARNING,
    section="4.2",
    scope="transformers<4.46",
    source="transformers src/transformers/trainer.py training_step (4.45); fixed in 4.46",
    consequence="no error: with samples of different lengths the loss and its gradients are not "
    "those of one large batch; short micro-batches weigh too much",
    confidence="read",
    says="{gradient_accumulation_steps} accumulation steps, each with the mean loss of its own "
    "tokens",
)
def accumulation_counts_tokens(k: Knobs) -> bool:
    """Before 4.46 each micro-batch's mean loss was divided by the number of steps.

    A mean of means equals the mean over all tokens only where micro-batches hold equally many.
    Asked only where the version is stated.

    Fails: knobs(framework="transformers 4.45", gradient_accumulation_steps=8)
    Passes: knobs(framework="transformers 4.45", gradient_accumulation_steps=1)
    """
    return bool(k.version) and (k.gradient_accumulation_steps or 1) > 1


@demand(
    "CMP225",
    "DeepSpeed's activation_checkpointing block checkpoints nothing",
    severity=Severity.WARNING,
    section="6.2",
    scope="transformers",
    source="DeepSpeed docs/code-docs/source/activation-checkpointing.rst; transformers DeepSpeed "
    "documentation, activation checkpointing",
    consequence="no error: all activations are kept, as if the block were not there",
    confidence="doc",
    says="activation_checkpointing in the DeepSpeed config with recompute = {recompute}",
    suggest={"gradient_checkpointing": True},
)
def recompute_is_asked_of_the_trainer(k: Knobs) -> bool:
    """The block sets how DeepSpeed's own checkpoint function works, which models here do not call.

    The models of transformers recompute when the trainer's gradient_checkpointing says so.

    Fails: knobs(framework="transformers 5.23", use_deepspeed=True, recompute="none",
        ds_config_keys=["bf16", "activation_checkpointing"])
    Passes: knobs(framework="transformers 5.23", use_deepspeed=True, recompute="full",
        gradient_checkpointing=True, ds_config_keys=["bf16", "activation_checkpointing"])
    """
    stated = "activation_checkpointing" in (k.get("ds_config_keys") or ())
    return stated and k.recompute == "none" and not k.get("gradient_checkpointing", False)
