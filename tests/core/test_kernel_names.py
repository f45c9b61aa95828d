"""What kernel names say of precision, against the types their makers document."""

import pytest

from layerline.core.kernel_names import compute_precision, leaves_type_open


@pytest.mark.parametrize(
    ("name", "compute"),
    [
        ("sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize32x32x64_stage3_execute_kernel_trt",
         "tf32"),
        ("sm90_xmma_gemm_f16f16_f16f16_f16_nn_n_tilesize64x64x64_cgasize1x1x1", "fp16"),
        ("sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize32x32x64_stage6", "fp16"),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_bf16_tn_n_tilesize", "bf16"),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize64x64x8_stage3", "fp32"),
        ("sm80_xmma_fprop_implicit_gemm_indexed_f16f16_f16f32_f16_nhwckrsc_nhwc", "fp16"),
        ("nvjet_sm90_hsh_32x64_64x16_2x1_v_bz_NTN", "fp16"),
        ("nvjet_sm90_tst_64x8_64x16_1x4_h_bz_bias_NNT", "bf16"),
        ("nvjet_hsh_128x128_64x6_2x1_v_bz_TNT", "fp16"),
        ("ampere_sgemm_128x64_tn", "fp32"),
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm_128x64_8x5_nn_align1>(Params)", "fp32"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x256_16x3_nn_align4>(P)", "tf32"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_s1688tf32gemm_64x64_nn>(P)", "tf32"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_f16_s16816gemm_f16_64x64_nn>(P)", "fp16"),
        ("ampere_fp16_s16816gemm_fp16_128x64_ldg8_stages_64x3_tn", "fp16"),
        ("ampere_bf16_s16816gemm_bf16_128x64_tn", "bf16"),
        ("ampere_h16816gemm_128x64_nn", "fp16"),
        ("void flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, cutlass::bfloat16_t>>(P)", "bf16"),
        ("fmha_cutlassF_f16_aligned_64x64_rf_sm80(P)", "fp16"),
    ],
)  # fmt: skip
def test_a_kernel_name_tells_what_it_multiplies_in(name, compute):
    assert compute_precision(name) == compute


@pytest.mark.parametrize(
    "name",
    [
        "",
        "mha0",
        "__myl_bb0_9_MulMulMulAddMulTanAddMulMul",
        "__myl_bb0_8_GatGatAddCasMeaSubMulMeaAddSqrDivMulCasMulAdd",
        "void at::native::vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add<c10::Half>>",
        "fmha_cutlassF_f32_aligned_64x64_rf_sm80(P)",  # float operands: TF32 or not is not told
        # cuDNN calls its kernel so in fp16 and in bf16.
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64",
        "gemv2T_kernel_val",
        "nvjet_sm90_sss_64x8_64x16_1x4_h_bz_NNT",  # single operands: not told
        "ampere_s1688gemm_128x64_nn",  # neither operands nor tensorop: not told
    ],
)
def test_what_a_name_does_not_tell_is_unknown(name):
    assert compute_precision(name) is None


def test_cudnn_spells_both_types_of_sixteen_bits_alike():
    cudnn = "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_{}_knob_7_64x128x64"
    assert leaves_type_open(cudnn.format("f16"))
    assert not leaves_type_open(cudnn.format("e4m3")) and not leaves_type_open("ampere_sgemm_64x64")
