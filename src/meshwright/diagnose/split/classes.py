"""What kind of work a device event is, by its name.

Names of CUDA, ROCm, Ascend and XPU libraries, of Triton and of the communication libraries that
are not NCCL. The first pattern that matches decides.
"""

from __future__ import annotations

import re

# What moves or waits for data of other ranks. Names that Inductor made of operators
# ("triton_poi_fused_all_reduce...") are compute.
COMMUNICATION = re.compile(
    r"nccl|rccl|msccl|hccl|oneccl|deep_?ep|ep::(internode|intranode|internode_ll)|nvshmem|multimem_"
    r"|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|cross_device_reduce|userbuffers"
    r"|one_shot|two_shot",
    re.IGNORECASE,
)
TRITON = re.compile(r"^triton_")

_PATTERNS = (
    ("memory", r"^memcpy|^memset|^copybuffer|^fillbuffer"),
    ("optimizer", r"multi_tensor_apply|adam|sgd|lamb|adagrad|optimizer"),
    ("moe", r"moe|expert|topk_?gating|permute_kernel"),
    ("attention", r"flash|fmha|attention|attn|softmax|mha_"),
    ("norm", r"batch_?norm|layer_?norm|rms_?norm|group_?norm|bn_(fw|bw)|welford|norm"),
    (
        "conv",
        r"conv|cudnn.*(grad|engine)|scudnn|dgrad|wgrad|fprop|winograd|implicit|miopen.*(igemm|conv)",
    ),
    ("gemm", r"gemm|gemv|cijk_|cublas|nvjet|cutlass.*kernel|matmul|splitk|ck::.*gemm|dot_kernel"),
    ("pool", r"pool"),
    ("embedding", r"embedding|indexing_backward|tbe|gather_kernel"),
    ("sort_scan", r"sort|scan|cub::|thrust|radix"),
    ("copy_layout", r"copy|transpose|nchw|nhwc|cat|permute|permut|pack|unroll|contiguous|to_copy"),
    ("reduce", r"reduce"),
    ("triton", r"^triton_"),
    ("elementwise", r"elementwise|pointwise|fill|add|mul|relu|gelu|silu|dropout"),
)
_COMPILED = tuple((name, re.compile(pattern, re.IGNORECASE)) for name, pattern in _PATTERNS)
CLASSES = ("other", "comm", *(name for name, _ in _PATTERNS))
COMM = CLASSES.index("comm")


def class_of(name: str) -> str:
    """The class of a device event of this name: one of `CLASSES`."""
    if COMMUNICATION.search(name) and not TRITON.search(name):
        return "comm"
    return next((kind for kind, pattern in _COMPILED if pattern.search(name)), "other")
