"""What trainers without a table of their own demand, known by the names of their settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.finding import Severity
from meshwright.rules.demand import demand
from meshwright.rules.framework.degrees import data_parallel

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from meshwright.frameworks.knobs import Knobs


@demand(
    "DAT168",
    "Micro-batch of tokens that cuts sequences (OLMo-core)",
    severity=Severity.ERROR,
    section="4.1",
    scope="any",
    source="OLMo-core src/olmo_core/train/train_module/transformer/train_module.py (2.2)",
    confidence="read",
    consequence="OLMoConfigurationError: rank microbatch size must be divisible by the sequence "
    "length",
    says="rank_microbatch_size {micro_batch_tokens} tokens are no multiple of the sequence length "
    "{seq_len}",
)
def a_micro_batch_is_whole_sequences(k: Knobs) -> bool:
    """The micro-batch of a rank counts tokens, and holds whole sequences.

    Fails: knobs(micro_batch_tokens=6000, seq_len=4096)
    Passes: knobs(micro_batch_tokens=8192, seq_len=4096)
    """
    return bool(k.micro_batch_tokens % k.seq_len)


@a_micro_batch_is_whole_sequences.fix
def _(k: Knobs) -> Mapping[str, Any]:
    return {"micro_batch_tokens": max(k.micro_batch_tokens // k.seq_len, 1) * k.seq_len}


@demand(
    "DAT276",
    "Optimizer shards that do not divide the replicas (InternLM)",
    severity=Severity.ERROR,
    section="4.2",
    scope="any",
    source="InternEvo internlm/core/context/parallel_context.py (0.4)",
    confidence="read",
    consequence='AssertionError: "zero1_size:8 should be less than dp_size:1"',
)
def shards_divide_the_replicas(k: Knobs) -> bool:
    """zero1 counts ranks that share the optimizer states, all of one data-parallel group.

    Fails: knobs(zero1_group=8, num_gpus=8, tp=4, pp=2)
    Passes: knobs(zero1_group=8, num_gpus=8, tp=1, pp=1)
    Passes: knobs(zero1_group=-1, num_gpus=8, tp=4, pp=2)
    """
    group = int(k.zero1_group)
    return group > 1 and data_parallel(k) % group != 0


@shards_divide_the_replicas.message
def _(k: Knobs) -> str:
    return (
        f"zero1 {k.zero1_group} with a data-parallel size dp of {data_parallel(k)}: {k.num_gpus} "
        f"GPUs over tp {k.get('tp') or 1} x pp {k.get('pp') or 1}"
    )


@shards_divide_the_replicas.fix
def _(k: Knobs) -> Mapping[str, Any]:
    return {"zero1_group": data_parallel(k)}


@demand(
    "DAT366",
    "Distributed checkpoint of meshes with unequal tp (FlagScale)",
    severity=Severity.ERROR,
    section="4.3",
    scope="any",
    source="flagos-ai/FlagScale#319",
    confidence="read",
    consequence="the save fails: the distributed checkpoint format knows one mesh alone",
    says="heterogeneous process meshes of tp {hetero_tp} with the distributed checkpoint format "
    "{ckpt_format}",
    suggest={"ckpt_format": "torch"},
)
def one_format_knows_many_meshes(k: Knobs) -> bool:
    """Ranks of several meshes hold shards of several sizes; --ckpt-format torch writes them as is.

    Fails: knobs(hetero_tp=[2, 4], ckpt_format="torch_dist")
    Passes: knobs(hetero_tp=[2, 4], ckpt_format="torch")
    Passes: knobs(hetero_tp=[2, 2], ckpt_format="torch_dist")
    """
    return len(set(k.hetero_tp)) > 1 and k.ckpt_format in ("torch_dist", "zarr", "torch_dcp")
