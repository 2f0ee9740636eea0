# Llama-2 7B under the hybrid plugin on 2 nodes x 8: examples/language/llama/benchmark.py, plugin
# "3d" (ColossalAI 0.5).
# 2 nodes x 8 GPUs
from colossalai.booster.plugin import HybridParallelPlugin

plugin = HybridParallelPlugin(
    tp_size=2,
    pp_size=2,
    pp_style="interleaved",
    num_model_chunks=2,
    zero_stage=1,
    enable_flash_attention=True,
    enable_fused_normalization=True,
    parallel_output=True,
    microbatch_size=1,
    precision="bf16",
    overlap_p2p=True,
)
