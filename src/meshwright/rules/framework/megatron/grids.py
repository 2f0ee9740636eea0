"""Separate encoders and module grids: parts of a model on meshes of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.finding import Severity
from meshwright.rules.demand import demand
from meshwright.rules.framework.megatron.sources import degree

if TYPE_CHECKING:
    from meshwright.frameworks.knobs import Knobs

_CORE = "Megatron-LM megatron/core"


@demand(
    "MOD194",
    "Encoder TP wider than decoder TP",
    severity=Severity.ERROR,
    section="5.1",
    scope="megatron-core>=0.9,<=0.12",
    source=f"{_CORE}/parallel_state.py initialize_model_parallel (0.12.3; gone in 0.14.0)",
    consequence='AssertionError: "We do not support encoders with more TP than the decoder."',
    says="encoder_tp {encoder_tp} over tp {tp}",
)
def encoder_is_wider(k: Knobs) -> bool:
    """Encoder ranks hand over to decoder ranks of at least their number.

    Fails: megatron-lm 0.12: --encoder-tensor-model-parallel-size 4 --tensor-model-parallel-size 2
    Passes: megatron-lm 0.12: --encoder-tensor-model-parallel-size 2
        --tensor-model-parallel-size 4
    """
    return bool(k.encoder_tp > k.tp)


@demand(
    "MOD195",
    "Encoder and decoder grids do not tile the world",
    severity=Severity.ERROR,
    section="5.1",
    scope="megatron-core>=0.9,<=0.12",
    source=f"{_CORE}/parallel_state.py initialize_model_parallel (0.12.3; gone in 0.14.0)",
    consequence='RuntimeError: "world_size (16) is not divisible by 10"',
    says="{num_gpus} GPUs are no multiple of encoder_tp {encoder_tp} * encoder_pp {encoder_pp} * "
    "cp {cp} + tp {tp} * pp {pp} * cp {cp}",
)
def sizes_do_not_add_up(k: Knobs) -> bool:
    """Encoder and decoder stand side by side, so their sizes are added, not multiplied.

    Fails: knobs(framework="megatron-lm 0.12", encoder_tp=1, encoder_pp=2, tp=4, pp=2, cp=1,
        num_gpus=16)
    Passes: knobs(framework="megatron-lm 0.12", encoder_tp=2, encoder_pp=2, tp=2, pp=2, cp=1,
        num_gpus=16)
    """
    cp = degree(k, "cp")
    size = degree(k, "encoder_tp") * k.encoder_pp * cp + k.tp * k.pp * cp
    return bool(k.encoder_pp > 0 and k.num_gpus % size)


@demand(
    "MOD196",
    "Module grid larger than the ranks left for it",
    severity=Severity.ERROR,
    section="5.1",
    scope="megatron-core>=0.14",
    source=f"{_CORE}/hyper_comm_grid.py HyperCommGrid.__init__ (0.19.2)",
    consequence='RuntimeError: "Grid shape [4, 1, 1, 8, 1, 1] is over sized with world size 16 and '
    'rank offset 0"',
    says="a grid of {module_grid_size} ranks from rank {module_rank_offset} on, of {num_gpus}",
)
def grid_leaves_the_world(k: Knobs) -> bool:
    """A module's grid is a run of consecutive ranks and must end within the job.

    Fails: knobs(module_grid_size=16, module_rank_offset=8, num_gpus=16)
    Passes: knobs(module_grid_size=8, module_rank_offset=8, num_gpus=16)
    """
    return bool(k.module_grid_size > k.num_gpus - (k.get("module_rank_offset") or 0))


@demand(
    "MOD197",
    "Colocated encoder and language model do not match",
    severity=Severity.ERROR,
    section="5.1",
    scope="megatron-core>=0.18",
    source=f"{_CORE}/models/mimo/comm/colocated_communicator.py "
    "ColocatedBridgeCommunicator._validate_grids (0.19.2)",
    consequence='ValueError: "Grids must span same number of ranks: src=8, dest=16", "src PP must '
    'be 1", "DP sizes must be evenly divisible"',
    says="encoder on {encoder_world} ranks, language model on {lm_world}; encoder_pp {encoder_pp}, "
    "pp {pp}, cp {cp}, encoder_dp {encoder_dp}, dp {dp}",
)
def colocated_grids_differ(k: Knobs) -> bool:
    """Both modules run on the same ranks, one after the other, and trade batches in place.

    Fails: knobs(mimo_colocated=True, encoder_world=8, lm_world=16, encoder_pp=1, pp=1, cp=1,
        encoder_dp=8, dp=8)
    Passes: knobs(mimo_colocated=True, encoder_world=16, lm_world=16, encoder_pp=1, pp=1, cp=1,
        encoder_dp=8, dp=4)
    """
    if not k.mimo_colocated:
        return False
    same = k.encoder_world == k.lm_world and (k.get("encoder_rank_offset") or 0) == (
        k.get("lm_rank_offset") or 0
    )
    flat = k.encoder_pp == k.pp == degree(k, "cp") == 1
    return not (same and flat and _divides(k.encoder_dp, k.dp))


@demand(
    "MOD198",
    "CP across a module bridge, or TP leaders that do not divide",
    severity=Severity.ERROR,
    section="5.1",
    scope="megatron-core>=0.15",
    source=f"{_CORE}/pipeline_parallel/bridge_communicator.py BridgeCommunicator (0.19.2)",
    consequence='AssertionError: "Source grid CP size must be 1, got 2"',
    says="bridge between encoder_cp {encoder_cp}, encoder_dp {encoder_dp} and cp {cp}, dp {dp}",
)
def bridge_cannot_pair_ranks(k: Knobs) -> bool:
    """The bridge sends whole samples from replica to replica: sequences may not be cut.

    One data-parallel degree must be a multiple of the other.

    Fails: knobs(mimo_bridge=True, encoder_cp=2, cp=1, encoder_dp=2, dp=4)
    Passes: knobs(mimo_bridge=True, encoder_cp=1, cp=1, encoder_dp=2, dp=4)
    """
    whole = degree(k, "encoder_cp") == degree(k, "cp") == 1
    return bool(k.mimo_bridge and not (whole and _divides(k.encoder_dp, k.dp)))


def _divides(one: int, other: int) -> bool:
    """Whether one of two degrees is a multiple of the other."""
    return max(one, other) % min(one, other) == 0
