"""Kernels of many makers by what they do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.diagnose.split.classes import CLASSES, KINDS, class_of, classed

NAMES = {
    "comm": [
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)",
        "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)",
        "rcclGenericKernel<1, false>(ncclDevKernelArgsStorage<4096ul>)",
        "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*)",
        "void deep_ep::internode_ll::combine<true, 7168, 11>(void*, void*)",
        "void ep::internode::cached_notify<true>(int, int)",
        "nvshmemi_transfer_rma<nvshmemi_threadgroup_thread>",
        "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)",
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)",
        "void tensorrt_llm::kernels::ar_fusion::allreduce_fusion_kernel_oneshot_lamport<8>()",
        "userbuffers_fp16_sum_inplace_gpu_rr_rs_oop<8>(int, int)",
        "hcom_allReduce__808_0_1",
        "void two_shot_all_reduce_kernel<c10::BFloat16, 8, 16>(c10::BFloat16**)",
    ],
    "gemm": [
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute",
        "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_TNT",
        "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_128x128_32x4_nn_align8>()",
        "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn",
        "volta_sgemm_64x64_nt",
        "Cijk_Ailk_Bljk_BBS_BH_Bias_HAS_SAV_UserArgs_MT256x256x64_MI16x16x1_SN_LDSB0",
        "void gemv2T_kernel_val<int, int, __nv_bfloat16, __nv_bfloat16, float, 128>(int)",
        "void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16>(int)",
        "void deep_gemm::fp8_gemm_kernel<4096u, 7168u, 128u, 128u>(float*)",
        "_ZN2ck16kernel_gemm_xdl_cshuffle_v3INS_28GridwiseGemm_xdl_cshuffle_v3",
        "MatMulV3",
        "triton_tem_fused_mm_3",
    ],
    "attention": [
        "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128>>()",
        "void flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<128>>()",
        "void cutlass::device_kernel<flash::FlashAttnFwdSm90<flash::Collective<2>>>()",
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_6_64x64x64_4x1x1_kernel0",
        "fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel)",
        "fmhaSm100aKernel_QkvE4m3OBfloat16H64PagedKvCausalP16VarSeqQ128Kv128PersistentContext",
        "aiter::fmha_fwd_hd128_bf16_causal_rtne",
        "FlashAttentionScoreGrad_bf16",
        "void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, c10::BFloat16, float>()",
        "triton_tem_fused_flex_attention_0",
    ],
    "norm": [
        "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int)",
        "void transformer_engine::normalization::rmsnorm_fwd_tuned_kernel<Kernel_traits>()",
        "void flashinfer::norm::FusedAddRMSNormKernel<8, __nv_bfloat16>(__nv_bfloat16*)",
        "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, 512, true, 1>(cudnnTensorStruct)",
        "MIOpenBatchNormFwdTrainSpatialNorm",
        "void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernel<float, float>()",
        "RmsNorm",
    ],
    "conv": [
        "void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>(int, int)",
        "volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1",
        "sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x32",
        "igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt128x128x32_wt32x32x8_ws1x1",
        "void causal_conv1d_fwd_kernel<Causal_conv1d_fwd_kernel_traits<128, 4>>()",
        "Conv2D",
    ],
    "optimizer": [
        "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<ListMetadata<4>>()",
        "void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>, float>()",
        "ApplyAdamWV2",
    ],
    "embedding": [
        "void split_embedding_backward_codegen_rowwise_adagrad_unweighted_kernel_warp_per_row<>()",
        "void at::native::(anonymous namespace)::indexSelectLargeIndex<c10::BFloat16, long>()",
        "void at::native::(anonymous namespace)::embedding_backward_feature_kernel<float>()",
    ],
    "moe": [
        "void moe::dev::routing::routingIndicesHistogramKernel<moe::dev::routing::KernelParams>()",
        "fused_moe_kernel",
        "void vllm::moe::topkGatingSoftmax<8, 128, 4, 16>(float const*)",
    ],
    "copy_layout": [
        "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<"
        "at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}>()",
        "void at::native::(anonymous namespace)::CatArrayBatchedCopy<OpaqueType<2u>, unsigned>()",
        "void at::native::vectorized_elementwise_kernel<8, at::native::FillFunctor<c10::Half>>()",
        "batched_transpose_32x32_half",
        "Transpose",
    ],
    "elementwise": [
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>()",
        "void at::native::vectorized_elementwise_kernel<8, at::native::(anonymous namespace)::"
        "silu_kernel(at::TensorIteratorBase&)::{lambda()#1}>()",
        "void at::native::(anonymous namespace)::distribution_elementwise_grid_stride_kernel<float,"
        " 4, at::native::templates::cuda::normal_and_transform<float, float>>()",
        "void vllm::act_and_mul_kernel<c10::BFloat16, &vllm::silu_kernel>()",
        "Mul",
    ],
    "reduce": [
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, MeanOps<float>>>()",
        "ReduceSum",
    ],
    "sort_scan": ["void at_cuda_detail::cub::DeviceRadixSortOnesweepKernel<Policy>()"],
    "triton": [
        "triton_poi_fused_add_mul_0",
        "triton_red_fused_all_reduce_sum_2",  # Inductor's name of a reduction, no transfer
    ],
    "memory": ["Memcpy HtoD (Pageable -> Device)", "Memset (Device)"],
    "other": ["SubTensorOpWithCastTensor1d", "a_kernel_of_my_own", ""],
}


@pytest.mark.parametrize(("kind", "name"), [(k, n) for k, names in NAMES.items() for n in names])
def test_a_kernel_is_of_the_class_that_its_name_tells(kind: str, name: str) -> None:
    assert class_of(name) == kind


@pytest.mark.parametrize(
    ("name", "finer"),
    [
        ("void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, float>()", "softmax"),
        ("void (anonymous namespace)::cunn_SoftMaxForward<LogSoftMaxForwardEpilogue>()", "loss"),
        (
            "void at::native::(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<>()",
            "loss",
        ),
        ("_liger_cross_entropy_kernel", "loss"),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>()",
            "fill",
        ),
        ("bmm_Bfloat16_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16_m128x16x32_cga1x1x1", "gemm"),
        ("void vllm::scaled_fp8_quant_kernel_strided<c10::BFloat16>()", "quantize"),
    ],
)
def test_kinds_are_finer_than_classes(name: str, finer: str) -> None:
    assert classed(name)[1] == finer


@given(st.text(max_size=60))
def test_any_name_has_a_class(name: str) -> None:
    kind, finer = classed(name)
    assert kind in CLASSES
    assert finer in KINDS


def test_names_without_end_take_no_time_without_end() -> None:
    assert class_of("a" * 10_000_000) == "other"
