"""What to make: the job, the machine, faults, and the layout of the files."""

from __future__ import annotations

from dataclasses import dataclass

ERAS = ("2021", "2022", "2024-04", "2024-05", "2024-07", "2026")


@dataclass(frozen=True, kw_only=True)
class Spec:
    """A run. The defaults are one healthy rank of a dense model that is bound by its compute.

    Ranks are numbered tp first, then cp, dp, pp; the ranks of an expert group are neighbors in
    (cp, dp). Times end in `_us`; a factor multiplies a duration, 1 changes nothing.
    """

    # what is trained
    layers: int = 4
    hidden: int = 4096
    ffn: int = 11008
    heads: int = 32
    vocab: int = 32000
    sequence: int = 4096
    micro_batch_size: int = 1
    experts: int = 0  # per layer; 0: dense
    top_k: int = 2

    # how
    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1
    dp: int = 1
    micro_batches: int = 2
    stage_layers: tuple[int, ...] = ()  # layers of each stage; (): evenly
    sharded: bool = False  # FSDP instead of DDP
    recompute: bool = False  # of whole layers
    steps: int = 3
    first_step: int = 10

    # on what
    gpu: str = "h100"  # h100, a100, b200, mi300x
    matmul_tflops: float = 600.0
    attention_tflops: float = 400.0
    memory_gbps: float = 2500.0
    node_gbps: float = 450.0  # bus bandwidth within a host
    network_gbps: float = 45.0  # and between hosts
    latency_us: float = 12.0
    ranks_per_host: int = 8
    launch_us: float = 4.5  # cudaLaunchKernel
    operator_us: float = 6.0  # an operator around it
    jitter: float = 0.01  # of kernels, standard deviation
    seed: int = 0

    # faults of data
    loader_us: float = 150.0
    loader_rank: int | None = None  # only this rank's loader takes that long
    loader_every: int = 1  # and only in every so many steps, the last of them
    loader_workers: int = 4  # 0: the loader runs in the training process
    preprocess_us: float = 0.0  # Python on the step's path, before the first kernel
    sequence_imbalance: float = 0.0  # sigma of the log of attention's work
    batch_mb: float = 0.1
    copies: int = 1  # in which the batch comes
    pageable_copies: bool = False

    # faults of the model and of how it is cut
    slow_stage: int | None = None
    stage_factor: float = 1.6
    expert_imbalance: float = 1.0  # work of the first expert rank of each group
    unfused_attention: bool = False
    unfused_elementwise: bool = False  # norms, rotary and activation as chains of eager kernels
    small_kernels: bool = False  # everything in kernels of a few microseconds: launch-bound
    fused_optimizer: bool = True
    head_tflops: float = 0.0  # of the products with the vocabulary; 0: as all

    # faults of the machine
    slow_rank: int | None = None
    slow_factor: float = 1.6
    slow_rotates: bool = False  # another rank in each step, beginning with slow_rank
    slow_host_rank: int | None = None  # its host takes slow_factor times as long
    fp32_matmuls: bool = False
    drift: float = 1.0  # of compute, from the first step to the last: clocks that fall
    malloc_us: float = 0.0  # cudaMalloc and cudaFree in each micro-batch
    contention: float = 1.0  # of compute beneath communication

    # faults of communication
    slow_axis: str = ""  # tp, cp, ep, dp, pp
    slow_axis_factor: float = 6.0
    slow_axis_rank: int | None = None  # only groups that contain this rank
    buckets_per_layer: int = 1
    overlap: bool = True  # of gradients, parameters and sends with compute
    broadcasts: int = 0  # of buffers, in each step
    moe_kernels: str = "nccl"  # or "deepep"
    symmetric_memory: bool = False  # tensor parallel all-reduces as multimem kernels

    # faults of the host
    items_per_layer: int = 0  # .item()
    gc_us: float = 0.0  # a pause of Python, on one rank of each step in turn
    checkpoint_us: float = 0.0
    checkpoint_every: int = 2
    compile_us: float = 0.0  # compilation in the second step
    evaluation_us: float = 0.0  # after the second step
    logging_us: float = 0.0  # after each step
    optimizer_us: float = 0.0  # the host's, before the optimizer's first kernel
    log_loss: bool = True  # one .item() a step

    # the profiler and the file
    era: str = "2024-07"
    text: str = ""  # kineto, indented, compact, array; "": as the era's exporter writes
    record_shapes: bool = True
    with_stack: bool = False
    profile_memory: bool = False
    profiler_us: float = 0.0  # what the profiler adds to each operator
    clock_shift_us: tuple[float, ...] = ()  # of each host
    descriptions: str = "megatron"  # of process groups: megatron, torchtitan, undefined
    message_args: bool = True  # collectives say what they are
    p2p_args: bool = True  # and so do sends and receives
    cuda_graphs: bool = False
    gpu_only: bool = False  # no operators, no steps
    profiled_steps: bool = True  # ProfilerStep#N
    distributed_info: bool = True
    lost_launches: int = 0  # kernels at the beginning whose launch is missing
    early_nccl: bool = False  # NCCL kernels that begin before their launch
    sampled: float = 1.0  # share of events kept
    truncated: float = 1.0  # share of the bytes kept
    gz: bool = False

    @property
    def world_size(self) -> int:
        return self.tp * self.pp * self.cp * self.dp

    @property
    def rocm(self) -> bool:
        return self.gpu.startswith("mi")
