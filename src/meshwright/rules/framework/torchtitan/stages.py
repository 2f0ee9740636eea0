"""torchtitan's pipeline stages.

Sections 5.1, 5.2 and 6.3 of the guidelines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.finding import Severity
from meshwright.rules.demand import demand, set_to
from meshwright.rules.framework.degrees import degree

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from meshwright.frameworks.knobs import Knobs

MOST_LAYERS = 4096  # of any model
_DECODER = "torchtitan torchtitan/models/common/decoder.py Decoder.Config.update_from_config"


def _virtual_stages(k: Knobs) -> int:
    """Stages that torchtitan derives from the layers it puts into one."""
    ends = k.get("first_stage_less_layers", 1) + k.get("last_stage_less_layers", 1)
    slots = int(k.num_hidden_layers + ends)
    return -(-slots // int(k.layers_per_stage))


@demand(
    "MOD129",
    "Virtual stages not a multiple of PP (torchtitan)",
    severity=Severity.ERROR,
    section="5.1",
    scope="torchtitan>=0.2",
    source="torchtitan torchtitan/distributed/pipeline_parallel.py _get_pipeline_metadata (0.3.0)",
    consequence="ValueError: Number of virtual stages must be divisible by pipeline parallel size.",
)
def stages_divide_over_ranks(k: Knobs) -> bool:
    """Layers per stage give the number of stages; embedding and head count as a layer each.

    Fails: knobs(framework="torchtitan 0.3", layers_per_stage=3, num_hidden_layers=16, pp=4)
    Passes: knobs(framework="torchtitan 0.3", layers_per_stage=5, num_hidden_layers=16, pp=4)
    """
    if k.get("layers_per_stage") is None or degree(k, "pp") == 1:
        return False
    return bool(_virtual_stages(k) % k.pp)


@stages_divide_over_ranks.message
def _(k: Knobs) -> str:
    return (
        f"{k.num_hidden_layers} layers and the ends in stages of {k.layers_per_stage} make "
        f"{_virtual_stages(k)} stages, no multiple of pp {k.pp}"
    )


@stages_divide_over_ranks.fix
def _(k: Knobs) -> Mapping[str, Any]:
    ends = k.get("first_stage_less_layers", 1) + k.get("last_stage_less_layers", 1)
    slots = int(k.num_hidden_layers + ends)
    each_of = range(1, min(slots, MOST_LAYERS) + 1)
    legal = [each for each in each_of if -(-slots // each) % k.pp == 0]
    nearest = sorted(legal, key=lambda each: abs(each - k.layers_per_stage))
    return {"layers_per_stage": nearest[0]} if nearest else {}


_SINGLE = ("1f1b", "gpipe")


@demand(
    "MOD130",
    "Schedule and stages of a rank disagree (torchtitan)",
    severity=Severity.ERROR,
    section="5.1",
    scope="torchtitan>=0.1",
    source="torchtitan torchtitan/distributed/pipeline_parallel.py _get_pipeline_metadata (0.3.0)",
    consequence="ValueError: Single stage schedule requires exactly 1 stage per rank, or: "
    "Multi-stage schedule requires at least 2 stages per rank",
)
def schedule_has_its_stages(k: Knobs) -> bool:
    """1F1B and GPipe order one stage a rank, the others two or more; layers a stage decide.

    Elsewhere 1F1B with several chunks is the interleaved schedule; torchtitan has it by that name.
    Where the modules of every stage are listed, an interleaved schedule runs with one of them too;
    under a single-stage schedule all but the first stage of a rank would be left out.

    Fails: knobs(framework="torchtitan 0.3", pp=2, schedule_class="1F1B", stages_per_rank=2)
    Fails: knobs(framework="torchtitan 0.3", pp=2, schedule_class="Interleaved1F1B",
        stages_per_rank=1)
    Passes: knobs(framework="torchtitan 0.3", pp=2, schedule_class="Interleaved1F1B",
        stages_per_rank=2)
    """
    if degree(k, "pp") == 1 or k.get("schedule_name_unknown", False) or k.get("pp_schedule_csv"):
        return False
    single = str(k.schedule_class).lower() in _SINGLE
    if single:
        return bool(k.stages_per_rank != 1)
    return bool(k.stages_per_rank < 2) and not k.get("module_split")


@schedule_has_its_stages.message
def _(k: Knobs) -> str:
    return f"{k.schedule_class} with {k.stages_per_rank} stages a rank on pp {k.pp}"


@demand(
    "MOD131",
    "An end of the model counts for more layers than a stage has (torchtitan)",
    severity=Severity.ERROR,
    section="5.1",
    scope="torchtitan>=0.2",
    source="torchtitan torchtitan/distributed/pipeline_parallel.py "
    "_generate_llm_fqn_per_model_part (0.3.0)",
    consequence="ValueError: input_weight exceeds minimum layers per stage, output_weight exceeds "
    "minimum layers per stage, or: Number of stages cannot be greater than effective layers",
)
def ends_fit_into_a_stage(k: Knobs) -> bool:
    """Embedding and head are slots of the split, and all slots of an end lie in one stage.

    Fails: knobs(framework="torchtitan 0.3", pp=4, num_stages=8, num_hidden_layers=32,
        first_stage_less_layers=20)
    Passes: knobs(framework="torchtitan 0.3", pp=4, num_stages=8, num_hidden_layers=32,
        first_stage_less_layers=2)
    """
    if degree(k, "pp") == 1 or k.get("module_split"):
        return False
    ends = [k.get(f"{end}_stage_less_layers", 1) for end in ("first", "last")]
    return bool(max(*ends, 1) > (k.num_hidden_layers + sum(ends)) // k.num_stages)


@ends_fit_into_a_stage.message
def _(k: Knobs) -> str:
    first, last = (k.get(f"{end}_stage_less_layers", 1) for end in ("first", "last"))
    return (
        f"the ends count as {first} and {last} layers, but {k.num_hidden_layers} layers in "
        f"{k.num_stages} stages leave {(k.num_hidden_layers + first + last) // k.num_stages} each"
    )


@demand(
    "MOD203",
    "Tied embeddings with pipeline parallelism (torchtitan)",
    severity=Severity.ERROR,
    section="5.2",
    scope="torchtitan>=0.3",
    source=f"{_DECODER} (0.3.0)",
    consequence="NotImplementedError: Weight tying is not supported with Pipeline Parallel.",
)
def tied_models_have_one_stage(k: Knobs) -> bool:
    """Embedding and head lie on different stages, and torchtitan does not reduce between them.

    Fails: knobs(framework="torchtitan 0.3", tie_word_embeddings=True, pp=2)
    Passes: knobs(framework="torchtitan 0.3", tie_word_embeddings=False, pp=2)
    """
    return degree(k, "pp") > 1 and bool(k.tie_word_embeddings)


@tied_models_have_one_stage.message
def _(k: Knobs) -> str:
    return f"tie_word_embeddings = True with pp {k.pp}"


tied_models_have_one_stage.fix(set_to(pp=1))


@demand(
    "CMP321",
    "Vision encoder on the first stage not accounted for",
    severity=Severity.WARNING,
    section="6.3",
    scope="torchtitan>=0.3",
    source="torchtitan torchtitan/distributed/pipeline_parallel.py pipeline_vlm (0.3.0)",
    consequence="stage 0 carries the encoder and as many layers as if it held the embedding alone",
    confidence="read",
)
def first_stage_makes_room(k: Knobs) -> bool:
    """The automatic split takes one layer off the first stage, for the embedding.

    Fails: knobs(framework="torchtitan 0.3", has_vision_encoder=True, pp=4,
        first_stage_less_layers=1)
    Passes: knobs(framework="torchtitan 0.3", has_vision_encoder=True, pp=4,
        first_stage_less_layers=3)
    """
    if degree(k, "pp") == 1 or not k.get("has_vision_encoder", False):
        return False
    return bool(k.get("first_stage_less_layers", 1) <= 1)


@first_stage_makes_room.message
def _(k: Knobs) -> str:
    less = k.get("first_stage_less_layers", 1)
    return f"first_stage_less_layers {less} with a vision encoder over pp {k.pp}"


first_stage_makes_room.fix(set_to(first_stage_less_layers=3))
