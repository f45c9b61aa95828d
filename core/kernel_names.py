"""The precision a GPU kernel multiplies in, from its name.

Names of matrix kernels spell their types; this reads the spellings below and nothing else. What
it does not know is None, never a guess.

- xmma, cask (TensorRT, cuDNN, cuBLAS): ``sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_…``: the types of
  A and B, of product and accumulator, of the output;
- nvjet (cuBLAS 12.5 and later): ``nvjet_sm90_hsh_…``: A and B, accumulator, output; h half,
  t bfloat16, s single, d double, q and o fp8. Single operands do not say how they are multiplied;
- cuBLAS before that: ``ampere_fp16_s16816gemm_fp16_…``, ``ampere_sgemm_…``;
- CUTLASS: ``cutlass_80_tensorop_s1688gemm_…`` (single data in the tensor cores of sm80: TF32),
  ``…_tensorop_f16_s16816gemm_…``, ``cutlass_80_simt_sgemm_…``;
- attention: ``…_flash_fprop_wgmma_e4m3_…`` (cuDNN; its ``f16`` is of bfloat16, too),
  ``flash_fwd_kernel<…cutlass::half_t…>``, ``fmha_cutlassF_f16_…``,
  ``fmha_v2_flash_attention_fp16_…``.

Sources: CUTLASS functionality documentation (operation names: ``s``, ``h``, ``d`` before the
instruction shape are the accumulator's type; ``tf32``, ``f16``, ``bf16`` the operands'), kernels
seen in captures of TensorRT 8.6, cuBLAS 13 and cuDNN 9.
"""

from __future__ import annotations

import re
from functools import cache

_TYPES = {
    "f64": "fp64",
    "f32": "fp32",
    "tf32": "tf32",
    "f16": "fp16",
    "fp16": "fp16",
    "bf16": "bf16",
    "i8": "int8",
    "i32": "int32",
    "e4m3": "fp8",
    "e5m2": "fp8",
    "fp8": "fp8",
}
_TYPE = r"(?:tf32|bf16|f64|f32|f16|i32|i8|e4m3|e5m2)"
_XMMA = re.compile(rf"_xmma_[a-z_]+?_{_TYPE}{_TYPE}_({_TYPE}){_TYPE}_{_TYPE}(?:_|$)")
_NVJET = re.compile(r"\bnvjet_(?:sm\d+_)?([hstdqo])[hsd][hstdqo]_")
_LETTERS = {"h": "fp16", "t": "bf16", "s": "fp32", "d": "fp64", "q": "fp8", "o": "fp8"}
_OPERANDS = r"(tf32|bf16|fp16|f16|fp8|e4m3|e5m2|i8)"
# [operands_]ACCUMULATOR SHAPE [operands] gemm: tensorop_f16_s16816gemm, fp16_s16816gemm_fp16,
# h16816gemm, s1688tf32gemm, tf32_s1688gemm
_INSTRUCTION = re.compile(rf"(?:{_OPERANDS}_)?([hsdi])(\d{{3,6}}){_OPERANDS}?gemm(?:_{_OPERANDS})?")
# SIMT kernels: ampere_sgemm_128x64_tn, cutlass_80_simt_sgemm_…, …_dgemm_…
_PLAIN = re.compile(r"(?:^|[_:])(?:simt_)?([sdh])gemm(?:_|$)")
# cuDNN says f16 of bfloat16, too; Triton's templates of products say nothing (`leaves_type_open`).
_WGMMA = re.compile(r"_wgmma_(bf16|e4m3|e5m2)_")
_OPEN = re.compile(r"_wgmma_f16_|^triton_tem_")
_FMHA = re.compile(r"\bfmha_\w*?_(f16|bf16|fp16|fp8|e4m3)(?:_|$)")
_FLASH = re.compile(r"flash_\w+kernel<.*?(half_t|bfloat16_t|float_e4m3_t|__half|__nv_bfloat16)")
_FLASH_TYPES = {"half_t": "fp16", "__half": "fp16", "float_e4m3_t": "fp8"}


@cache
def compute_precision(name: str) -> str | None:
    """What a kernel multiplies in, to be compared with the precision asked for: tf32 for float
    operands that the tensor cores round to TF32. None where its name does not say, or it
    multiplies nothing.

    >>> compute_precision("sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize32x32x64")
    'tf32'
    """
    if match := _XMMA.search(name):
        return _TYPES[match[1]]
    # Single operands are TF32, or single precision put together from smaller products: not known.
    if (match := _NVJET.search(name)) and match[1] != "s":
        return _LETTERS[match[1]]
    if match := _WGMMA.search(name) or _FMHA.search(name):
        return _TYPES[match[1]]
    if match := _FLASH.search(name):
        return _FLASH_TYPES.get(match[1], "bf16")
    if match := _PLAIN.search(name):
        return _LETTERS[match[1]]
    match = _INSTRUCTION.search(name)
    if match is None:
        return None
    if spelled := match[1] or match[4] or match[5]:
        return _TYPES[spelled]
    if match[2] in "hd":
        return _LETTERS[match[2]]
    return "tf32" if match[3] == "1688" and "tensorop" in name else None


def leaves_type_open(name: str) -> bool:
    """Whether a kernel multiplies and its name does not tell in what: a layers list may.

    >>> leaves_type_open("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7")
    True
    """
    return _OPEN.search(name) is not None


# A namespace without a name: of nvcc and NVIDIA's tools, and of the Itanium ABI's demanglers.
_UNNAMED = re.compile(r"(<unnamed>|\(anonymous namespace\))::")


def function_name(kernel: str | None) -> str:
    """A kernel's name without its result, parameters, templates and namespace: ncu and nsys
    spell these differently."""
    name = _UNNAMED.sub("", kernel or "")
    return name.split("(")[0].split("<")[0].split("::")[-1].split(" ")[-1]
