#!/usr/bin/env bash
# Makes every figure and capture in this folder, on a machine with an NVIDIA GPU, TensorRT and nsys.
#
#   docs/results/measure.sh OUT [PART…]      PART: gpt2 gpt2-large gpt2-large-batch (default: the
#                                            first two)
#
# Uses `layerline` from the PATH, or LAYERLINE=…; TRT_PYTHON=… for another interpreter's TensorRT.
# Runs go to RUNS (default OUT/runs). OUT gets, per run, the report, the tables' CSV, summary.json
# and scrubbed captures. Clocks and settings of the GPU are left as they are.
set -uo pipefail
out=${1:?usage: measure.sh OUT [PART…]}; shift
mkdir -p "$out"; out=$(cd "$out" && pwd)
runs=${RUNS:-$out/runs}
layerline=(${LAYERLINE:-layerline})
parts=(${@:-gpt2 gpt2-large})
reference=(--set scale_attn_by_inverse_layer_idx=true --set reorder_and_upcast_attn=true --set vocab_size=32768)

step() { # step SECONDS COMMAND…: run it, note how long it took; a failure is noted, not fatal
  local limit=$1 began=$SECONDS code; shift
  timeout "$limit" "$@" >"$out/last.log" 2>&1; code=$?
  printf '%4d s  exit %d  %s\n' $((SECONDS - began)) $code "${*: -6}" | tee -a "$out/steps.txt"
  [ $code = 0 ] || tail -n 3 "$out/last.log" | tee -a "$out/steps.txt"
}

measure() { # measure NAME PRECISIONS EXPORT-ARGUMENTS…
  local name=$1 precisions=$2 run=$runs/$1; shift 2
  step 600 "${layerline[@]}" export --run "$run" --precision fp32 "$@"
  step 1200 "${layerline[@]}" engines --run "$run" --backend tensorrt --precision "$precisions"
  step 600 "${layerline[@]}" profile --run "$run" --backend tensorrt --precision "$precisions" \
    --what engine,eager,train --trace-iterations 10
  [ "${REBUILD:-1}" = 0 ] ||
    step 1200 "${layerline[@]}" profile --run "$run" --backend tensorrt --precision "${precisions##*,}" --what rebuild
  step 300 "${layerline[@]}" report --run "$run"
  mkdir -p "$out/$name"
  cp "$run"/report/{report.md,layers.csv,summary.json,index.html} "$out/$name/" 2>/dev/null
  tar -C "$run" -czf "$out/$name.tar.gz" --exclude='*.onnx' --exclude='*.data' --exclude='*.engine' \
    --exclude='*.npz' --exclude='*.nsys-rep' --exclude='tables' --exclude='report' .
}

for part in "${parts[@]}"; do
  case $part in
    gpt2) measure gpt2-1x512 fp32,tf32,fp16 --model gpt2 --batch 1 --seq 512 ;;
    gpt2-large) measure gpt2-large-1x1024 tf32,fp16 --model gpt2-large --batch 1 --seq 1024 "${reference[@]}" ;;
    gpt2-large-batch) measure gpt2-large-4x1024 tf32 --model gpt2-large --batch 4 --seq 1024 "${reference[@]}" ;;
    *) echo "error: no part $part" >&2; exit 2 ;;
  esac
done
