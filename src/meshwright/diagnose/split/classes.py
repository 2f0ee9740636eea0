"""What kind of work a device event is, by its name.

Names of CUDA, ROCm, Ascend and XPU libraries, of Triton, of serving engines and of communication
libraries that are not NCCL. The first pattern that matches decides, so the order is that of
certainty: a fused attention kernel may have "cutlass" and "dropout" in its name too.
"""

from __future__ import annotations

import re

from meshwright.diagnose.split.operators import classed_operator

# What moves or waits for data of other ranks. Names that Inductor made of operators
# ("triton_poi_fused_all_reduce_...") are compute.
COMMUNICATION = re.compile(
    r"nccl|rccl|msccl|hccl|^hcom_|oneccl|ccl_kernel|deep_?ep|\bep::(internode|intranode)|nvshmem"
    r"|rocshmem|multimem_|all_?reduce|all_?gather(?!_?(index|elementwise))|reduce_?scatter"
    r"|all_?to_?all|cross_device_reduce|userbuffers|^(p2p_)?(send|recv)_kernel",
    re.IGNORECASE,
)
WAITING = re.compile(r"notify|barrier|wait_kernel|spin", re.IGNORECASE)  # control, not transfer
TRITON = re.compile(r"^triton_")

# (class, finer kind, pattern of a name in small letters). Classes are the keys of
# `Rank.kernel_class_sum_us`.
_PATTERNS = (
    ("memory", "memory", r"^memcpy|^memset|^copybuffer"),
    ("gemm", "gemm", r"^triton_tem_\w*?(mm|addmm|bmm)\b|^triton_tem_fused_(add)?mm"),
    ("attention", "attention", r"^triton_tem_\w*(attention|sdpa)"),
    ("triton", "triton", r"^triton_"),
    (
        "embedding",
        "embedding",
        r"(?<!rotary_)embedding|fbgemm_gpu|bounds_check_indices|indexselect|block_bucketize|linearize_index"
        r"|l[fx]u_cache|jagged|recat|indexing_backward|compute_grad_weight|^gatherv2",
    ),
    (
        "optimizer",
        "optimizer",
        r"multi_?tensor|adam(w|functor|optim|_|\b)|\bsgd|sgd_|\blamb_|lion_?kernel|adagrad|adafactor"
        r"|newton_?schulz|fused_?optim|^applyadam",
    ),
    (
        "moe",
        "moe",
        r"\bmoe|_moe|routingindices|topk_?gating|expert|grouped_topk|(un)?permute_token",
    ),
    (
        "norm",
        "norm",
        r"(batch|layer|group|instance|rms)_?norm|\bbn_(fw|bw|inf)|rowwisemoments|gammabeta"
        r"|computeinternalgradients|computefusedparams|\bln_(fwd|bwd)|normalization::",
    ),
    ("attention", "loss", r"log_?softmax|cross_?entropy|softmaxcrossentropy"),
    ("attention", "softmax", r"softmax"),
    (
        "attention",
        "attention",
        r"flash|fmha|attention|attn|sdpa?_|\bmha_|_mha|mqa_|rotary|rope(_|\b)|paged_?(kv|att)"
        r"|reshape_and_cache|kv_?cache|^bwd_(kernel|preprocess)",  # the last are AOTriton's
    ),
    (
        "conv",
        "conv",
        r"(im|ex)plicit_convolve|scudnn|winograd|igemm_(fwd|bwd|wrw)|fprop|dgrad|wgrad(?!_gemm)"
        r"|conv(?!ert)|cudnn.*(grad|engine)|naive_conv|conv[123]d",
    ),
    ("other", "gemm", r"^bmm_\w+_t\d+x\d+x\d+"),  # TensorRT-LLM's, activation and scales inside
    (
        "gemm",
        "gemm",
        r"gemm|gemv|\bcijk_|cublas|nvjet|split_?k_?reduce|splitk|matmul|wmma|wgmma|xmma"
        r"|cutlass(__5x_cudnn)?::(kernel|device_kernel)|\bdot_kernel|^bmm|_mm_kernel|grouped_mm",
    ),
    ("pool", "pool", r"pool(?!ed)"),
    (
        "sort_scan",
        "sort_scan",
        r"radix|sort(?!ed_)|scan|\bcub::|thrust::|top_?k|bitonic|histogram|searchsorted|cumsum"
        r"|multinomial",
    ),
    ("reduce", "loss", r"nll_?(loss|criterion)"),
    ("reduce", "reduce", r"reduce_kernel|^reduce(sum|mean|max|prod)|welford"),
    ("elementwise", "elementwise", r"masked_fill"),
    ("copy_layout", "fill", r"fillfunctor|fill_kernel|subtensoropwithscalar|zeros?_?like|^fill"),
    (
        "copy_layout",
        "copy_layout",
        r"copy(?!sign)|transpose|nchwto|nhwcto|nchw2|cnhw2|catarray|^concat|permut|contiguous"
        r"|constant_pad|im2col|col2im|unpack|^pack|^cast$|^transdata|^slice|pad_kernel",
    ),
    ("other", "quantize", r"quant|to_?fp8|fp8_?cast|amax"),
    ("reduce", "reduce", r"reduc|norm_?two|_mean|_sum\b"),
    (
        "elementwise",
        "elementwise",
        r"elementwise|pointwise|functor|lambda|relu|gelu|silu|swiglu|sigmoid|tanh|dropout|clamp"
        r"|distribution|bias|act_and_mul|gather|scatter|index|where|arange"
        r"|^(add|mul|sub|real_?div|exp|pow|neg|sqrt|rsqrt|select|equal)s?(v\d|n|d)?$",
    ),
)
_COMPILED = tuple((c, k, re.compile(pattern)) for c, k, pattern in _PATTERNS)
TELLING = 1000  # characters of a name; what templates add after that tells nothing more
CLASSES = tuple(dict.fromkeys(("other", "comm", *(c for c, _, _ in _PATTERNS))))
KINDS = tuple(dict.fromkeys(("other", "comm", *(k for _, k, _ in _PATTERNS))))
COMM = CLASSES.index("comm")


def class_of(name: str) -> str:
    """The class of a device event of this name: one of `CLASSES`."""
    return classed(name)[0]


def classed(name: str) -> tuple[str, str]:
    """Class and finer kind of a device event of this name: of `CLASSES` and of `KINDS`.

    Kinds tell softmax and loss from attention, fills from copies, and count as matrix products
    what only a serving engine's naming hides ("other" by class).
    """
    operator = classed_operator(name)
    if operator is not None:
        return operator
    small = name[:TELLING].lower()
    if COMMUNICATION.search(small) and not TRITON.search(small):
        return "comm", "comm"
    for kind, finer, pattern in _COMPILED:
        if pattern.search(small):
            return kind, finer
    return "other", "other"
