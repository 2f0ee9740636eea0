"""Memory of one rank of a PyTorch training step, measured without GPUs or peers.

FakeTensorMode (tensors without storage), the "fake" process group (any world size in one process)
and a tracker of every storage that is born, resized or freed. Needs torch and transformers.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import tensor_plans

DEPTHS = (4, 6)  # at least four layers: the first and last two are told apart


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One plan: mesh, sequence, recompute. `model` names an entry of `CONFIGS`."""

    model: str = "llama3-8b"
    replicate: int = 1
    fsdp: int = 1
    tp: int = 1
    sequence_parallel: bool = True
    loss_parallel: bool = False
    recompute: str = "none"
    reshard: bool = True
    seq_len: int = 8192
    micro_batch_size: int = 1
    microbatches: int = 1

    @property
    def name(self) -> str:
        """A short name that tells the plan."""
        sharing = f"fsdp{self.fsdp}" if self.replicate == 1 else f"hsdp{self.replicate}x{self.fsdp}"
        tensor = f"tp{self.tp}" if self.tp > 1 else ""
        flags = ("sp" if self.sequence_parallel and self.tp > 1 else "", tensor and self._loss)
        size = f"s{self.seq_len}b{self.micro_batch_size}m{self.microbatches}"
        keep = "" if self.reshard else "keep"
        parts = (self.model, sharing, tensor, *flags, keep, size, self.recompute)
        return "-".join(part for part in parts if part)

    @property
    def _loss(self) -> str:
        return "lp" if self.loss_parallel else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Bytes on rank 0; `phases` the peak of each part of the step."""

    weights: float
    gradients: float
    optimizer: float
    activations: float
    peak: float
    phases: dict[str, float] = field(default_factory=dict)

    def extended(self, other: Measured, *, depths: tuple[int, int], layers: int) -> Measured:
        """The straight line through two depths, at `layers` layers."""

        def line(low: float, high: float) -> float:
            return high + (high - low) / (depths[1] - depths[0]) * (layers - depths[1])

        names = ("weights", "gradients", "optimizer", "activations")
        phases = {k: line(v, other.phases[k]) for k, v in self.phases.items()}
        parts = {n: line(getattr(self, n), getattr(other, n)) for n in names}
        return Measured(**parts, peak=max(phases.values()), phases=phases)


CONFIGS: dict[str, dict[str, Any]] = {
    "llama3-8b": {
        "family": "llama",
        "vocab_size": 128256,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
    },
    "qwen3-30b-a3b": {
        "family": "qwen3_moe",
        "vocab_size": 151936,
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "moe_intermediate_size": 768,
        "num_hidden_layers": 48,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "num_experts": 128,
        "num_experts_per_tok": 8,
    },
}


class StorageTracker(TorchDispatchMode):
    """Bytes of live storages by label; storages of FakeTensors and DTensors' local parts alike."""

    def __init__(self) -> None:
        super().__init__()
        self.label = "setup"
        self.now = 0
        self.peak = 0
        self.by_label: dict[str, int] = {}
        self._live: dict[int, tuple[int, str]] = {}

    def see(self, tensor: Any, label: str | None = None) -> None:
        """Count a tensor's storage once; follow its size when it was resized."""
        tensor = getattr(tensor, "_local_tensor", tensor)
        if type(tensor).__name__ == "AsyncCollectiveTensor":
            tensor = tensor.elem
        if tensor.device.type == "meta" and type(tensor) is torch.Tensor:
            return
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._live:
            self._resize(key, storage.nbytes())
            return
        self._live[key] = (0, label or self.label)
        weakref.finalize(storage, self._forget, key)
        self._resize(key, storage.nbytes())

    def relabel(self, tensor: Any, label: str) -> None:
        """Count a tensor's storage under another label."""
        self.see(tensor, label)
        key = getattr(tensor, "_local_tensor", tensor).untyped_storage()._cdata
        size, old = self._live[key]
        self.by_label[old] -= size
        self.by_label[label] = self.by_label.get(label, 0) + size
        self._live[key] = (size, label)

    def _resize(self, key: int, size: int) -> None:
        old, label = self._live[key]
        self._live[key] = (size, label)
        self.by_label[label] = self.by_label.get(label, 0) + size - old
        self.now += size - old
        self.peak = max(self.peak, self.now)

    def _forget(self, key: int) -> None:
        self._resize(key, 0)
        del self._live[key]

    def __enter__(self) -> Any:
        self._resize_ = torch.UntypedStorage.resize_

        def resize_(storage: torch.UntypedStorage, size: int) -> None:
            self._resize_(storage, size)
            if storage._cdata in self._live:
                self._resize(storage._cdata, size)

        torch.UntypedStorage.resize_ = resize_
        return super().__enter__()

    def __exit__(self, *exception: object) -> None:
        torch.UntypedStorage.resize_ = self._resize_
        super().__exit__(*exception)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                self.see(leaf)
        return out


def measure(case: Case) -> Measured:
    """The case at full depth, from two shallow depths: layers are equal, so memory is linear."""
    layers = CONFIGS[case.model]["num_hidden_layers"]
    low, high = (measure_depth(case, depth) for depth in DEPTHS)
    return low.extended(high, depths=DEPTHS, layers=layers)


def measure_depth(case: Case, layers: int) -> Measured:
    """Two training steps of the case with `layers` layers; the second is measured."""
    world = case.replicate * case.fsdp * case.tp
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=world)
    try:
        shape = (case.replicate, case.fsdp, case.tp)
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard", "tp"))
        _allow_mesh_concatenation()
        with FakeTensorMode(allow_non_fake_inputs=True):
            model = _parallel(_model(case, layers), case, mesh)
            return _steps(case, model)
    finally:
        dist.destroy_process_group()


def _allow_mesh_concatenation() -> None:
    """FSDP over TP concatenates meshes with a real tensor, which fake mode refuses (torch 2.13)."""
    original = DeviceMesh._concatenate
    if getattr(original, "real", False):
        return

    def concatenate(*args: Any, **kwargs: Any) -> Any:
        with unset_fake_temporarily():
            return original(*args, **kwargs)

    concatenate.real = True  # type: ignore[attr-defined]
    DeviceMesh._concatenate = staticmethod(concatenate)


def causal_attention(
    _module: Any, query: Any, key: Any, value: Any, _mask: Any, **options: Any
) -> tuple[Any, None]:
    """Fused attention without a mask tensor, registered with transformers."""
    grouped = query.shape[1] != key.shape[1]
    scale = options.get("scaling")
    out = F.scaled_dot_product_attention(
        query, key, value, is_causal=True, scale=scale, enable_gqa=grouped
    )
    return out.transpose(1, 2).contiguous(), None


def _model(case: Case, layers: int) -> Any:
    """The transformers model; fp32 parameters under FSDP, bf16 where tp is alone."""
    from transformers import AttentionInterface, AutoConfig, AutoModelForCausalLM
    from transformers.initialization import no_init_weights

    AttentionInterface.register("meshwright_causal", causal_attention)
    options = CONFIGS[case.model] | {"num_hidden_layers": layers}
    family = options.pop("family")
    config = AutoConfig.for_model(
        family,
        **options,
        tie_word_embeddings=False,
        use_cache=False,
        max_position_embeddings=1 << 17,
    )
    config._attn_implementation = "meshwright_causal"
    torch.set_default_dtype(torch.float32 if _sharded(case) else torch.bfloat16)
    try:
        with no_init_weights():
            return AutoModelForCausalLM.from_config(config, attn_implementation="meshwright_causal")
    finally:
        torch.set_default_dtype(torch.float32)


def _sharded(case: Case) -> bool:
    """True when the parameters are sharded by FSDP."""
    return case.fsdp * case.replicate > 1


def _parallel(model: Any, case: Case, mesh: DeviceMesh) -> Any:
    """Tensor parallelism, activation checkpointing, FSDP, in this order."""
    if case.tp > 1:
        tensor_plans.tensor_parallel(
            model,
            mesh["tp"],
            sequence_parallel=case.sequence_parallel,
            loss_parallel=case.loss_parallel,
        )
    layers = model.model.layers
    if case.recompute != "none":
        for index in range(len(layers)):
            layers[index] = tensor_plans.checkpointed(layers[index], case.recompute)
    if _sharded(case):
        own = mesh["replicate", "shard"] if case.replicate > 1 else mesh["shard"]
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        options = {"mesh": own, "mp_policy": policy}
        fully_shard(model.model.embed_tokens, **options)
        for layer in layers:
            fully_shard(layer, reshard_after_forward=case.reshard, **options)
        fully_shard([model.model.norm, model.lm_head], reshard_after_forward=False, **options)
        fully_shard(model, **options)
    return model


def _steps(case: Case, model: Any) -> Measured:
    """Two steps of AdamW under the tracker."""
    kinds = {isinstance(p, DTensor) for p in model.parameters()}
    foreach = len(kinds) == 1  # what torch does on a GPU; it refuses a mixture
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=foreach)
    tracker = StorageTracker()
    for tensor in (*model.parameters(), *model.buffers()):
        tracker.see(tensor, "weights")
    with tracker:
        _step(case, model, optimizer, tracker)
        for state in optimizer.state.values():
            for value in state.values():
                if isinstance(value, torch.Tensor):
                    tracker.relabel(value, "optimizer")
        return _step(case, model, optimizer, tracker)


class Marks:
    """Peaks between the marks of a step, the largest of each name."""

    def __init__(self, tracker: StorageTracker) -> None:
        self.tracker = tracker
        self.phases: dict[str, float] = {}
        tracker.peak = tracker.now

    def mark(self, name: str) -> None:
        """Book the peak since the last mark under `name`."""
        self.phases[name] = max(self.phases.get(name, 0.0), float(self.tracker.peak))
        self.tracker.peak = self.tracker.now

    def watch(self, layers: Any) -> list[Any]:
        """Mark where the first block ends forward, and where each block starts backward.

        A peak that moves with depth is the larger of straight lines, at the first blocks and at
        the last; told apart, each extends linearly. Returns the handles of the hooks.
        """
        last = len(layers) - 1
        names = {last: "head", last - 1: "backward_first", last - 2: "backward_second"}
        names |= {0: "backward_penultimate"}

        def hook(index: int) -> Any:
            def after_forward(_module: Any, _inputs: Any, output: Any) -> None:
                if index == 0:
                    self.mark("forward_first")
                name = names.get(index, "backward_middle")
                tensor = tree_leaves(output)[0]
                if tensor.requires_grad:
                    tensor.register_hook(lambda _gradient: self.mark(name))

            return after_forward

        return [layer.register_forward_hook(hook(i)) for i, layer in enumerate(layers)]


def _step(case: Case, model: Any, optimizer: Any, tracker: StorageTracker) -> Measured:
    """One step; what is alive at its marks and the peak between them."""
    tracker.label = "step"
    marks = Marks(tracker)
    handles = marks.watch(model.model.layers)
    kept = 0.0
    loss_context = tensor_plans.loss_context(case.loss_parallel and case.tp > 1)
    for microbatch in range(case.microbatches):
        ids = torch.randint(0, 100, (case.micro_batch_size, case.seq_len))
        labels = torch.randint(0, 100, (case.micro_batch_size, case.seq_len))
        positions = torch.arange(case.seq_len).unsqueeze(0)
        before = tracker.now
        with loss_context():
            logits = model(input_ids=ids, position_ids=positions, use_cache=False).logits
            marks.mark("forward_last")
            if microbatch == 0:
                kept = tracker.now - before - _bytes(logits) - _gathered(model)
            loss = F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())
            del logits
            marks.mark("loss")
            loss.backward()
            del loss
        marks.mark("backward_last")
    gradients = _unique_bytes([p.grad for p in model.parameters() if p.grad is not None])
    optimizer.step()
    marks.mark("step")
    optimizer.zero_grad()
    for handle in handles:
        handle.remove()
    return Measured(
        weights=tracker.by_label.get("weights", 0),
        optimizer=tracker.by_label.get("optimizer", 0),
        gradients=gradients,
        activations=kept,
        peak=max(marks.phases.values()),
        phases=marks.phases,
    )


def _bytes(tensor: Any) -> float:
    """Bytes of the local storage of a tensor."""
    tensor = getattr(tensor, "_local_tensor", tensor)
    tensor = getattr(tensor, "elem", tensor)
    return float(tensor.untyped_storage().nbytes())


def _unique_bytes(tensors: list[Any]) -> float:
    """Bytes of the local storages of tensors, shared ones once."""
    local = [getattr(t, "_local_tensor", t) for t in tensors]
    return float(sum({t.untyped_storage()._cdata: _bytes(t) for t in local}.values()))


def _gathered(model: Any) -> float:
    """Bytes of the parameters that FSDP holds gathered right now."""
    groups = {
        id(group): group
        for module in model.modules()
        if isinstance(module, FSDPModule)
        and (group := module._get_fsdp_state()._fsdp_param_group) is not None
    }
    parameters = [p for group in groups.values() for p in group.fsdp_params]
    return _unique_bytes([t for p in parameters for t in p.all_gather_outputs])
