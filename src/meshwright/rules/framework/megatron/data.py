"""Data partitioning: batch, length of the run, sources and packing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.finding import Severity
from meshwright.rules.demand import demand
from meshwright.rules.framework.megatron import sources

if TYPE_CHECKING:
    from meshwright.frameworks.knobs import Knobs

_DATA_SOURCES = ("data_path", "split_data_path", "mock_data")


@demand(
    "DAT108",
    "Batch silently rounded down",
    severity=Severity.WARNING,
    section="4.1",
    scope="megatron-core>=0.9",
    source="Megatron-LM megatron/core/num_microbatches_calculator.py "
    "ConstantNumMicroBatchesCalculator (0.19.2)",
    consequence="the run trains on the next lower multiple of micro_batch_size * dp, while its "
    "schedules go on counting global_batch_size samples a step",
)
def batch_is_rounded_down(k: Knobs) -> bool:
    """With --decrease-batch-size-if-needed an indivisible batch is cut instead of refused.

    Learning rate and token budget then belong to a batch that is never run.

    Fails: knobs(decrease_batch_size_if_needed=True, global_batch_size=100, micro_batch_size=2,
        dp=16)
    Passes: knobs(decrease_batch_size_if_needed=True, global_batch_size=96, micro_batch_size=2,
        dp=16)
    """
    chosen = k.decrease_batch_size_if_needed
    return bool(chosen and k.global_batch_size % (k.micro_batch_size * k.dp))


@batch_is_rounded_down.message
def _(k: Knobs) -> str:
    unit = k.micro_batch_size * k.dp
    return (
        f"global_batch_size {k.global_batch_size} is no multiple of micro_batch_size "
        f"{k.micro_batch_size} * dp {k.dp}: {k.global_batch_size // unit * unit} samples are run"
    )


@batch_is_rounded_down.fix
def _(k: Knobs) -> dict[str, int]:
    unit = k.micro_batch_size * k.dp
    return {"global_batch_size": max(k.global_batch_size // unit, 1) * unit}


@demand(
    "DAT134",
    "Iteration- and sample-based schedules mixed",
    severity=Severity.ERROR,
    section="4.1",
    scope="megatron-lm; megatron-bridge>=0.6",
    source=f"{sources.ARGUMENTS}; {sources.BRIDGE}",
    consequence='AssertionError: "expected iteration-based learning rate warmup"',
    consequences={
        "megatron-bridge": 'AssertionError: "Cannot specify more than one of train_iters, '
        'train_samples, or num_epochs"'
    },
)
def schedule_units_are_mixed(k: Knobs) -> bool:
    """Length of the run, decay and warm-up are counted either in iterations or in samples.

    Fails: megatron-lm 0.19: --train-iters 1000 --train-samples 512000
    Fails: megatron-lm 0.19: --train-iters 1000 --lr-warmup-samples 5000
    Passes: megatron-lm 0.19: --train-iters 1000 --lr-warmup-samples 0
    """
    if k.get("train_iters") is None:
        return False
    return k.get("train_samples") is not None or (k.get("lr_warmup_samples") or 0) > 0


@schedule_units_are_mixed.message
def _(k: Knobs) -> str:
    other = "train_samples" if k.get("train_samples") is not None else "lr_warmup_samples"
    return f"train_iters {k.train_iters} counts iterations, {other} {k.get(other)} samples"


@demand(
    "DAT135",
    "Batch-size ramp-up silently ignored",
    severity=Severity.ERROR,
    section="4.1",
    scope="megatron-core>=0.18",
    source="Megatron-LM megatron/core/num_microbatches_calculator.py "
    "init_num_microbatches_calculator (0.19.2 against 0.17.1 and 0.16.1)",
    consequence="accepted with a deprecation notice on rank 0; every step runs the full "
    "global_batch_size from the start (0.17 still ramps)",
    says="rampup_batch_size {rampup_batch_size} has no effect from 0.18 on; the run starts at "
    "global_batch_size {global_batch_size}",
)
def rampup_is_ignored(k: Knobs) -> bool:
    """From 0.18 on the old ramp-up flag is still parsed, but the constant calculator is built.

    Write the ramp as --step-batch-size-schedule, which replaces it.

    Fails: megatron-lm 0.19: --rampup-batch-size 32 32 100000 --global-batch-size 512
    Passes: megatron-lm 0.19: --global-batch-size 512
    Passes: knobs(framework="megatron-lm 0.17", rampup_batch_size=[32, 32, 100000])
    """
    return k.get("rampup_batch_size") is not None


@demand(
    "DAT136",
    "Ramp-up with iteration-based training",
    severity=Severity.ERROR,
    section="4.1",
    scope="megatron-lm<=0.17",
    source="Megatron-LM megatron/training/arguments.py validate_args (0.17.1)",
    consequence='AssertionError: "expected no batch-size rampup for iteration-based training"',
    says="rampup_batch_size {rampup_batch_size} with train_iters {train_iters}",
)
def rampup_counts_iterations(k: Knobs) -> bool:
    """A ramp changes the samples of a step, so the length of the run must be given in samples.

    Fails: megatron-lm 0.17: --rampup-batch-size 32 32 100000 --train-iters 1000
    Passes: megatron-lm 0.17: --rampup-batch-size 32 32 100000
    """
    return k.get("rampup_batch_size") is not None and k.get("train_iters") is not None


@demand(
    "DAT137",
    "Ramp-up with sample-based training (Bridge)",
    severity=Severity.ERROR,
    section="4.1",
    scope="megatron-bridge>=0.3",
    source=sources.BRIDGE_TRAINING,
    consequence='AssertionError: "Batch size rampup not supported with sample-based training yet"',
    says="rampup_batch_size {rampup_batch_size} with train_samples {train_samples}",
)
def rampup_counts_samples(k: Knobs) -> bool:
    """Bridge wants the opposite of the old Megatron-LM: a ramp goes with train_iters.

    Fails: megatron-bridge 0.6: train.rampup_batch_size=[32,32,100000] train.train_samples=512000
    Passes: megatron-bridge 0.6: train.rampup_batch_size=[32,32,100000]
    """
    return k.get("rampup_batch_size") is not None and k.get("train_samples") is not None


@demand(
    "DAT138",
    "Step batch schedule combined with a fixed batch",
    severity=Severity.ERROR,
    section="4.1",
    scope="megatron-lm>=0.18",
    source=sources.ARGUMENTS,
    consequence='ValueError: "Cannot specify both --step-batch-size-schedule and '
    '--global-batch-size"',
    says="step_batch_size_schedule {step_batch_size_schedule} beside global_batch_size "
    "{global_batch_size}",
    suggest={"global_batch_size": None},
)
def two_batch_sizes(k: Knobs) -> bool:
    """The schedule states every batch size of the run, so a fixed one contradicts it.

    Fails: megatron-lm 0.19: --step-batch-size-schedule "0:128 1000:256" --global-batch-size 256
    Passes: megatron-lm 0.19: --global-batch-size 256
    """
    schedule = k.get("step_batch_size_schedule")
    return schedule is not None and k.is_stated("global_batch_size")


@demand(
    "DAT140",
    "Offline packing with more than one sequence per micro-batch",
    severity=Severity.ERROR,
    section="4.1",
    scope="megatron-bridge>=0.6",
    source=sources.BRIDGE,
    confidence="read",
    consequence='ValueError: "micro batch size should be 1 when training with packed sequence"',
    says="packing offline with micro_batch_size {micro_batch_size}",
    suggest={"micro_batch_size": 1},
)
def packs_are_batched(k: Knobs) -> bool:
    """A pack is already several sequences; its boundaries are kept for one sequence only.

    Make the packs longer instead of putting several into a micro-batch.

    Fails: knobs(packing="offline", micro_batch_size=2)
    Fails: megatron-bridge 0.6: dataset.packed_sequence_size=4096 train.micro_batch_size=2
    Passes: megatron-bridge 0.6: dataset.packed_sequence_size=4096 train.micro_batch_size=1
    """
    return _packing(k) == "offline" and bool(k.micro_batch_size != 1)


def _packing(k: Knobs) -> str:
    """How sequences are packed: "offline", "in_batch" or "none"."""
    stated = k.get("packing")
    if stated is not None:
        return str(stated)
    if k.get("in_batch_packing"):
        return "in_batch"
    made = k.get("offline_packing") or (k.get("packed_sequence_size") or 0) > 0
    return "offline" if made else "none"


@demand(
    "DAT141",
    "In-batch packing with a single sequence",
    severity=Severity.ERROR,
    section="4.1",
    scope="megatron-bridge>=0.6",
    source=sources.BRIDGE,
    confidence="read",
    consequence='ValueError: "micro_batch_size should be greater than 1 when using '
    'enable_in_batch_packing"',
    says="packing in_batch with micro_batch_size {micro_batch_size}",
)
def nothing_to_pack(k: Knobs) -> bool:
    """Packing inside a micro-batch joins its sequences; one sequence leaves nothing to join.

    Fails: megatron-bridge 0.6: dataset.enable_in_batch_packing=true train.micro_batch_size=1
    Passes: megatron-bridge 0.6: dataset.enable_in_batch_packing=true train.micro_batch_size=4
    """
    return _packing(k) == "in_batch" and bool(k.micro_batch_size < 2)


@demand(
    "DAT143",
    "Per-token loss with averaging inside the collective",
    severity=Severity.ERROR,
    section="4.1",
    scope="megatron-core>=0.12",
    source=sources.DDP,
    confidence="read",
    consequence='AssertionError: "Cannot average in collective when calculating per-token loss!"',
    says="average_in_collective with per_token_loss",
    suggest={"average_in_collective": False},
)
def averages_twice(k: Knobs) -> bool:
    """Per-token loss divides by the tokens of all ranks after the sum, so no rank may average.

    Fails: megatron-lm 0.19: --calculate-per-token-loss --ddp-average-in-collective
    Passes: megatron-lm 0.19: --calculate-per-token-loss
    """
    return bool(k.per_token_loss and k.average_in_collective)


@demand(
    "DAT145",
    "Variable sequence length through a pipeline",
    severity=Severity.WARNING,
    section="4.1",
    scope="megatron-core",
    source=f"{sources.ARGUMENTS}, comment on variable_seq_lengths",
    confidence="read",
    consequence="the stages exchange the shape of every micro-batch before its tensors",
    says="variable_seq_lengths with pp {pp} although every sequence has seq_len {seq_len}",
    suggest={"variable_seq_lengths": False},
    safe=True,
)
def shapes_are_exchanged(k: Knobs) -> bool:
    """Stages that cannot know the next shape ask for it first: a round trip a micro-batch.

    Worth it for lengths that do vary; pretraining on fixed lengths needs none of it.

    Fails: knobs(variable_seq_lengths=True, pp=4, seq_len_constant=True, seq_len=4096)
    Passes: knobs(variable_seq_lengths=True, pp=4, seq_len_constant=False)
    Passes: knobs(variable_seq_lengths=False, pp=4, seq_len_constant=True)
    """
    return bool(k.variable_seq_lengths and k.pp > 1 and k.seq_len_constant)


@demand(
    "DAT150",
    "Several data sources given",
    severity=Severity.ERROR,
    section="4.1",
    scope="megatron-lm>=0.7",
    source=sources.ARGUMENTS,
    consequence='AssertionError: "A single data source must be provided in training mode, '
    'else None"',
)
def data_sources_compete(k: Knobs) -> bool:
    """A blend (--data-path), paths by split and --mock-data exclude each other.

    Fails: megatron-lm 0.19: --data-path corpus --mock-data
    Fails: knobs(n_data_sources=2)
    Passes: megatron-lm 0.19: --data-path corpus
    Passes: knobs(n_data_sources=1)
    """
    return _data_sources(k) > 1


@data_sources_compete.message
def _(k: Knobs) -> str:
    named = [name for name in _DATA_SOURCES if k.get(name)]
    return " and ".join(named) if named else f"{k.n_data_sources} data sources"


def _data_sources(k: Knobs) -> int:
    return int(k.get("n_data_sources") or sum(bool(k.get(name)) for name in _DATA_SOURCES))
