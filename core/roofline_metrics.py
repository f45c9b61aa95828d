"""The metrics that a roofline needs, as Nsight Compute names them: asked for, and read."""

from __future__ import annotations

DURATION = "gpu__time_duration.sum"
BYTES = "dram__bytes.sum"
CLOCK = "sm__cycles_elapsed.avg.per_second"
SASS = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
# FLOP per thread instruction. Half-precision instructions work on pairs (HADD2, HMUL2, HFMA2), as
# in NVIDIA's SpeedOfLight_HierarchicalHalfRooflineChart. A conversion of half to float is an HADD2
# too, so kernels that read half and compute in float show half-precision FLOP: an upper bound.
FP32 = {"fadd": 1, "fmul": 1, "ffma": 2}
FP16 = {"hadd": 2, "hmul": 2, "hfma": 4}
# "# of math ops executed in Tensor path": a multiply-add is two. Chips differ in the names: of each
# precision the first group that the capture has whole counts.
TENSOR: dict[str, tuple[tuple[str, ...], ...]] = {
    "tf32": (("sm__ops_path_tensor_src_tf32_dst_fp32.sum",),),
    "bf16": (("sm__ops_path_tensor_src_bf16_dst_fp32.sum",),),
    "fp16": (
        ("sm__ops_path_tensor_src_fp16.sum",),  # 9.0
        ("sm__ops_path_tensor_src_fp16_dst_fp16.sum", "sm__ops_path_tensor_src_fp16_dst_fp32.sum"),
    ),
}
# For a capture to ask for. ncu 2025.3 leaves out, without a word, what the chip does not have.
METRICS: tuple[str, ...] = (
    DURATION,
    BYTES,
    *(SASS.format(op) for op in (*FP32, *FP16)),
    *(metric for groups in TENSOR.values() for group in groups for metric in group),
    CLOCK,
)
