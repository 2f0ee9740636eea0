"""What kind of work an operator of PyTorch is, where operators themselves are the events.

On CPUs there are no kernels to name: the work is the operator's. Names are those of PyTorch's
dispatcher (aten/src/ATen/native/native_functions.yaml, 2.13), without their overload.
"""

from __future__ import annotations

import re

TRANSPORT = re.compile(r"^(gloo|ucc|mpi):")
_OPERATOR = re.compile(
    r"^(aten|fsdp|mkldnn|mkldnn_prepacked|mkl|onednn|quantized|torchao|inductor)::"
)
_PATTERNS = (
    ("attention", "attention", r"scaled_dot_product|flash_attention|efficient_attention"),
    ("attention", "loss", r"log_softmax|cross_entropy"),
    ("attention", "softmax", r"softmax"),
    ("reduce", "loss", r"nll_loss"),
    ("optimizer", "optimizer", r"^_fused_(adam|sgd|adagrad)|^_foreach_"),
    ("norm", "norm", r"(layer|batch|group|instance|rms)_norm"),
    ("conv", "conv", r"conv(olution)?"),
    (
        "gemm",
        "gemm",
        r"^(add)?(b)?mm(_|$)|^baddbmm|^_(scaled|grouped|int|scaled_grouped)_mm|linear|matmul"
        r"|^(add)?mv$|^dot$|^vdot$|^addr$|einsum",
    ),
    ("embedding", "embedding", r"embedding|^index_select|^gather|^index_add|^index_put|^_index"),
    ("sort_scan", "sort_scan", r"sort|topk|cumsum|cumprod|searchsorted|bincount|histc|unique"),
    (
        "reduce",
        "reduce",
        r"^(sum|mean|max|min|amax|amin|argmax|argmin|prod|std|var|norm|logsumexp"
        r"|linalg_vector_norm|count_nonzero)(_|$)|^(any|all)$",
    ),
    ("pool", "pool", r"pool"),
    (
        "copy_layout",
        "fill",
        r"^(fill|zero|zeros|ones|full|empty|new_(zeros|empty|ones|full)|arange|scalar_tensor)",
    ),
    (
        "copy_layout",
        "copy_layout",
        r"copy|^(cat|stack|clone|contiguous|transpose|permute|t|view|_unsafe_view|reshape|expand"
        r"|slice|select|split|narrow|chunk|unbind|squeeze|unsqueeze|as_strided|alias|detach|pad"
        r"|constant_pad_nd|repeat|roll|flip|tril|triu|to|lift|set|resize)(_|$)",
    ),
    (
        "elementwise",
        "elementwise",
        r"^(add|sub|rsub|mul|div|neg|abs|pow|exp|expm1|log|log1p|log2|sqrt|rsqrt|reciprocal|sigmoid"
        r"|tanh|silu|gelu|relu|leaky_relu|softplus|sin|cos|where|clamp|maximum|minimum|eq|ne|lt|le"
        r"|gt|ge|bitwise|logical|isnan|isinf|isfinite|dropout|native_dropout|bernoulli|normal"
        r"|uniform|masked_fill|masked_scatter|scatter|lerp|addcmul|addcdiv|floor|ceil|round|sign"
        r"|fmod|remainder|threshold|hardtanh|glu|erf|index_fill|index)",
    ),
)
_COMPILED = tuple((c, k, re.compile(pattern)) for c, k, pattern in _PATTERNS)


def classed_operator(name: str) -> tuple[str, str] | None:
    """Class and finer kind of a host operator or a backend's transfer; None where it is neither."""
    if TRANSPORT.match(name):
        return "comm", "comm"
    found = _OPERATOR.match(name)
    if found is None:
        return None
    own = name[found.end() :]
    return next(((c, k) for c, k, pattern in _COMPILED if pattern.search(own)), ("other", "other"))
