"""Resuming and converting: states saved under other degrees, converters, grown vocabularies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.finding import Severity
from meshwright.rules.demand import demand
from meshwright.rules.framework.megatron.sources import degree, is_moe

if TYPE_CHECKING:
    from meshwright.frameworks.knobs import Knobs

_LOADING = "Megatron-LM megatron/training/checkpointing.py load_checkpoint"
VOCABULARY_UNIT = 128


def _loads_sharded_states(k: Knobs) -> bool:
    """Whether the run starts from optimizer states of a distributed checkpoint."""
    skipped = k.get("no_load_optim") or k.get("finetune")
    resumes = k.get("ckpt_load") is not None and not skipped
    return bool(resumes and k.use_distributed_optimizer and k.ckpt_format == "torch_dist")


def _changed(k: Knobs, *axes: str) -> list[str]:
    """Axes whose degree differs from that of the checkpoint, as far as it is stated."""
    saved = {axis: k.get(f"saved_{axis}") for axis in axes}
    return [axis for axis, was in saved.items() if was is not None and was != degree(k, axis)]


def _layouts(k: Knobs, *axes: str) -> str:
    """The degrees then and now."""
    pairs = [(axis, k.get(f"saved_{axis}", "?"), degree(k, axis)) for axis in axes]
    then = ", ".join(f"{axis} {was}" for axis, was, _ in pairs)
    return f"saved under {then}; loaded under " + ", ".join(f"{a} {now}" for a, _, now in pairs)


@demand(
    "DAT360",
    "Optimizer states of another layout",
    severity=Severity.ERROR,
    section="4.3",
    scope="megatron-core>=0.15",
    source=f"{_LOADING} (0.15.0, 0.19.2); NVIDIA/Megatron-LM#1517",
    confidence="read",
    consequence='RuntimeError: "(TP, PP) mismatch after resume: not supported for '
    'DistributedOptimizer with sharding type dp_reshardable"',
    suggest={"optimizer_fully_reshardable": True},
)
def states_do_not_reshard(k: Knobs) -> bool:
    """Weights of a distributed checkpoint load under any layout, optimizer states do not.

    From 0.15 on they are written by bucket (dp_reshardable), and only the data-parallel degree may
    change. Save with --dist-ckpt-optim-fully-reshardable, or give them up with --no-load-optim.

    Fails: knobs(ckpt_load="checkpoints", use_distributed_optimizer=True, ckpt_format="torch_dist",
        saved_pp=4, saved_ep=1, pp=1, ep=4)
    Passes: knobs(ckpt_load="checkpoints", use_distributed_optimizer=True,
        ckpt_format="torch_dist", saved_pp=4, pp=1, optimizer_fully_reshardable=True)
    Passes: knobs(ckpt_load="checkpoints", use_distributed_optimizer=True,
        ckpt_format="torch_dist", saved_pp=4, pp=1, no_load_optim=True)
    """
    if k.get("optimizer_fully_reshardable"):
        return False
    return bool(_loads_sharded_states(k) and _changed(k, "tp", "pp", "ep", "etp"))


@states_do_not_reshard.message
def _(k: Knobs) -> str:
    return _layouts(k, *_changed(k, "tp", "pp", "ep", "etp"))


@demand(
    "DAT360",
    "Optimizer states of another expert layout (up to 0.14)",
    severity=Severity.ERROR,
    section="4.3",
    scope="megatron-core<=0.14",
    source="NVIDIA/Megatron-LM#1517 (core 0.11); closed as fixed by later releases",
    confidence="read",
    consequence="the load fails on missing or differently shaped optimizer entries of the experts",
    suggest={"no_load_optim": True},
)
def expert_states_do_not_reshard(k: Knobs) -> bool:
    """Up to 0.14 states reshard over tp and pp after a parallel save, but not over experts' ranks.

    Load the weights alone (--no-load-optim --finetune), or keep ep.

    Fails: knobs(framework="megatron-lm 0.12", ckpt_load="checkpoints", saved_ep=1, ep=4,
        use_distributed_optimizer=True, ckpt_format="torch_dist")
    Passes: knobs(framework="megatron-lm 0.12", ckpt_load="checkpoints", saved_ep=4, ep=4,
        use_distributed_optimizer=True, ckpt_format="torch_dist")
    """
    unequal = k.get("ckpt_fully_parallel_save") is False
    axes = ("ep", "etp", "tp", "pp") if unequal else ("ep", "etp")
    return bool(_loads_sharded_states(k) and _changed(k, *axes))


@expert_states_do_not_reshard.message
def _(k: Knobs) -> str:
    return _layouts(k, *_changed(k, "ep", "etp", "tp", "pp"))


@demand(
    "DAT361",
    "Optimizer states of experts listed by rank",
    severity=Severity.INFO,
    section="4.3",
    scope="megatron-core>=0.15",
    source="modelscope/ms-swift#8240; cause and repair in radixark/Megatron-LM#66",
    confidence="read",
    consequence="the resume can fail on lists of different lengths although nothing has changed",
    says="optimizer states of a model with {num_experts} experts are loaded from {ckpt_load} as "
    "dp_reshardable",
    suggest={"optimizer_fully_reshardable": True},
)
def states_are_listed_by_rank(k: Knobs) -> bool:
    """The dp_reshardable format lists a rank's parameters in a state common to all ranks.

    Equal slices by bytes hold one large expert on some ranks and many small tensors on others, so
    the lists differ in length. Dense models of even sizes never show it.

    Fails: megatron-lm 0.19: --load checkpoints --use-distributed-optimizer
        --ckpt-format torch_dist --num-experts 64
    Passes: knobs(ckpt_load="checkpoints", use_distributed_optimizer=True,
        ckpt_format="torch_dist", num_experts=64, optimizer_fully_reshardable=True)
    Passes: megatron-lm 0.19: --load checkpoints --use-distributed-optimizer
        --ckpt-format torch_dist
    """
    listed = not k.get("optimizer_fully_reshardable")
    return bool(listed and is_moe(k) and _loads_sharded_states(k))


@demand(
    "DAT362",
    "Conversion of tied embeddings to several stages",
    severity=Severity.ERROR,
    section="4.3",
    scope="megatron-lm",
    source="NVIDIA/Megatron-LM#5737; tools/checkpoint/saver_base.py",
    confidence="read",
    consequence="AssertionError while the last stage's output layer is set up: every stage is "
    "built as if it were the first",
    says="converter to pp {pp} of a model with tied embeddings",
    suggest={"pp": 1},
)
def converter_builds_first_stages(k: Knobs) -> bool:
    """The saver builds the stages one after another without telling each its pipeline rank.

    Only tied models look at it. Convert to one stage and reshard through a distributed checkpoint.

    Fails: knobs(converter_saver="core", pp=2, model_ties_embeddings=True)
    Passes: megatron-lm: python tools/checkpoint/convert.py --saver core
        --target-pipeline-parallel-size 1
    Passes: knobs(converter_saver="core", pp=1, model_ties_embeddings=True)
    Passes: knobs(converter_saver="core", pp=2, model_ties_embeddings=False)
    """
    return bool(k.converter_saver and k.pp > 1 and k.model_ties_embeddings)


@demand(
    "DAT363",
    "Vocabulary grown past the checkpoint's padding",
    severity=Severity.ERROR,
    section="4.3",
    scope="megatron-lm",
    source="epfLLM/Megatron-LLM#103; Megatron-LM megatron/training/tokenizer/tokenizer.py "
    "_vocab_size_with_padding (0.19.2)",
    confidence="arithmetic",
    consequence="the load fails on the shape of embedding and head, unless the checkpoint was "
    "made with the same tokens",
    suggest={"vocab_extra_ids_list": None},
)
def added_tokens_need_rows(k: Knobs) -> bool:
    """The vocabulary is padded to a multiple of 128 * tp; a few tokens more can add a whole block.

    Resize the checkpoint when tokens are added, or leave them out.

    Fails: megatron-lm 0.19: --load checkpoint --vocab-extra-ids-list "<|im_start|>,<|im_end|>"
        --vocab-size 32000 --tensor-model-parallel-size 2
    Passes: megatron-lm 0.19: --load checkpoint --vocab-extra-ids-list "<|im_start|>,<|im_end|>"
        --vocab-size 31900 --tensor-model-parallel-size 2
    """
    if k.get("ckpt_load") is None:
        return False
    before, after = _padded_rows(k)
    return before != after


@added_tokens_need_rows.message
def _(k: Knobs) -> str:
    before, after = _padded_rows(k)
    return (
        f"{len(_added(k))} tokens added to {k.vocab_size} pad to {after} rows under tp "
        f"{degree(k, 'tp')}; a checkpoint without them has {before}"
    )


def _added(k: Knobs) -> list[str]:
    return [token for token in str(k.vocab_extra_ids_list).split(",") if token]


def _padded_rows(k: Knobs) -> tuple[int, int]:
    """Rows of the embedding without and with the added tokens."""
    multiple = (k.get("make_vocab_size_divisible_by") or VOCABULARY_UNIT) * degree(k, "tp")
    sizes = (k.vocab_size, k.vocab_size + len(_added(k)))
    before, after = (-(-size // multiple) * multiple for size in sizes)
    return before, after


@demand(
    "DAT365",
    "fsdp_dtensor checkpoints without Megatron-FSDP",
    severity=Severity.ERROR,
    section="4.3",
    scope="megatron-lm>=0.14",
    source="Megatron-LM megatron/training/arguments.py validate_args (0.19.2)",
    consequence='AssertionError: "--ckpt-format fsdp_dtensor is only tested with Megatron FSDP."',
    says="ckpt_format fsdp_dtensor with use_megatron_fsdp {use_megatron_fsdp}",
    suggest={"ckpt_format": "torch_dist"},
)
def format_of_no_fsdp(k: Knobs) -> bool:
    """The format describes DTensors, which only Megatron-FSDP makes of the parameters.

    Fails: megatron-lm 0.19: --ckpt-format fsdp_dtensor
    Passes: megatron-lm 0.19: --ckpt-format fsdp_dtensor --use-megatron-fsdp
    """
    return bool(k.ckpt_format == "fsdp_dtensor" and not k.use_megatron_fsdp)
