"""Lengths of sequences: padding for parallel ranks and 8-bit products, and what a loss counts."""

from __future__ import annotations

from itertools import pairwise
from math import lcm
from typing import TYPE_CHECKING

from meshwright.base.finding import Severity
from meshwright.rules.demand import demand
from meshwright.rules.framework.megatron import sources
from meshwright.rules.framework.megatron.sources import degree

if TYPE_CHECKING:
    from meshwright.frameworks.knobs import Knobs

PER_TENSOR_BLOCK, MXFP8_BLOCK = 16, 32
BLOCKS = {"mxfp8": MXFP8_BLOCK, "blockwise": 128}  # tokens; per-tensor scaling needs 16


@demand(
    "DAT160",
    "Loss that depends on the micro-batch",
    severity=Severity.WARNING,
    section="4.1",
    scope="megatron-lm; megatron-bridge; nemo",
    source="NVIDIA-NeMo/Speech#8343 and #11939",
    confidence="read",
    consequence="no error: the objective silently changes with micro_batch_size and with who "
    "shares a micro-batch",
    says="masked tokens, per_token_loss {per_token_loss}, micro_batch_size {micro_batch_size}",
    suggest={"per_token_loss": True},
)
def loss_is_a_mean_of_means(k: Knobs) -> bool:
    """Tokens are averaged inside a micro-batch, and then the micro-batches with equal weight.

    Where answers differ in length, a token weighs more beside short neighbors. Sum over the whole
    batch and divide by its tokens (--calculate-per-token-loss), or pack to full length.

    Fails: knobs(masked_loss=True, per_token_loss=False, packed=False, micro_batch_size=8)
    Passes: knobs(masked_loss=True, per_token_loss=True, packed=False, micro_batch_size=8)
    Passes: knobs(masked_loss=True, per_token_loss=False, packed=True, micro_batch_size=1)
    """
    varies = (k.get("masked_loss") or k.get("sft")) and not k.get("packed")
    alone = k.get("num_microbatches") == 1 and k.get("dp") == 1
    return bool(varies and not alone and not k.get("per_token_loss") and k.micro_batch_size)


@demand(
    "DAT161",
    "Packed sequences of odd lengths under CP",
    severity=Severity.ERROR,
    section="4.1",
    scope="transformer-engine; megatron-core",
    source="NVIDIA/TransformerEngine#1930",
    confidence="read",
    consequence="no error: lengths are floored to whole chunks, the last tokens are dropped and "
    "the result is silently wrong",
)
def packed_parts_do_not_fill_chunks(k: Knobs) -> bool:
    """Context parallelism cuts every sequence of a pack, not the pack, into 2*cp chunks.

    Pad each to a multiple of 2*cp and pass the padded offsets beside the real ones.

    Fails: knobs(cp=2, doc_lens=[4, 3])
    Fails: knobs(cp=2, cu_seqlens=[0, 4, 7])
    Passes: knobs(cp=2, doc_lens=[4, 4])
    Passes: knobs(cp=1, doc_lens=[4, 3])
    """
    return k.cp > 1 and bool(_odd_lengths(k))


def _odd_lengths(k: Knobs) -> list[int]:
    """Lengths in a pack, or between its offsets, that chunks do not fill."""
    lengths = k.get("doc_lens")
    if lengths is None:
        offsets = k.cu_seqlens
        lengths = [end - start for start, end in pairwise(offsets)]
    return [length for length in lengths if length % (2 * k.cp)]


@packed_parts_do_not_fill_chunks.message
def _(k: Knobs) -> str:
    odd = _odd_lengths(k)
    unit = 2 * k.cp
    return (
        f"packed lengths {odd[:5]} are no multiples of 2 * cp = {unit}; {odd[0]} is taken as "
        + (f"{odd[0] // unit * unit}")
    )


@demand(
    "DAT162",
    "Sequence divisor too small for the ranks",
    severity=Severity.ERROR,
    section="4.1",
    scope="nemo-rl; megatron-core",
    source="NVIDIA-NeMo/RL#3563, #1551",
    confidence="arithmetic",
    consequence="the first batch whose padded length does not divide fails in the split over ranks"
    " or in the quantizer",
)
def padding_does_not_reach_the_ranks(k: Knobs) -> bool:
    """Context parallelism cuts a sequence in 2*cp chunks, sequence parallelism a rank's part in tp.

    Both together need lcm(2*cp, cp*tp): neither the larger of the two nor their product. FP8 takes
    whole blocks of every rank's part, for which nobody pads where sequences are not packed.

    Fails: nemo-rl: policy.make_sequence_length_divisible_by=4
        policy.megatron_cfg.tensor_model_parallel_size=4
        policy.megatron_cfg.context_parallel_size=2 policy.megatron_cfg.sequence_parallel=true
    Passes: nemo-rl: policy.make_sequence_length_divisible_by=8
        policy.megatron_cfg.tensor_model_parallel_size=4
        policy.megatron_cfg.context_parallel_size=2 policy.megatron_cfg.sequence_parallel=true
    Passes: nemo-rl: policy.make_sequence_length_divisible_by=4
        policy.megatron_cfg.tensor_model_parallel_size=4
        policy.megatron_cfg.context_parallel_size=2 policy.megatron_cfg.sequence_parallel=false
    Fails: knobs(framework="nemo-rl", make_sequence_length_divisible_by=4, tp=4,
        sequence_parallel=True, fp8=True, fp8_recipe="tensorwise")
    Passes: knobs(framework="nemo-rl", make_sequence_length_divisible_by=64, tp=4,
        sequence_parallel=True, fp8=True, fp8_recipe="tensorwise")
    """
    return bool(k.make_sequence_length_divisible_by % _divisor(k))


def _divisor(k: Knobs) -> int:
    """What a padded length must divide by."""
    tp, cp = degree(k, "tp"), degree(k, "cp")
    block = 1
    if k.get("fp8") and not k.get("packed") and k.get("sequence_parallel") and tp > 1:
        block = BLOCKS.get(str(k.get("fp8_recipe")), PER_TENSOR_BLOCK)
    return lcm(2 * cp if cp > 1 else 1, (cp * tp if k.get("sequence_parallel") else cp) * block)


@padding_does_not_reach_the_ranks.message
def _(k: Knobs) -> str:
    return (
        f"make_sequence_length_divisible_by {k.make_sequence_length_divisible_by} with tp "
        f"{degree(k, 'tp')} and cp {degree(k, 'cp')}"
        + (f", fp8_recipe {k.get('fp8_recipe')}" if k.get("fp8") else "")
        + f": sequence lengths must divide by {_divisor(k)}"
    )


@padding_does_not_reach_the_ranks.fix
def _(k: Knobs) -> dict[str, int]:
    return {"make_sequence_length_divisible_by": _divisor(k)}


@demand(
    "DAT163",
    "Packs padded to half an MXFP8 block",
    severity=Severity.ERROR,
    section="4.1",
    scope="ms-swift<=4.4.2",
    source="modelscope/ms-swift#9722; swift/megatron/utils/utils.py get_padding_to (4.4.2 against "
    "4.4.3)",
    confidence="read",
    consequence="the quantizer refuses the first pack whose part on a rank is no multiple of 32 "
    "tokens, some steps into the run",
)
def packs_end_in_half_a_block(k: Knobs) -> bool:
    """MXFP8 scales blocks of 32 tokens on each rank; packs are padded for per-tensor FP8, to 16.

    Under sequence parallelism a pack must divide by 32 * tp (and cp).

    Fails: ms-swift-megatron 4.4.2: --packing true --sequence_parallel true
        --tensor_model_parallel_size 4 --fp8_format e4m3 --fp8_recipe mxfp8
    Passes: ms-swift-megatron 4.4.2: --packing --sequence_parallel --tensor_model_parallel_size 4
        --fp8_recipe tensorwise
    Passes: ms-swift-megatron 4.4.2: --packing --sequence_parallel --tensor_model_parallel_size 1
        --fp8_recipe mxfp8
    """
    split = k.tp > 1 and k.sequence_parallel
    return bool(k.packed and split and k.fp8_recipe == "mxfp8")


@packs_end_in_half_a_block.message
def _(k: Knobs) -> str:
    ranks = degree(k, "tp") * degree(k, "cp")
    return (
        f"packs are padded to {PER_TENSOR_BLOCK} * {ranks} = {PER_TENSOR_BLOCK * ranks} tokens; "
        f"fp8_recipe mxfp8 under tp {degree(k, 'tp')} needs {MXFP8_BLOCK} * {ranks} = "
        f"{MXFP8_BLOCK * ranks}"
    )


@demand(
    "DAT164",
    "Pack that ends inside a quantization block",
    severity=Severity.ERROR,
    section="4.1",
    scope="megatron-core; transformer-engine",
    source="modelscope/ms-swift#9722; Megatron-LM megatron/core/fp8_utils.py get_fp8_align_size "
    "(0.19.2)",
    confidence="arithmetic",
    consequence="the quantizer refuses this pack when it comes, some steps into the run",
)
def pack_ends_inside_a_block(k: Knobs) -> bool:
    """Every rank quantizes its own part of a pack, in blocks of 16, 32 (MXFP8) or 128 tokens.

    A pack must divide by the block times the ranks that its tokens are split over.

    Fails: knobs(packed_length=31936, fp8=True, fp8_recipe="mxfp8", tp=4, sequence_parallel=True)
    Passes: knobs(packed_length=32000, fp8=True, fp8_recipe="mxfp8", tp=4, sequence_parallel=True)
    Passes: knobs(packed_length=31936, fp8=True, fp8_recipe="delayed", tp=4, sequence_parallel=True)
    """
    return bool(k.fp8 and k.packed_length % _block_over_ranks(k))


def _block_over_ranks(k: Knobs) -> int:
    """Tokens of a pack that give every rank whole blocks."""
    ranks = degree(k, "cp") * (degree(k, "tp") if k.get("sequence_parallel") else 1)
    return int(BLOCKS.get(str(k.get("fp8_recipe")), PER_TENSOR_BLOCK) * ranks)


@pack_ends_inside_a_block.message
def _(k: Knobs) -> str:
    unit = _block_over_ranks(k)
    return (
        f"a pack of {k.packed_length} tokens with fp8_recipe {k.get('fp8_recipe')} under tp "
        f"{degree(k, 'tp')}, cp {degree(k, 'cp')}: pad to a multiple of {unit}"
    )


@demand(
    "DAT280",
    "Losses reduced over the wrong ranks under CP",
    severity=Severity.ERROR,
    section="4.2",
    scope="skyrl",
    source="NovaSky-AI/SkyRL#1420",
    confidence="read",
    consequence="no error: losses are reported cp times too large, and gradients are silently "
    "wrong by 1/cp",
)
def losses_count_context_ranks(k: Knobs) -> bool:
    """Log-probabilities are gathered over the context-parallel ranks, and then summed over them.

    The reduction of metrics must leave cp out, the correction of gradients must count it in; early
    releases had it the other way round.

    Fails: skyrl: trainer.strategy=megatron
        trainer.policy.megatron_config.context_parallel_size=2
    Passes: skyrl: trainer.policy.megatron_config.context_parallel_size=1
    """
    return bool(k.cp > 1)


@losses_count_context_ranks.message
def _(k: Knobs) -> str:
    return (
        f"cp {k.cp}: losses are summed over ranks that include cp, {float(k.cp)} times too large; "
        f"gradients are {1 / k.cp:.2g} of what they should be"
    )


@demand(
    "DAT281",
    "FP8 weights kept by an optimizer that is not sharded",
    severity=Severity.ERROR,
    section="4.2",
    scope="megatron-lm>=0.8",
    source=sources.ARGUMENTS,
    confidence="read",
    consequence='AssertionError: "--fp8-param-gather only supported with distributed optimizer, '
    'torch fsdp2, megatron fsdp, or inference mode"',
    says="fp8_param_gather with use_distributed_optimizer {use_distributed_optimizer}",
    suggest={"use_distributed_optimizer": True},
)
def quantized_weights_need_a_master(k: Knobs) -> bool:
    """The weights live in FP8 alone, so the FP32 master that updates them must be sharded apart.

    Fails: megatron-lm 0.19: --fp8-param-gather
    Passes: megatron-lm 0.19: --fp8-param-gather --use-distributed-optimizer
    """
    kept = k.use_distributed_optimizer or k.get("use_torch_fsdp2") or k.get("use_megatron_fsdp")
    return bool(k.fp8_param_gather and not kept)


@demand(
    "DAT283",
    "Torch FSDP2 with fp16",
    severity=Severity.ERROR,
    section="4.2",
    scope="megatron-lm>=0.10",
    source=sources.ARGUMENTS,
    confidence="read",
    consequence='AssertionError: "--use-torch-fsdp2 not supported with fp16 yet"',
    says="use_torch_fsdp2 with fp16",
)
def scaler_does_not_see_shards(k: Knobs) -> bool:
    """Megatron's loss scaler looks for overflows in its own gradient buffers, not in FSDP2's.

    Fails: megatron-lm 0.19: --use-torch-fsdp2 --fp16
    Passes: megatron-lm 0.19: --use-torch-fsdp2
    """
    return bool(k.use_torch_fsdp2 and k.fp16)


@demand(
    "DAT116",
    "Sequence longer than the stated positions (Megatron)",
    severity=Severity.ERROR,
    section="4.1",
    scope="megatron-lm",
    source="Megatron-LM megatron/training/arguments.py validate_args (0.12.3, 0.19.2)",
    confidence="read",
    consequence='AssertionError: "max_position_embeddings must be greater than or equal to '
    'seq_length"',
    says="sequence length {seq_len} with max_position_embeddings {max_position_embeddings}",
)
def positions_are_fewer_than_tokens(k: Knobs) -> bool:
    """Megatron refuses whatever the kind of positions, rotary ones included.

    Fails: megatron-lm 0.19: --seq-length 8192 --max-position-embeddings 4096
    Passes: megatron-lm 0.19: --seq-length 4096 --max-position-embeddings 4096
    """
    return k.is_stated("max_position_embeddings") and bool(k.seq_len > k.max_position_embeddings)


@positions_are_fewer_than_tokens.fix
def _(k: Knobs) -> dict[str, int]:
    return {"max_position_embeddings": k.seq_len}
