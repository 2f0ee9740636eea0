"""FSDP in the words of torch, accelerate and transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from meshwright.frameworks.meanings import Meanings

NUMBERED = ("full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "hybrid_shard_zero2")
WORDS = {
    "full_shard": (3, True, False),
    "shard_grad_op": (3, False, False),
    "no_shard": (0, True, False),
    "hybrid_shard": (3, True, True),
    "hybrid_shard_zero2": (3, False, True),
    "_hybrid_shard_zero2": (3, False, True),
    "fsdp": (3, True, False),
    "hsdp": (3, True, True),
    "ddp": (0, True, False),
}
"""Strategy: stage of ZeRO, whether weights are freed after the forward pass, whether by node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """The fields in which a framework states FSDP; "" where it has none."""

    version: str = ""
    strategy: str = ""
    reshard: str = ""
    offload: tuple[str, ...] = ()
    checkpointing: str = ""
    checkpointing_offload: str = ""
    state_dict: str = ""
    efficient_loading: str = ""

    @property
    def listed(self) -> tuple[str, ...]:
        """All of them."""
        single = (self.version, self.strategy, self.reshard, self.checkpointing)
        more = (self.checkpointing_offload, self.state_dict, self.efficient_loading)
        return tuple(name for name in (*single, *more, *self.offload) if name)


def strategy_of(value: Any) -> tuple[int, bool, bool] | None:
    """Stage, freed after the forward pass, and by node, of a strategy's number or word."""
    word = str(value).strip().lower().rpartition(".")[2]
    if word.isdigit() and 1 <= int(word) <= len(NUMBERED):
        word = NUMBERED[int(word) - 1]
    return WORDS.get(word)


def truth(value: Any) -> bool | None:
    """A boolean, or its words; None for anything else."""
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower()
    return {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}.get(word)


def give_fsdp(
    m: Meanings, names: Names, *, version: int, stated: tuple[str, ...] = (), strategy: str = ""
) -> None:
    """FSDP with what its settings say: sharding, offload, recompute, checkpoint.

    `version` is the one that stands where none is stated; `stated` are fields that turn it on, and
    `strategy` the word for it that one of them holds.
    """
    found = _number(m.field(names.version)) if names.version else None
    m.give("use_fsdp", True, *stated)
    m.give("fsdp_version", found or version, names.version)
    _give_stage(m, names, found or version, stated, strategy)
    if any(truth(m.field(name)) for name in names.offload):
        m.give("offload_params", True, *names.offload)
        m.give("offload_optimizer", 1.0, *names.offload)
    if names.checkpointing and truth(m.field(names.checkpointing)):
        m.give("recompute", "full", names.checkpointing)
    if names.checkpointing_offload and truth(m.field(names.checkpointing_offload)):
        m.give("offload_activations", 1.0, names.checkpointing_offload)
    if names.efficient_loading and truth(m.config.stated(names.efficient_loading)):
        m.give("model_build", "first_rank", names.efficient_loading)
    if names.state_dict and m.is_stated(names.state_dict):
        whole = str(m.field(names.state_dict)).upper().startswith("FULL")
        m.give("checkpoint_gathered", whole, names.state_dict)


def _give_stage(
    m: Meanings, names: Names, version: int, stated: tuple[str, ...], strategy: str
) -> None:
    """The stage of ZeRO that a strategy, or the freeing of weights, stands for.

    FSDP2 does not read the strategy, only whether weights are freed after the forward pass.
    """
    named = bool(names.strategy) and m.is_stated(names.strategy)
    name = names.strategy if named and not (version > 1 and names.reshard) else names.reshard
    value = m.field(name) if name and m.is_stated(name) else (strategy or None)
    if name and name == names.reshard and m.is_stated(name):
        m.give("fsdp_reshard_stated", value, name)
    known = strategy_of(value) if value is not None else None
    if known is None:
        kept = truth(value) if version > 1 or isinstance(value, bool) else None
        known = (3, kept is not False, False)
    where = (name, *stated) if name else stated
    m.give("zero_stage", known[0], *where)
    m.give("reshard_after_forward", known[1], *where)
    if known[2]:
        give_hybrid(m, *where)


def give_hybrid(m: Meanings, *names: str) -> None:
    """Sharding inside a node and replication across: one replica a node, where they are known."""
    nodes = m.value("num_nodes")
    if nodes is None and m.value("num_gpus") and m.value("gpus_per_node"):
        nodes = max(m.count("num_gpus") // m.count("gpus_per_node"), 1)
    if isinstance(nodes, int) and nodes >= 1:
        m.give("dp_replicate", nodes, *names)


def _number(value: Any) -> int | None:
    try:
        return int(value)
    except (TypeError, ValueError):
        return None
