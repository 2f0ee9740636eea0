"""Jobs from one line: the examples on rule pages, written `plan(model="llama-3-8b", tp=3)`.

The text is parsed, never evaluated: a call of `plan` with keyword arguments that are literals.
A keyword is a field of the plan, the workload, its loading or runtime, the cluster, GPU, host or
innermost (`link_...`) or outermost (`net_...`) link, or of the model (`hidden_size`, `num_experts`,
...). What is not said is taken from a base job: the named model on 8 nodes of 8 H100-like GPUs,
4096 tokens, 512 sequences, and a data-parallel degree that fills the GPUs.
"""

from __future__ import annotations

import ast
from dataclasses import fields, replace
from enum import EnumType
from typing import Any

import numpy as np

from meshwright.base.errors import MeshwrightError
from meshwright.hardware.cluster import Cluster, Gpu, Host, Link
from meshwright.model.architecture import Attention, Block, BlockRun, Experts, Mlp, Model
from meshwright.plan import plan as plan_module
from meshwright.plan.job import Job, Loading, Recipe, Runtime, Workload
from meshwright.plan.plan import Plan

_GPU = Gpu(
    name="example-80GB",
    generation="hopper",
    memory_bytes=80 * 2**30,
    memory_bytes_per_s=3.35e12,
    peak_flops={"fp32": 67e12, "bf16": 989e12, "fp16": 989e12, "fp8": 1979e12},
    sm_count=132,
)
_LINK = Link(name="inner", kind="nvlink", domain=8, bytes_per_s=450e9, latency_s=3e-6)
_NET = Link(
    name="outer", kind="infiniband", domain=10**6, bytes_per_s=50e9, latency_s=8e-6, nics_per_node=8
)
_CLUSTER = Cluster(gpu=_GPU, num_gpus=64, gpus_per_node=8, links=(_LINK, _NET))

# hidden_size, layers, heads, kv heads, intermediate_size, vocab_size, experts, top_k
_DIMENSIONS = {
    "llama-3-8b": (4096, 32, 32, 8, 14336, 128256, 0, 0),
    "llama-3-70b": (8192, 80, 64, 8, 28672, 128256, 0, 0),
    "mixtral-8x7b": (4096, 32, 32, 8, 14336, 32000, 8, 2),
    "qwen3-30b-a3b": (2048, 48, 32, 4, 768, 151936, 128, 8),
}
_ATTENTION_FIELDS = tuple(f.name for f in fields(Attention))
_EXPERTS_FIELDS = tuple(f.name for f in fields(Experts))
_MODEL_FIELDS = tuple(f.name for f in fields(Model) if f.name not in ("runs", "mtp"))


def parse_example(text: str) -> dict[str, Any]:
    """The keyword arguments of `plan(...)`; raises `MeshwrightError` on anything else."""
    try:
        call = ast.parse(text, mode="eval").body
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)):
            raise ValueError("not a call")
        if call.func.id != "plan" or call.args or any(k.arg is None for k in call.keywords):
            raise ValueError("not plan(name=value, ...)")
        return {str(k.arg): _literal(k.value) for k in call.keywords}
    except (SyntaxError, ValueError) as error:
        raise MeshwrightError(f"{text!r} is not an example: {error}") from None


def _literal(node: ast.expr) -> Any:
    """A literal, or a member of one of the plan's enumerations, as in `Schedule.GPIPE`."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        enum = getattr(plan_module, node.value.id, None)
        if isinstance(enum, EnumType) and node.attr in enum.__members__:
            return int(enum[node.attr])
        raise ValueError(f"unknown choice {node.value.id}.{node.attr}")
    return ast.literal_eval(node)


def example_job(text: str) -> Job:
    """The job that an example describes."""
    return build_job(**parse_example(text))


def build_job(*, model: str = "llama-3-8b", nodes: int = 8, **overrides: Any) -> Job:
    """A job from the base job and overrides by field name; see the module's text."""
    left = {"num_gpus": nodes * int(overrides.get("gpus_per_node", 8)), **overrides}
    built_model = _take_model(model, left)
    cluster = _take_cluster(left)
    workload = _take_workload(left)
    stack = left.pop("stack", "default")
    plan = Plan(**_take(left, Plan))
    if left:
        raise MeshwrightError(f"an example has no field {', '.join(sorted(left))}")
    if "dp" not in overrides:
        replica = np.maximum(plan.tp * plan.pp * plan.cp, 1)
        plan = plan.replace(dp=np.maximum(cluster.num_gpus // replica, 1))
    return Job(model=built_model, cluster=cluster, workload=workload, plan=plan, stack=stack)


def _take(left: dict[str, Any], kind: Any, *, prefix: str = "") -> dict[str, Any]:
    """Remove from `left` the fields of dataclass `kind` (written with `prefix`) and return them."""
    names = [f.name for f in fields(kind) if prefix + f.name in left]
    return {name: left.pop(prefix + name) for name in names}


def _take_model(name: str, left: dict[str, Any]) -> Model:
    """The named model with its dimensions overridden."""
    if name not in _DIMENSIONS:
        raise MeshwrightError(f"no example model {name!r}; there are {', '.join(_DIMENSIONS)}")
    hidden, layers, heads, kv_heads, width, vocab, experts, top_k = _DIMENSIONS[name]
    attention = _attention(heads=heads, kv_heads=kv_heads, left=left)
    experts_given = {k: left.pop(k) for k in _EXPERTS_FIELDS if k in left and k != "bias"}
    base_experts = {"num_experts": experts, "top_k": top_k, "intermediate_size": width}
    feed_forward: Mlp | Experts
    if experts or "num_experts" in experts_given:
        feed_forward = Experts(**{**base_experts, **experts_given})
    else:
        feed_forward = Mlp(intermediate_size=experts_given.pop("intermediate_size", width))
    count = left.pop("num_hidden_layers", layers)
    run = BlockRun(block=Block(attention=attention, feed_forward=feed_forward), count=count)
    mtp = left.pop("num_mtp_layers", 0)
    given = {k: left.pop(k) for k in _MODEL_FIELDS if k in left}
    base = {"name": name, "hidden_size": hidden, "vocab_size": vocab, "runs": (run,)}
    return Model(**{**base, **given}, mtp=(replace(run, count=mtp),) if mtp else ())


def _attention(*, heads: int, kv_heads: int, left: dict[str, Any]) -> Attention:
    """The attention of an example model; the head width is 128 unless given."""
    given = {k: left.pop(k) for k in _ATTENTION_FIELDS if k in left}
    base = {"num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": 128}
    merged = {**base, **given}
    merged.setdefault("v_head_dim", merged["head_dim"])
    return Attention(**merged)


def _take_cluster(left: dict[str, Any]) -> Cluster:
    """The base cluster with GPU, links, host and counts overridden."""
    gpu = replace(_GPU, **_take(left, Gpu, prefix="gpu_"))
    per_node = int(left.get("gpus_per_node", _CLUSTER.gpus_per_node))
    inner = {"domain": per_node, **_take(left, Link, prefix="link_")}
    links = (replace(_LINK, **inner), replace(_NET, **_take(left, Link, prefix="net_")))
    host = replace(Host(), **_take(left, Host, prefix="host_"))
    return replace(_CLUSTER, gpu=gpu, links=links, host=host, **_take(left, Cluster))


def _take_workload(left: dict[str, Any]) -> Workload:
    """4096 tokens a sequence and 512 sequences a step, overridden."""
    loading = Loading(**_take(left, Loading))
    runtime = Runtime(**_take(left, Runtime))
    recipe = Recipe(**_take(left, Recipe))
    base: dict[str, Any] = {"seq_len": 4096, "global_batch_size": 512}
    given = {**base, **_take(left, Workload)}
    return Workload(**given, loading=loading, runtime=runtime, recipe=recipe)
