"""The columns that decide what one block keeps: tokens, widths of cuts, bytes of an element."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.plan.plan import ContextParallel, Precision, Recompute, RecomputeModule

if TYPE_CHECKING:
    from meshwright.cost.memory.stack import MemoryStack
    from meshwright.plan.job import Job

INPUT_BYTES = {  # of a saved input of a matrix product, scales of block formats included
    Precision.FP32: 4.0,
    Precision.BF16: 2.0,
    Precision.FP16: 2.0,
    Precision.FP8: 1.0,
    Precision.MXFP8: 1.0 + 1 / 32,
    Precision.NVFP4: 0.5 + 1 / 16,
}


FUSED_COPIES = 3.0  # gate, up and product: what a compiler's fused gate keeps


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Local sizes of one rank; scalars or columns.

    `tokens` of one micro-batch on the rank's context-parallel share, `sequence_cut` what divides
    them outside tensor-parallel regions, `gathered_cut` what divides the kept inputs of
    column-parallel products. `element` bytes of an activation, `linear_input` bytes of a kept input
    of a matrix product; `norm` bytes per element that a norm keeps besides its output; `copies`
    tensors of its width that a gated network keeps; `foreign_tokens` those of other ranks whose
    keys and values are held at once under context parallelism, `kept_foreign_tokens` those that
    are gathered; `exchanged` is true where attention runs over other heads than the products.
    """

    tokens: Any
    seq_len: Any
    tp: Any
    ep: Any
    etp: Any
    sequence_cut: Any
    gathered_cut: Any
    element: Any
    linear_input: Any
    flash: Any
    modules: Any  # RecomputeModule flags, 0 unless recompute is selective
    distribute_saved: Any
    norm: Any
    copies: Any
    foreign_tokens: Any
    kept_foreign_tokens: Any
    exchanged: Any

    def covers(self, module: RecomputeModule) -> Any:
        """True where selective recompute covers the module."""
        return (self.modules & int(module)) != 0


def shape_of(job: Job, stack: MemoryStack) -> Shape:
    """Local sizes under the job's plan."""
    plan = job.plan
    cut = np.where(plan.sequence_parallel, plan.tp, 1)
    precision = np.asarray(plan.precision)
    table = np.array([INPUT_BYTES[p] for p in sorted(INPUT_BYTES)])
    selective = np.asarray(plan.recompute) == int(Recompute.SELECTIVE)
    element = np.where(precision == int(Precision.FP32), 4.0, 2.0)
    fused = np.asarray(plan.compile)
    foreign, kind = _foreign_tokens(job), np.asarray(plan.context_parallel)
    norm = np.maximum(stack.norm_input_bytes, element) + stack.norm_inner_bytes
    return Shape(
        tokens=plan.micro_batch_size * job.workload.seq_len / np.asarray(plan.cp),
        seq_len=job.workload.seq_len,
        tp=np.asarray(plan.tp),
        ep=np.asarray(plan.ep),
        etp=np.asarray(plan.etp),
        sequence_cut=cut,
        gathered_cut=1 / (stack.gathered_inputs + (1 - stack.gathered_inputs) / cut),
        element=element,
        linear_input=table[precision],
        flash=np.asarray(plan.flash_attention),
        modules=np.where(selective, plan.recompute_modules, 0),
        distribute_saved=np.asarray(plan.distribute_saved),
        foreign_tokens=foreign,
        kept_foreign_tokens=np.where(kind == int(ContextParallel.ALL_GATHER), foreign, 0.0),
        exchanged=(np.asarray(plan.cp) > 1) & (kind == int(ContextParallel.ULYSSES)),
        norm=np.where(fused, element, norm),
        copies=np.where(fused, min(stack.gated_copies, FUSED_COPIES), stack.gated_copies),
    )


def _foreign_tokens(job: Job) -> Any:
    """Tokens of other ranks at hand during attention: all of them when gathered, two ring steps."""
    plan = job.plan
    cp, kind = np.asarray(plan.cp), np.asarray(plan.context_parallel)
    own = plan.micro_batch_size * job.workload.seq_len / cp
    gathered = kind == int(ContextParallel.ALL_GATHER)
    exchanged = kind == int(ContextParallel.ULYSSES)
    steps = np.where(gathered, cp - 1, np.where(exchanged, 0, 2))
    return np.where(cp > 1, own * steps, 0.0)
