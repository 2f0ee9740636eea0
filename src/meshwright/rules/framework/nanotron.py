"""What nanotron demands of heads, micro-batches and checkpoints.

Sections 4.3, 5.1 and 6.1 of the guidelines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.finding import Severity
from meshwright.rules.demand import demand

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from meshwright.frameworks.knobs import Knobs


@demand(
    "MOD105",
    "Fewer KV heads than TP (nanotron)",
    severity=Severity.ERROR,
    section="5.1",
    scope="nanotron",
    source="nanotron src/nanotron/config/config.py Config.__post_init__ (2411b022)",
    consequence="AssertionError: num_key_value_heads must be >= tp",
    confidence="read",
    says="{num_key_value_heads} KV heads over tp {tp}",
)
def every_rank_has_a_key_value_head(k: Knobs) -> bool:
    """nanotron splits key/value heads and never copies them.

    Fails: nanotron 0.4:
        parallelism:
          dp: 1
          pp: 1
          tp: 8
        model:
          model_config:
            num_attention_heads: 32
            num_key_value_heads: 4
            num_hidden_layers: 4
            hidden_size: 1024
    Passes: nanotron 0.4:
        parallelism:
          dp: 1
          pp: 1
          tp: 4
        model:
          model_config:
            num_attention_heads: 32
            num_key_value_heads: 4
            num_hidden_layers: 4
            hidden_size: 1024
    """
    return bool(k.num_key_value_heads < (k.get("tp") or 1))


@every_rank_has_a_key_value_head.fix
def _(k: Knobs) -> Mapping[str, Any]:
    return {"tp": k.num_key_value_heads}


@demand(
    "CMP136",
    "1F1B with fewer than PP-1 micro-batches (nanotron)",
    severity=Severity.ERROR,
    section="6.1",
    scope="nanotron",
    source="nanotron src/nanotron/parallel/pipeline_parallel/engine.py "
    "OneForwardOneBackwardPipelineEngine.train_batch_iter (2411b022)",
    consequence="AssertionError: Number of micro batches must be at least pp_size - 1",
    confidence="read",
)
def pipeline_can_warm_up(k: Knobs) -> bool:
    """The engine starts with pp - 1 forward passes on the first rank.

    Fails: knobs(framework="nanotron 0.4", pp=8, gradient_accumulation_steps=4)
    Passes: knobs(framework="nanotron 0.4", pp=8, gradient_accumulation_steps=7)
    """
    return (k.get("pp") or 1) > 1 and _micro_batches(k) < k.pp - 1


def _micro_batches(k: Knobs) -> int:
    """Micro-batches of one replica, which nanotron calls accumulation steps."""
    return int(k.get("num_microbatches") or k.gradient_accumulation_steps)


@pipeline_can_warm_up.message
def _(k: Knobs) -> str:
    return f"{_micro_batches(k)} micro-batches over pp {k.pp}"


@pipeline_can_warm_up.fix
def _(k: Knobs) -> Mapping[str, Any]:
    return {"gradient_accumulation_steps": k.pp}


@demand(
    "DAT343",
    "Tied head's optimizer state missing under another tp (nanotron)",
    severity=Severity.ERROR,
    section="4.3",
    scope="nanotron",
    source="nanotron issue 68; src/nanotron/serialize/optimizer.py load_optimizer",
    consequence="KeyError: the optimizer state of lm_head is looked up, but tied parameters have "
    "one state, stored under the name of the embedding",
    confidence="doc",
    says="tie_word_embeddings = true, checkpoint of tp {saved_tp} loaded under tp {tp}",
)
def tied_states_are_found(k: Knobs) -> bool:
    """Loading under another tp merges and splits optimizer states by the names of parameters.

    Tied weights carry two names for one state, and only the embedding's is stored. Weights have an
    alias for it, the path of optimizer states had none. Resume under the same tp, map the head's
    state to the embedding's, or load weights alone.

    Fails: knobs(framework="nanotron 0.4", tie_word_embeddings=True, tp=1, saved_tp=2)
    Passes: knobs(framework="nanotron 0.4", tie_word_embeddings=True, tp=2, saved_tp=2)
    Passes: knobs(framework="nanotron 0.4", tie_word_embeddings=False, tp=1, saved_tp=2)
    """
    return bool(k.get("tie_word_embeddings", False)) and k.saved_tp != (k.get("tp") or 1)


@tied_states_are_found.fix
def _(k: Knobs) -> Mapping[str, Any]:
    return {"tp": k.saved_tp}
