"""What ColossalAI's hybrid plugins demand, and what they leave in a saved model.

Sections 4.2, 4.3 and 5.1 of the guidelines.
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

_PLUGIN = (
    "ColossalAI colossalai/booster/plugin/hybrid_parallel_plugin.py HybridParallelPlugin.__init__ "
    "(4f9953be)"
)
PADDING_MULTIPLE = 64  # of HybridParallelPlugin's make_vocab_size_divisible_by


@demand(
    "DAT202",
    "ZeRO-2 with pipeline parallelism (ColossalAI)",
    severity=Severity.ERROR,
    section="4.2",
    scope="colossalai",
    source=_PLUGIN,
    consequence="AssertionError: When using pipeline parallelism, ZeRO stage must be 0 or 1",
    confidence="read",
    says="zero_stage {zero_stage} with pp {pp}",
    suggest={"zero_stage": 1},
)
def pipeline_takes_stage_one(k: Knobs) -> bool:
    """The plugin accumulates whole gradients over the micro-batches of a pipeline.

    Stage 3 is the Gemini plugin's, which has no pipeline.

    Fails: colossalai 0.4: plugin = HybridParallelPlugin(tp_size=1, pp_size=2, zero_stage=2)
    Passes: colossalai 0.4: plugin = HybridParallelPlugin(tp_size=1, pp_size=2, zero_stage=1)
    """
    return degree(k, "pp") > 1 and k.get("zero_stage", 0) > 1


@demand(
    "DAT284",
    "Pipeline without its micro-batches (ColossalAI)",
    severity=Severity.ERROR,
    section="4.2",
    scope="colossalai",
    source=_PLUGIN,
    consequence="AssertionError: num_microbatches or microbatch_size must be specified when using "
    "pipeline parallelism",
    confidence="read",
    says="pp_size {pp} with neither num_microbatches nor microbatch_size",
    suggest={"num_microbatches": 8},
)
def pipeline_is_told_its_micro_batches(k: Knobs) -> bool:
    """The plugin does not guess how the batch is cut.

    Fails: colossalai 0.4: plugin = HybridParallelPlugin(tp_size=2, pp_size=2, zero_stage=1)
    Passes: colossalai 0.4: plugin = HybridParallelPlugin(tp_size=2, pp_size=2, zero_stage=1,
        num_microbatches=4)
    """
    return degree(k, "pp") > 1 and k.pipeline_batch_stated is False


@demand(
    "MOD338",
    "Ranks for a sequence without sequence parallelism (ColossalAI)",
    severity=Severity.ERROR,
    section="5.3",
    scope="colossalai",
    source=_PLUGIN,
    consequence="AssertionError: You should not set sp_size when sequence parallelism is not "
    "enabled.",
    confidence="read",
    says="sp_size {sp_size_stated} with enable_sequence_parallelism = false",
    suggest={"enables_sequence_parallelism": True},
)
def shared_sequences_are_enabled(k: Knobs) -> bool:
    """The plugin shares a sequence among ranks only where it is told to.

    Fails: colossalai 0.4: plugin = HybridParallelPlugin(tp_size=1, pp_size=1, sp_size=4)
    Passes: colossalai 0.4: plugin = HybridParallelPlugin(tp_size=1, pp_size=1, sp_size=4,
        enable_sequence_parallelism=True, sequence_parallelism_mode="all_to_all")
    """
    return k.sp_size_stated > 1 and k.get("enables_sequence_parallelism", False) is not True


def _chunk_demand(k: Knobs) -> str:
    """What the style demands of the number of model chunks, "" where it is met."""
    style, chunks = k.get("pp_style", "1f1b"), k.get("num_model_chunks", 1) or 1
    wants = {
        "1f1b": "" if chunks == 1 else "exactly 1",
        "interleaved": "" if chunks >= 2 else "2 or more",
        "zbv": "" if chunks == 2 else "exactly 2",
    }
    return wants.get(str(style), "")


@demand(
    "MOD137",
    "Model chunks do not fit the pipeline style",
    severity=Severity.ERROR,
    section="5.1",
    scope="colossalai",
    source=_PLUGIN,
    consequence="AssertionError: number of model chunks must be 1 when using 1f1b, more than 1 "
    "when using interleaved, 2 when using zbv",
    confidence="read",
)
def chunks_fit_the_style(k: Knobs) -> bool:
    """Each style of pipeline places its own number of chunks on a rank.

    Fails: colossalai 0.4: plugin = HybridParallelPlugin(tp_size=1, pp_size=4,
        pp_style="interleaved", num_model_chunks=1)
    Passes: colossalai 0.4: plugin = HybridParallelPlugin(tp_size=1, pp_size=4,
        pp_style="interleaved", num_model_chunks=2)
    """
    return degree(k, "pp") > 1 and bool(_chunk_demand(k))


@chunks_fit_the_style.message
def _(k: Knobs) -> str:
    return (
        f"num_model_chunks {k.get('num_model_chunks', 1)} with pp_style = "
        f"{k.get('pp_style', '1f1b')}, which takes {_chunk_demand(k)}"
    )


@chunks_fit_the_style.fix
def _(k: Knobs) -> Mapping[str, Any]:
    return {"num_model_chunks": 1 if k.get("pp_style", "1f1b") == "1f1b" else 2}


@demand(
    "MOD149",
    "EP not a divisor of DP",
    severity=Severity.ERROR,
    section="5.1",
    scope="colossalai; deepspeed",
    source="ColossalAI colossalai/booster/plugin/moe_hybrid_parallel_plugin.py (4f9953be); "
    "DeepSpeed deepspeed/utils/groups.py (0.19.8)",
    consequence="AssertionError: dp_size should be divisible by ep_size",
    confidence="read",
)
def experts_stay_within_replicas(k: Knobs) -> bool:
    """The classical rule: experts spread over data-parallel ranks only.

    Megatron folds them over tensor- and context-parallel ranks too, where ep may exceed dp.

    Fails: knobs(framework="colossalai 0.4", ep=8, dp=4, tp=2)
    Passes: knobs(framework="colossalai 0.4", ep=4, dp=4, tp=2)
    """
    if k.framework.startswith("deepspeed") and not k.get("native_moe", False):
        return False
    if not (k.framework.startswith("colossalai") or runs_deepspeed(k)):
        return False
    return degree(k, "ep") > 1 and data_parallel(k) % k.ep != 0


@experts_stay_within_replicas.message
def _(k: Knobs) -> str:
    return f"ep {k.ep} does not divide {data_parallel(k)} data-parallel ranks"


@experts_stay_within_replicas.fix
def _(k: Knobs) -> Mapping[str, Any]:
    return {"ep": [d for d in divisors(data_parallel(k)) if d <= k.ep][-1]}


def _padded(k: Knobs) -> int:
    """Rows of the embedding that training holds."""
    unit = int(k.get("make_vocab_size_divisible_by") or PADDING_MULTIPLE) * degree(k, "tp")
    return -(-int(k.vocab_size) // unit) * unit


@demand(
    "DAT344",
    "Padded vocabulary in the exported weights",
    severity=Severity.ERROR,
    section="4.3",
    scope="colossalai",
    source="ColossalAI issue 6167; colossalai/shardformer/layer/embedding.py (0.4)",
    consequence="no error at the save; the export holds more rows than its config.json says, and "
    "loading it elsewhere fails: size mismatch for embed_tokens.weight",
    confidence="doc",
)
def export_has_the_vocabulary_it_says(k: Knobs) -> bool:
    """Under tensor parallelism the embedding is padded, and a sharded save keeps the padding.

    The configuration that is saved beside it still states the plain vocabulary, so the mismatch
    shows only when the model is loaded. Strip the rows when saving, or train with a vocabulary that
    is a multiple of the padding.

    Fails: knobs(framework="colossalai 0.4", tp=2, vocab_size=65535)
    Passes: knobs(framework="colossalai 0.4", tp=2, vocab_size=65536)
    """
    return degree(k, "tp") > 1 and _padded(k) != k.vocab_size


@export_has_the_vocabulary_it_says.message
def _(k: Knobs) -> str:
    return f"vocab_size {k.vocab_size} under tp {k.tp} is trained and saved as {_padded(k)} rows"


@export_has_the_vocabulary_it_says.fix
def _(k: Knobs) -> Mapping[str, Any]:
    return {"vocab_size": _padded(k)}
