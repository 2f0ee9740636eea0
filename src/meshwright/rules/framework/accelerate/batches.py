"""accelerate's data loaders and accumulation.

Sections 4.1 and 4.2 of the guidelines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.finding import Severity
from meshwright.rules.demand import demand
from meshwright.rules.framework.degrees import data_parallel

if TYPE_CHECKING:
    from meshwright.frameworks.knobs import Knobs


@demand(
    "DAT129",
    "split_batches with an indivisible batch",
    severity=Severity.ERROR,
    section="4.1",
    scope="accelerate",
    source="accelerate src/accelerate/data_loader.py BatchSamplerShard (1.15.0)",
    consequence="ValueError: To use `BatchSamplerShard` in `split_batches` mode, the batch size "
    "needs to be a round multiple of the number of processes",
)
def split_batch_divides(k: Knobs) -> bool:
    """With split_batches the loader's batch is the global one and is cut over the processes.

    Fails: knobs(framework="accelerate 1.15", split_batches=True, dataloader_batch_size=3, dp=8)
    Passes: knobs(framework="accelerate 1.15", split_batches=True, dataloader_batch_size=16, dp=8)
    """
    return bool(k.get("split_batches", False)) and k.dataloader_batch_size % data_parallel(k) != 0


@split_batch_divides.message
def _(k: Knobs) -> str:
    return f"a loader batch of {k.dataloader_batch_size} over {data_parallel(k)} processes"


@demand(
    "DAT241",
    "Two sources of gradient accumulation",
    severity=Severity.ERROR,
    section="4.2",
    scope="accelerate; transformers",
    source="accelerate src/accelerate/accelerator.py Accelerator.__init__ (1.15.0)",
    consequence="ValueError: You can only pass one of `gradient_accumulation_steps` and "
    "`gradient_accumulation_plugin`.",
    consequences={
        "transformers": "ValueError: AcceleratorConfig's num_steps and "
        "gradient_accumulation_steps cannot both be set"
    },
    says="gradient_accumulation_steps {gradient_accumulation_steps} beside a plugin's own count",
    suggest={"gradient_accumulation_steps": None},
)
def accumulation_is_said_once(k: Knobs) -> bool:
    """The steps stand in one argument or in the plugin's num_steps.

    Fails: knobs(framework="accelerate 1.15", gradient_accumulation_steps=4,
        accelerate_ga_plugin=True)
    Passes: knobs(framework="accelerate 1.15", gradient_accumulation_steps=4)
    """
    steps = k.get("gradient_accumulation_steps")
    return steps not in (None, 1) and bool(k.get("accelerate_ga_plugin", False))


@demand(
    "DAT285",
    "DeepSpeed settings beside a DeepSpeed file (accelerate)",
    severity=Severity.ERROR,
    section="4.2",
    scope="accelerate",
    source="accelerate src/accelerate/utils/dataclasses.py DeepSpeedPlugin "
    "_deepspeed_config_checks (1.15.0)",
    consequence="ValueError: When using `deepspeed_config_file`, the following accelerate config "
    "variables will be ignored",
    confidence="read",
    says="deepspeed_config_file with {ds_fields_beside_file} beside it: these must stand in the "
    "DeepSpeed file alone",
)
def the_deepspeed_file_says_it_all(k: Knobs) -> bool:
    """With a file of DeepSpeed's own, accelerate refuses settings that it would have to merge.

    Batch, stage, offload, clipping and precision stand in the file; the rest of the configuration
    names machines and processes.

    Fails: accelerate 1.15:
        distributed_type: DEEPSPEED
        deepspeed_config:
          deepspeed_config_file: ds_zero3.json
          zero_stage: 3
        num_processes: 8
    Passes: accelerate 1.15:
        distributed_type: DEEPSPEED
        deepspeed_config:
          deepspeed_config_file: ds_zero3.json
          zero3_init_flag: true
        num_processes: 8
    """
    return bool(k.get("ds_fields_beside_file"))
