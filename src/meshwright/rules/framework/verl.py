"""What verl demands of its batch sizes, which count prompts in one place and samples in another.

Sections 4.2 and 5.3 of the guidelines. The batch of a step and the mini-batch of an update count
prompts over all GPUs; each prompt is answered `rollout.n` times; the micro-batch counts samples on
one GPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.finding import Severity
from meshwright.rules.demand import demand
from meshwright.rules.framework.degrees import model_ranks
from meshwright.rules.nearest import divisors

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from meshwright.frameworks.knobs import Knobs

_ACTOR = "verl verl/workers/config/actor.py ActorConfig.validate (0.7)"
_VALIDATE = "verl verl/utils/config.py validate_config (0.7)"
_WORKER = "verl verl/workers/fsdp_workers.py ActorRolloutRefWorker.__init__ (0.7)"
_BACKENDS = ("fsdp", "fsdp2", "megatron")  # whose sequence parallelism is read
HYBRID_FAMILIES = ("qwen3_next", "qwen3_5", "qwen3_5_moe", "falcon_h1", "jamba", "bamba", "zamba2")
HYBRID_NAMES = ("qwen3-next", "qwen3.5", "falcon-h1", "jamba", "bamba", "zamba")


def _replicas(k: Knobs) -> int:
    """Ranks that read different samples."""
    return max(int(k.num_gpus) // model_ranks(k), 1)


def _samples_per_rank(k: Knobs) -> int:
    """Samples of one update on one data-parallel rank; verl drops what does not divide."""
    return int(k.mini_batch_size * (k.get("rollout_n") or 1) // _replicas(k))


@demand(
    "DAT262",
    "Mini-batch larger than the batch (verl)",
    severity=Severity.ERROR,
    section="4.2",
    scope="verl",
    source=_ACTOR,
    consequence="ValueError: train_batch_size must be >= actor.ppo_mini_batch_size",
    confidence="read",
)
def an_update_has_its_prompts(k: Knobs) -> bool:
    """data.train_batch_size and ppo_mini_batch_size both count prompts, over all GPUs.

    Old scripts counted answers in the mini-batch; verl multiplies by rollout.n itself and then asks
    for n times more than there are.

    Fails: verl 0.7: data.train_batch_size=256
        actor_rollout_ref.rollout.n=16
        actor_rollout_ref.actor.ppo_mini_batch_size=4096
    Passes: verl 0.7: data.train_batch_size=256
        actor_rollout_ref.rollout.n=16
        actor_rollout_ref.actor.ppo_mini_batch_size=64
    """
    if k.get("dynamic_batch_size", False):
        return False
    return bool(k.rollout_batch_size < k.mini_batch_size)


@an_update_has_its_prompts.message
def _(k: Knobs) -> str:
    n = k.get("rollout_n") or 1
    meant = (
        f"; {k.mini_batch_size} = {k.rollout_batch_size} * rollout.n {n} counts samples"
        if k.rollout_batch_size * n == k.mini_batch_size and n > 1
        else ""
    )
    return (
        f"ppo_mini_batch_size {k.mini_batch_size} prompts of train_batch_size "
        f"{k.rollout_batch_size}{meant}"
    )


@an_update_has_its_prompts.fix
def _(k: Knobs) -> Mapping[str, Any]:
    return {"mini_batch_size": k.rollout_batch_size}


@demand(
    "DAT263",
    "Batch not a multiple of the mini-batch (verl)",
    severity=Severity.WARNING,
    section="4.2",
    scope="verl",
    source="verl verl/workers/actor/dp_actor.py update_policy (0.7)",
    consequence="no error: the last update of a step is made of fewer prompts",
    confidence="read",
    says="train_batch_size {rollout_batch_size} in mini-batches of {mini_batch_size} prompts",
)
def updates_are_equal(k: Knobs) -> bool:
    """A step makes batch / mini-batch updates; a rest gives one of another size.

    Fails: knobs(framework="verl 0.7", rollout_batch_size=1000, mini_batch_size=256)
    Passes: knobs(framework="verl 0.7", rollout_batch_size=1024, mini_batch_size=256)
    """
    if k.rollout_batch_size < k.mini_batch_size:
        return False
    return bool(k.rollout_batch_size % k.mini_batch_size)


@updates_are_equal.fix
def _(k: Knobs) -> Mapping[str, Any]:
    fitting = [d for d in divisors(int(k.rollout_batch_size)) if d <= k.mini_batch_size]
    return {"mini_batch_size": fitting[-1]}


@demand(
    "DAT264",
    "Samples of an update do not divide over GPUs and micro-batches (verl)",
    severity=Severity.ERROR,
    section="4.2",
    scope="verl",
    source=_WORKER,
    consequence="AssertionError: normalized ppo_mini_batch_size should be divisible by "
    "ppo_micro_batch_size_per_gpu",
    confidence="read",
)
def micro_batches_fill_the_update(k: Knobs) -> bool:
    """A rank gets mini-batch * rollout.n / ranks samples and cuts them into micro-batches.

    Only with the answers counted in do the units agree: 256 prompts * 5 answers / 8 GPUs = 160
    samples, two micro-batches of 80.

    Fails: knobs(framework="verl 0.7", mini_batch_size=256, rollout_n=5, micro_batch_size=64,
        num_gpus=8)
    Passes: knobs(framework="verl 0.7", mini_batch_size=256, rollout_n=5, micro_batch_size=80,
        num_gpus=8)
    Passes: knobs(framework="verl 0.7", mini_batch_size=256, rollout_n=5, micro_batch_size=64,
        num_gpus=8, dynamic_batch_size=True)
    """
    if k.get("dynamic_batch_size", False):
        return False
    return _samples_per_rank(k) < 1 or _samples_per_rank(k) % k.micro_batch_size != 0


@micro_batches_fill_the_update.message
def _(k: Knobs) -> str:
    return (
        f"{k.mini_batch_size} prompts * rollout.n {k.get('rollout_n') or 1} / {_replicas(k)} ranks "
        f"= {_samples_per_rank(k)} samples a GPU, in micro-batches of {k.micro_batch_size}"
    )


@micro_batches_fill_the_update.fix
def _(k: Knobs) -> Mapping[str, Any]:
    fitting = [d for d in divisors(max(_samples_per_rank(k), 1)) if d <= k.micro_batch_size]
    return {"micro_batch_size": fitting[-1]}


def _least_samples(k: Knobs) -> int:
    """What the samples of a step must be a multiple of."""
    world = int(k.num_gpus)
    if k.get("rl_backend") == "megatron":
        return max(world // model_ranks(k), 1) * int(k.micro_batch_size)
    return world


@demand(
    "DAT265",
    "Samples of a step do not divide over the GPUs (verl)",
    severity=Severity.ERROR,
    section="4.2",
    scope="verl",
    source=_VALIDATE,
    consequence="AssertionError: real_train_batch_size must be divisible by minimal possible batch "
    "size",
    confidence="read",
)
def a_step_divides_over_the_gpus(k: Knobs) -> bool:
    """A step has train_batch_size * rollout.n samples, a multiple of all GPUs under FSDP.

    Under Megatron it is a multiple of the replicas times the micro-batch. A batch that nothing
    states is not judged.

    Fails: knobs(framework="verl 0.7", rollout_batch_size=30, rollout_n=1, num_gpus=8)
    Passes: knobs(framework="verl 0.7", rollout_batch_size=30, rollout_n=4, num_gpus=8)
    """
    if k.get("dynamic_batch_size", False) or not k.is_stated("rollout_batch_size"):
        return False
    return bool(k.rollout_batch_size * (k.get("rollout_n") or 1) % _least_samples(k))


@a_step_divides_over_the_gpus.message
def _(k: Knobs) -> str:
    return (
        f"{k.rollout_batch_size} prompts * rollout.n {k.get('rollout_n') or 1} is no multiple of "
        f"{_least_samples(k)}"
    )


@a_step_divides_over_the_gpus.fix
def _(k: Knobs) -> Mapping[str, Any]:
    unit = _least_samples(k)
    return {"rollout_batch_size": -(-k.rollout_batch_size // unit) * unit}


@demand(
    "MOD331",
    "Ulysses without packed sequences (verl)",
    severity=Severity.ERROR,
    section="5.3",
    scope="verl",
    source="verl verl/workers/config/actor.py FSDPActorConfig.validate (0.7)",
    consequence="ValueError: When using sequence parallelism for actor/ref policy, you must enable "
    "`use_remove_padding`.",
    confidence="read",
    says="Ulysses degree {ulysses} with use_remove_padding = false",
    suggest={"remove_padding": True},
)
def split_sequences_are_packed(k: Knobs) -> bool:
    """verl splits the packed row of a micro-batch, which exists only without padding.

    Fails: knobs(framework="verl 0.7", ulysses=2, remove_padding=False)
    Passes: knobs(framework="verl 0.7", ulysses=2, remove_padding=True)
    """
    return int(k.get("ulysses") or 1) > 1 and k.remove_padding is False


def _is_hybrid(k: Knobs) -> bool:
    """Whether the model mixes linear attention or state-space layers with attention."""
    if k.get("linear_attention", False) or k.get("model_family") in HYBRID_FAMILIES:
        return True
    name = str(k.get("model_name") or "").lower()
    return any(part in name for part in HYBRID_NAMES)


@demand(
    "MOD330",
    "Ulysses accepted but not applied to a hybrid model (verl)",
    severity=Severity.WARNING,
    section="5.3",
    scope="verl",
    source="verl issue 7476; verl/models/transformers/monkey_patch.py apply_monkey_patch (0.7)",
    consequence="no error: every rank keeps the whole sequence, so activations are as large as "
    "without sequence parallelism, and the token budget is still multiplied by its degree",
    confidence="doc",
    suggest={"ulysses": 1},
)
def ulysses_is_applied(k: Knobs) -> bool:
    """Ulysses is patched into attention that exchanges heads; recurrent layers have none.

    For models that mix linear attention or state spaces with attention the flag is taken and shown
    in the resolved configuration, but sequences were seen to stay whole on every rank. Later
    sources patch Qwen3.5 alone. Check the shapes a rank sees: they must shrink by the degree.

    Fails: knobs(framework="verl 0.7", ulysses=8, model_name="Qwen3.5-27B", seq_len=32768)
    Passes: knobs(framework="verl 0.7", ulysses=8, model_name="Qwen2.5-32B", seq_len=32768)
    """
    return int(k.get("ulysses") or 1) > 1 and _is_hybrid(k)


@ulysses_is_applied.message
def _(k: Knobs) -> str:
    sizes = ""
    if k.get("seq_len") and k.get("hidden_size"):
        mib = k.seq_len * k.hidden_size * 2 / 2**20
        sizes = f": {mib:.0f} MiB a layer's input instead of {mib / k.ulysses:.0f} MiB"
    name = k.get("model_name") or k.get("model_family")
    return f"sequence parallel degree {k.ulysses} has no effect on {name}{sizes}"


@demand(
    "MOD332",
    "Rollout's tensor parallelism does not divide the GPUs (verl)",
    severity=Severity.ERROR,
    section="5.3",
    scope="verl",
    source=_WORKER,
    consequence="AssertionError: rollout world_size is not divisible by infer_tp",
    confidence="read",
    says="rollout tp {rollout_tp} on {num_gpus} GPUs",
)
def rollout_tiles_the_gpus(k: Knobs) -> bool:
    """The same GPUs that train also generate, in groups of the rollout's tensor-parallel degree.

    Fails: knobs(framework="verl 0.7", rollout_tp=3, num_gpus=8)
    Passes: knobs(framework="verl 0.7", rollout_tp=4, num_gpus=8)
    """
    return bool(k.num_gpus % k.rollout_tp)


@rollout_tiles_the_gpus.fix
def _(k: Knobs) -> Mapping[str, Any]:
    return {"rollout_tp": [d for d in divisors(int(k.num_gpus)) if d <= k.rollout_tp][-1]}


@demand(
    "DAT269",
    "Token budget of a GPU below the longest sequence (verl)",
    severity=Severity.ERROR,
    section="4.2",
    scope="verl",
    source="verl verl/utils/seqlen_balancing.py rearrange_micro_batches (0.7)",
    consequence="AssertionError: max_token_len must be greater than the sequence length",
    confidence="read",
)
def the_longest_sequence_fits_the_budget(k: Knobs) -> bool:
    """Dynamic batches pack sequences up to a number of tokens, and one must at least fit.

    The budget counts tokens of a GPU and is multiplied by the Ulysses degree.

    Fails: knobs(framework="verl 0.7", dynamic_batch_size=True, max_token_len_per_gpu=4096,
        seq_len=32768, ulysses=4)
    Passes: knobs(framework="verl 0.7", dynamic_batch_size=True, max_token_len_per_gpu=4096,
        seq_len=32768, ulysses=8)
    """
    if not k.get("dynamic_batch_size", False) or k.get("rl_backend", "fsdp") not in _BACKENDS:
        return False
    return bool(k.max_token_len_per_gpu * int(k.get("ulysses") or 1) < k.seq_len)


@the_longest_sequence_fits_the_budget.message
def _(k: Knobs) -> str:
    degree = int(k.get("ulysses") or 1)
    return (
        f"{k.max_token_len_per_gpu} tokens a GPU * Ulysses degree {degree} = "
        f"{k.max_token_len_per_gpu * degree}, below sequences of {k.seq_len}"
    )


@the_longest_sequence_fits_the_budget.fix
def _(k: Knobs) -> Mapping[str, Any]:
    return {"max_token_len_per_gpu": -(-k.seq_len // int(k.get("ulysses") or 1))}
