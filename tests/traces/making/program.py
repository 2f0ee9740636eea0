"""A training step of one rank: load, forward and backward by schedule, reduce, update."""

from __future__ import annotations

from typing import TYPE_CHECKING

from making import kernels
from making.collectives import collective, pass_on
from making.layer import backward, each, forward, item, layer_elements, product, sizes
from making.machine import AUTOGRAD, MAIN, Machine, Meeting
from making.mesh import coordinates

if TYPE_CHECKING:
    from making.machine import Running

PARTS = 9  # parameters of a layer


def train(m: Machine) -> Running:
    """All profiled steps, then the profiler's own synchronization."""
    m.pause(500)
    for step in range(m.spec.steps):
        m.step = step
        _plant(m)
        yield from _step(m)
    yield from m.synchronize("cudaDeviceSynchronize")


def _plant(m: Machine) -> None:
    spec = m.spec
    where = coordinates(spec, m.rank)
    slow = spec.slow_rank
    if slow is not None and spec.slow_rotates:
        slow = (slow + m.step) % spec.world_size
    m.compute_factor = spec.slow_factor if slow == m.rank else 1.0
    if spec.slow_stage == where["pp"]:
        m.compute_factor *= spec.stage_factor
    m.compute_factor *= 1 + (spec.drift - 1) * m.step / max(1, spec.steps - 1)
    m.host_factor = spec.slow_factor if spec.slow_host_rank == m.rank else 1.0


def _step(m: Machine) -> Running:
    name = f"ProfilerStep#{m.spec.first_step + m.step}"
    with m.op(name, "user_annotation") if m.spec.profiled_steps else m.op("aten::empty"):
        _load(m)
        _compile(m)
        for _ in range(m.spec.broadcasts):
            yield from collective(m, "dp", "broadcast", elements=4096, dtype="Float", blocks=True)
        yield from _schedule(m)
        yield from _update(m)
        yield from _after(m)


def _load(m: Machine) -> None:
    spec = m.spec
    workers = "_MultiProcessing" if spec.loader_workers else "_SingleProcess"
    loader = f"enumerate(DataLoader)#{workers}DataLoaderIter.__next__"
    slow = spec.loader_rank in (None, m.rank) and (m.step + 1) % spec.loader_every == 0
    with m.op(loader, "user_annotation"):
        m.pause(spec.loader_us if slow else HEALTHY_LOADER_US)
    if spec.preprocess_us:
        with (
            m.op("train.py(88): train_step", "python_function"),
            m.op("data/processing.py(41): preprocess", "python_function"),
        ):
            m.pause(spec.preprocess_us)
    size = int(spec.batch_mb * 1e6)
    pinned = "Pageable" if spec.pageable_copies else "Pinned"
    rate = 9.0 if spec.pageable_copies else 25.0
    for _ in range(spec.copies):
        with m.op("aten::to"), m.op("aten::_to_copy"), m.op("aten::copy_"):
            us = 2.0 + size / spec.copies / (rate * 1e3)
            name = f"Memcpy HtoD ({pinned} -> Device)"
            m.copy(name, us, size // spec.copies, blocks=spec.pageable_copies)
    with m.op("Optimizer.zero_grad#AdamW.zero_grad", "user_annotation"), m.op("aten::zero_"):
        m.memset(3.0, 1 << 20)


def _compile(m: Machine) -> None:
    if m.spec.compile_us and m.step == 1:
        with m.op("torch/_dynamo/convert_frame.py(1164): _compile", "python_function"):
            m.pause(m.spec.compile_us * 0.9)
            m.call("hipModuleLoad" if m.spec.rocm else "cuModuleLoadData", m.spec.compile_us * 0.1)


HEALTHY_LOADER_US = 150.0  # of a healthy loader beside a slow one


def _schedule(m: Machine) -> Running:
    """1F1B over the stages, plain accumulation with one."""
    spec = m.spec
    stage = coordinates(spec, m.rank)["pp"]
    count = spec.micro_batches
    ahead = min(spec.pp - stage - 1, count)
    order = [("F", i) for i in range(ahead)]
    for i in range(count - ahead):
        order += [("F", ahead + i), ("B", i)]
    order += [("B", i) for i in range(count - ahead, count)]
    for what, micro_batch in order:
        if spec.malloc_us and what == "F":
            yield from _allocate(m)
        yield from (_forward if what == "F" else _backward)(m, micro_batch, stage)
        m.graph = min(m.graph, 0)


def _allocate(m: Machine) -> Running:
    yield from m.synchronize("cudaDeviceSynchronize")
    with m.op("aten::empty"):
        m.call("hipFree" if m.spec.rocm else "cudaFree", m.spec.malloc_us / 2)
        m.call("hipMalloc" if m.spec.rocm else "cudaMalloc", m.spec.malloc_us / 2)


def _forward(m: Machine, micro_batch: int, stage: int) -> Running:
    spec = m.spec
    tokens, _, hidden, _ = sizes(spec)
    m.thread = MAIN
    away = spec.tp * spec.cp * spec.dp  # to the next stage
    if stage:
        got = yield from pass_on(m, "recv", m.rank - away, elements=tokens * hidden, lane=0)
        yield from m.wait(got)
    m.graph = min(m.graph, 0)
    if stage == 0:
        with m.op("aten::embedding"):
            each(m, "aten::index_select", kernels.EMBED, tokens * hidden, passes=2)
    yield from _layers_forward(m, micro_batch, stage)
    if stage == spec.pp - 1:
        yield from _head(m, tokens, hidden)
    else:
        sent = yield from pass_on(m, "send", m.rank + away, elements=tokens * hidden, lane=1)
        if not spec.overlap:
            yield from m.wait(sent)


def _layers_forward(m: Machine, micro_batch: int, stage: int) -> Running:
    coming: Meeting | None = None
    layers = layers_of(m, stage)
    for index in range(layers):
        if m.spec.sharded:
            if coming is None:
                coming = yield from _unshard(m)
            now, coming = coming, None
            if m.spec.overlap and index + 1 < layers:
                coming = yield from _unshard(m)
            yield from m.wait(now)
        if index == 0 and micro_batch == 0:
            _collect_garbage(m)
        yield from forward(m, micro_batch)


def layers_of(m: Machine, stage: int) -> int:
    spec = m.spec
    return spec.stage_layers[stage] if spec.stage_layers else max(1, spec.layers // spec.pp)


def _unshard(m: Machine) -> Running:
    with m.op("FSDP::all_gather", "user_annotation"):
        return (yield from collective(m, "dp", "_allgather_base", elements=layer_elements(m.spec)))


def _collect_garbage(m: Machine) -> None:
    if m.spec.gc_us and m.rank == m.step % m.spec.world_size:
        with m.op("<built-in function collect>", "python_function"):
            m.pause(m.spec.gc_us)


def _head(m: Machine, tokens: int, hidden: int) -> Running:
    spec = m.spec
    share = spec.vocab // spec.tp
    with m.op("aten::linear"):
        product(m, tokens, hidden, share, rate=spec.head_tflops)
    with m.op("aten::cross_entropy_loss"):
        each(m, "aten::_log_softmax", kernels.LOSS, tokens * share)
        each(m, "aten::nll_loss_forward", kernels.NLL, tokens)
    yield from collective(m, "tp", "allreduce", elements=tokens, dtype="Float", blocks=True)


def _backward(m: Machine, micro_batch: int, stage: int) -> Running:
    spec = m.spec
    tokens, _, hidden, _ = sizes(spec)
    away = spec.tp * spec.cp * spec.dp
    if stage < spec.pp - 1:
        got = yield from pass_on(m, "recv", m.rank + away, elements=tokens * hidden, lane=2)
        yield from m.wait(got)
    m.thread = AUTOGRAD
    m.pause(10)
    m.graph = min(m.graph, 0)
    if stage == spec.pp - 1:
        share = spec.vocab // spec.tp
        each(m, "aten::_log_softmax_backward_data", kernels.LOSS_BACK, tokens * share)
        product(m, tokens, share, hidden, layout="nn", rate=spec.head_tflops)
        product(m, hidden, tokens, share, layout="nt", rate=spec.head_tflops)
    yield from _layers_backward(m, micro_batch, stage)
    if stage == 0:
        each(m, "aten::embedding_dense_backward", kernels.EMBED_BACK, tokens * hidden)
    m.thread = MAIN
    if stage:
        sent = yield from pass_on(m, "send", m.rank - away, elements=tokens * hidden, lane=3)
        if not spec.overlap:
            yield from m.wait(sent)


def _layers_backward(m: Machine, micro_batch: int, stage: int) -> Running:
    last = micro_batch == m.spec.micro_batches - 1
    coming: Meeting | None = None
    layers = layers_of(m, stage)
    for index in range(layers):
        if m.spec.sharded:
            if coming is None:
                coming = yield from _unshard(m)
            now, coming = coming, None
            if m.spec.overlap and index + 1 < layers:
                coming = yield from _unshard(m)
            yield from m.wait(now)
        yield from backward(m, micro_batch)
        if last or m.spec.sharded:
            yield from _reduce(m)


def _reduce(m: Machine) -> Running:
    """Gradients of a layer, in buckets."""
    spec = m.spec
    word = "_reduce_scatter_base" if spec.sharded else "allreduce"
    for _ in range(spec.buckets_per_layer):
        yield from collective(
            m,
            "dp",
            word,
            elements=layer_elements(spec) // spec.buckets_per_layer,
            blocks=not spec.overlap,
        )


def _update(m: Machine) -> Running:
    """Waits for gradients, norms them, steps."""
    m.thread = MAIN
    stream = m.groups["dp"].stream
    yield from m.wait(m.last.get(stream))
    spec = m.spec
    stage = coordinates(spec, m.rank)["pp"]
    parts = spec.dp * spec.cp if spec.sharded else 1
    elements = layer_elements(spec) * layers_of(m, stage) / parts
    with m.op("Optimizer.step#AdamW.step", "user_annotation"):
        m.pause(spec.optimizer_us)
        with m.op("aten::_foreach_norm"):
            m.kernel(kernels.FOREACH_NORM, max(2.0, elements * 4 / (spec.memory_gbps * 1e3)))
        yield from collective(m, "world", "allreduce", elements=1, dtype="Float", blocks=True)
        if spec.fused_optimizer:
            with m.op("aten::_fused_adamw_"):
                m.kernel(kernels.ADAM, max(2.0, elements * 18 / (spec.memory_gbps * 1e3)))
        else:
            _unfused(m, elements, PARTS * layers_of(m, stage))


def _unfused(m: Machine, elements: float, parameters: int) -> None:
    steps = (
        ("aten::mul_", kernels.MUL),
        ("aten::lerp_", kernels.ADD),
        ("aten::addcmul_", kernels.ADDCMUL),
        ("aten::sqrt", kernels.SQRT),
        ("aten::add_", kernels.ADD),
        ("aten::addcdiv_", kernels.ADDCDIV),
    )
    for _ in range(parameters):
        for op, kernel in steps:
            each(m, op, kernel, elements / parameters, passes=5)


def _after(m: Machine) -> Running:
    spec = m.spec
    if spec.log_loss:
        yield from item(m)
    if spec.logging_us:
        with m.op("torch/utils/tensorboard/writer.py(381): add_scalar", "python_function"):
            m.pause(spec.logging_us)
    if spec.evaluation_us and m.step == 1:
        with m.op("evaluation#1", "user_annotation"):
            m.pause(spec.evaluation_us)
    if spec.checkpoint_us and (m.step + 1) % spec.checkpoint_every == 0:
        with m.op("torch/serialization.py(944): save", "python_function"):
            for _ in range(6):
                with m.op("aten::to"), m.op("aten::copy_"):
                    us = spec.checkpoint_us / 20
                    m.copy("Memcpy DtoH (Device -> Pageable)", us, int(us * 3e3), blocks=True)
            m.pause(spec.checkpoint_us * 0.7)
