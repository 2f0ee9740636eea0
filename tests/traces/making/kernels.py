"""Names of kernels as the libraries have them, by GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from making.spec import Spec

_V = "void at::native::vectorized_elementwise_kernel<4, "
_B = "c10::BFloat16, c10::BFloat16, c10::BFloat16"
ADD = (
    _V
    + "at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3ul>)"
)
MUL = (
    _V
    + f"at::native::BinaryFunctor<{_B}, at::native::binary_internal::MulFunctor<float> >, std::array<char*, 3ul> >(int, at::native::BinaryFunctor<{_B}, at::native::binary_internal::MulFunctor<float> >, std::array<char*, 3ul>)"
)
COPY = "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda()#7}::operator()() const::{lambda(float)#1}, std::array<char*, 2ul>, 4, TrivialOffsetCalculator<1, unsigned int>, TrivialOffsetCalculator<1, unsigned int>, at::native::memory::LoadWithCast<1>, at::native::memory::StoreWithCast<1> >(int)"
POW = (
    _V
    + "at::native::(anonymous namespace)::pow_tensor_scalar_kernel_impl<float, float>(at::TensorIteratorBase&, float)::{lambda(float)#1}, std::array<char*, 2ul> >(int)"
)
MEAN = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, float, float, float>, unsigned int, float, 4> >(at::native::ReduceOp<float, at::native::MeanOps<float, float, float, float>, unsigned int, float, 4>)"
RSQRT = (
    _V
    + "at::native::rsqrt_kernel_cuda(at::TensorIteratorBase&)::{lambda()#2}::operator()() const::{lambda()#2}::operator()() const::{lambda(float)#1}, std::array<char*, 2ul> >(int)"
)
NEG = "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::neg_kernel_cuda(at::TensorIteratorBase&)::{lambda()#2}::operator()() const::{lambda(c10::BFloat16)#1}>(at::TensorIteratorBase&)>(int)"
CAT = "void at::native::(anonymous namespace)::CatArrayBatchedCopy<at::native::(anonymous namespace)::OpaqueType<2u>, unsigned int, 4, 64, 64>(at::native::(anonymous namespace)::OpaqueType<2u>*)"
SILU = (
    _V
    + "at::native::(anonymous namespace)::silu_kernel(at::TensorIteratorBase&)::{lambda()#1}::operator()() const::{lambda()#4}::operator()() const::{lambda(c10::BFloat16)#1}, std::array<char*, 2ul> >(int)"
)
SOFTMAX = "void (anonymous namespace)::softmax_warp_forward<c10::BFloat16, c10::BFloat16, float, 10, false, false>(c10::BFloat16*, c10::BFloat16 const*, int, int, int, bool const*, int, bool)"
SOFTMAX_BACK = "void (anonymous namespace)::softmax_warp_backward<c10::BFloat16, c10::BFloat16, float, 10, false, false>(c10::BFloat16*, c10::BFloat16 const*, c10::BFloat16 const*, int, int, int, bool const*)"
MASK = "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::(anonymous namespace)::masked_fill_kernel(at::TensorIterator&, c10::Scalar const&)::{lambda()#1}>(at::TensorIteratorBase&)>(int)"
EMBED = "void at::native::(anonymous namespace)::indexSelectLargeIndex<c10::BFloat16, long, unsigned int, 2, 2, -2, true>(at::cuda::detail::TensorInfo<c10::BFloat16, unsigned int>)"
EMBED_BACK = "void at::native::(anonymous namespace)::compute_grad_weight<c10::BFloat16, long>(long const*, c10::BFloat16 const*, long)"
LOSS = "void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, c10::BFloat16, float, float, at::native::(anonymous namespace)::LogSoftMaxForwardEpilogue>(float*, c10::BFloat16 const*, int)"
LOSS_BACK = "void at::native::(anonymous namespace)::cunn_SoftMaxBackward<8, c10::BFloat16, float, float, at::native::(anonymous namespace)::LogSoftMaxBackwardEpilogue>(c10::BFloat16*, float const*, float const*, long)"
NLL = "void at::native::(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<float, float, long>(float*, float*, float const*, long const*, float const*, bool, long, long, long, long)"
NORM = "void transformer_engine::normalization::rmsnorm_fwd_tuned_kernel<transformer_engine::normalization::Kernel_traits<__nv_bfloat16, __nv_bfloat16, __nv_bfloat16, float, unsigned int, 4096u, 1u, 1u, 4u, 16u> >(transformer_engine::normalization::ForwardKernelParams)"
NORM_BACK = NORM.replace("rmsnorm_fwd", "rmsnorm_bwd").replace("ForwardKernel", "BackwardKernel")
ROPE = "triton_poi_fused_add_cat_mul_neg_slice_0"
SWIGLU = "triton_poi_fused_mul_silu_1"
SWIGLU_BACK = "triton_poi_fused_mul_sigmoid_silu_sub_2"
TOPK = "void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>(at::cuda::detail::TensorInfo<float const, unsigned int>, unsigned int, unsigned int, bool)"
PERMUTE = "void transformer_engine::moe_permute_row_map<int>(int const*, int*, int, int, int)"
GROUPED = "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cutlass::gemm::GroupProblemShape<cute::tuple<int, int, int> > > >(cutlass::gemm::kernel::GemmUniversal::Params)"
ADAM = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::FusedOptimizerTensorListMetadata<4>, at::native::(anonymous namespace)::FusedAdamMathFunctor<float, 4, (at::native::ADAM_MODE)1, false> >(at::native::(anonymous namespace)::FusedOptimizerTensorListMetadata<4>, float const*)"
FOREACH_NORM = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::TensorListMetadata<1>, at::native::(anonymous namespace)::LpNormFunctor<float, (at::native::NormType)1, float> >(at::native::(anonymous namespace)::TensorListMetadata<1>)"
ADDCMUL = (
    _V
    + "at::native::addcmul_cuda_kernel(at::TensorIteratorBase&, c10::Scalar const&)::{lambda()#2}::operator()() const::{lambda(float)#1}, std::array<char*, 4ul> >(int)"
)
ADDCDIV = ADDCMUL.replace("addcmul", "addcdiv")
SQRT = RSQRT.replace("rsqrt", "sqrt")
MULTIMEM = "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*, unsigned long, unsigned int**, unsigned long, unsigned long)"
_FLASH = "pytorch_flash::Flash_fwd_kernel_traits<128, 64, 64, 4, false, false, cutlass::bfloat16_t, pytorch_flash::Flash_kernel_traits<128, 64, 64, 4, cutlass::bfloat16_t> >"
FLASH = f"void pytorch_flash::flash_fwd_kernel<{_FLASH}, false, true, false, false, true, true, false>(pytorch_flash::Flash_fwd_params)"
FLASH_BACK = "void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<pytorch_flash::Flash_bwd_kernel_traits<128, 64, 128, 8, 2, 4, 2, false, false, cutlass::bfloat16_t, pytorch_flash::Flash_kernel_traits<128, 64, 128, 8, cutlass::bfloat16_t> >, false, true, false, false, true, true>(pytorch_flash::Flash_bwd_params)"
DEEPEP = {
    "dispatch": "void deep_ep::internode::dispatch<false, 4, false, 7168, 8>(int4*, float*, long*)",
    "combine": "void deep_ep::internode::combine<4, __nv_bfloat16, 9, 8>(int4*, float*, bool const*)",
}

NCCL = {
    "allreduce": "AllReduce_Sum",
    "_allgather_base": "AllGather",
    "_reduce_scatter_base": "ReduceScatter_Sum",
    "all_to_allv": "SendRecv",
    "broadcast": "Broadcast",
    "send": "SendRecv",
    "recv": "SendRecv",
}
ANNOTATION = {
    "allreduce": "nccl:all_reduce",
    "_allgather_base": "nccl:_all_gather_base",
    "_reduce_scatter_base": "nccl:_reduce_scatter_base",
    "all_to_allv": "nccl:all_to_all",
    "broadcast": "nccl:broadcast",
}
C10D = {
    "allreduce": "c10d::allreduce_",
    "_allgather_base": "c10d::_allgather_base_",
    "_reduce_scatter_base": "c10d::_reduce_scatter_base_",
    "all_to_allv": "c10d::alltoall_base_",
    "broadcast": "c10d::broadcast_",
    "send": "c10d::send",
    "recv": "c10d::recv_",
}


def matmul(spec: Spec, *, layout: str = "tn") -> str:
    """A matrix product: `layout` is that of its operands."""
    if spec.rocm:
        kind = "S_B" if spec.fp32_matmuls else "BBS_BH"
        order = {"tn": "Alik_Bljk", "nn": "Ailk_Bljk", "nt": "Ailk_Bjlk"}[layout]
        return f"Cijk_{order}_{kind}_Bias_HA_S_SAV_UserArgs_MT256x128x64_MI16x16x1_SN_LDSB1_AFC1"
    if spec.fp32_matmuls:
        return f"ampere_sgemm_128x128_{layout}"
    if spec.gpu == "b200":
        return f"nvjet_tst_256x128_64x4_2x1_2cta_v_bz_{layout.upper()}T"
    if spec.gpu == "a100":
        return f"ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_{layout}"
    return (
        f"sm90_xmma_gemm_bf16bf16_bf16f32_f32_{layout}_n_tilesize128x128x64_warpgroupsize1x1x1"
        "_execute_segment_k_off_kernel__5x_cublas"
    )


def flash(spec: Spec, *, backward: bool) -> str:
    if spec.rocm:
        return "bwd_kernel_fuse" if backward else "attn_fwd"
    return FLASH_BACK if backward else FLASH


def nccl(spec: Spec, collective: str, dtype: str) -> str:
    """The kernel of a collective."""
    if spec.rocm:
        if spec.era < "2024":
            return "ncclKernel_Generic(ncclDevComm*, unsigned long, ncclWork*)"
        return "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)"
    word = NCCL[collective]
    if spec.era < "2024-05":
        kind = {"BFloat16": "__nv_bfloat16", "Float": "float"}[dtype]
        base = word.removesuffix("_Sum")
        tail = "SIMPLE_Sum_int8_t" if base in ("SendRecv", "AllGather") else f"LL_Sum_{kind}"
        return f"ncclKernel_{base}_RING_{tail}(ncclDevComm*, unsigned long, ncclWork*)"
    if word == "SendRecv":
        return "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
    kind = {"BFloat16": "bf16", "Float": "f32"}[dtype]
    middle = f"{word}_{kind}_RING_LL" if word.endswith("Sum") else f"{word}_RING_LL"
    return f"ncclDevKernel_{middle}(ncclDevKernelArgsStorage<4096ul>)"
