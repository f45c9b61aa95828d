#!/usr/bin/env bash
# Makes every figure and capture in this folder, on a machine with an NVIDIA GPU, TensorRT and nsys.
#
#   docs/results/measure.sh OUT [PART…]      PART: gpt2 counters tiny onnxruntime-cuda inductor
#                                            gpt2-large (the default), and gpt2-large-batch
#
# tiny: every way of collecting counters, and batch sizes, on a model of 2 blocks.
# counters and onnxruntime-cuda go on with the run of gpt2: counters of the eager model and of
# training, one capture in 1, 3 and 7 pieces, what ncu counts by; ONNX Runtime's engines beside
# TensorRT's (onnxruntime-gpu).
# inductor: packages of torch.compile in fp16 beside the other engines and eager, of gpt2, of
# gpt2-large without the reference's options, and of BERT, Llama and Qwen3 of 4 blocks (packages
# alone); both GPT-2 in torch.compile's other modes; counters of gpt2's; a compiled training step
# beside an eager one. Needs a C++ compiler.
#
# Uses `layerline` from the PATH, or LAYERLINE=…; TRT_PYTHON=… for another interpreter's TensorRT.
# PRECISIONS=fp16,… only these. COUNTERS=0 without ncu, REBUILD=0 without building engines twice,
# LIMIT=SECONDS at most for each measurement. Runs go to RUNS (default
# OUT/runs). One precision after the other, so that what is done is whole if time ends. OUT gets,
# per run, the report, the tables' CSV, summary.json, an independent timing of each engine and a
# .tar.gz of the captures, and steps.txt: seconds and exit code of each step. A report's exit code 1
# says that a check in it failed, and is no failure of this script. Clocks and settings of the GPU
# are left as they are.
set -uo pipefail
out=${1:?usage: measure.sh OUT [PART…]}; shift
mkdir -p "$out"; out=$(cd "$out" && pwd)
here=$(cd "$(dirname "$0")/../.." && pwd)
runs=${RUNS:-$out/runs}
layerline=(${LAYERLINE:-layerline})
parts=(${@:-gpt2 counters tiny onnxruntime-cuda inductor gpt2-large})
reference=(--set scale_attn_by_inverse_layer_idx=true --set reorder_and_upcast_attn=true --set vocab_size=32768)
limit=(${LIMIT:+--seconds "$LIMIT"})
gpt2=$runs/gpt2-1x512
gpt2_model=(--model gpt2 --batch 1 --seq 512)

step() { # step SECONDS COMMAND…: run it, note how long it took; a failure is noted, not fatal
  local limit=$1 began=$SECONDS code; shift
  timeout "$limit" "$@" >"$out/last.log" 2>&1; code=$?
  printf '%s %4d s  exit %d  %s\n' "$(date +%T)" $((SECONDS - began)) $code "$*" >>"$out/steps.txt"
  [ $code = 0 ] || tail -n 3 "$out/last.log" >>"$out/steps.txt"
}

keep() { # keep NAME: the report and what the captures hold, without models and engines
  local run=$runs/$1 to=$out/$1
  mkdir -p "$to"
  cp "$run"/report/{report.md,layers.csv,summary.json,index.html} "$to/" 2>/dev/null
  tar -C "$run" -czf "$out/$1.tar.gz" --exclude='*.onnx' --exclude='*.data' --exclude='*.engine' \
    --exclude='*.pt2' --exclude='*.npz' --exclude='*.nsys-rep' --exclude='*.partial*' --exclude='tables' --exclude='report' .
}

measure() { # measure NAME PRECISIONS EXPORT-ARGUMENTS…
  local name=$1 precisions=${PRECISIONS:-$2} run=$runs/$1 p; shift 2
  step 600 "${layerline[@]}" export --run "$run" --precision fp32 "$@"
  mkdir -p "$out/$name"
  for p in ${precisions//,/ }; do
    local of=(--run "$run" --precision "$p") engine=$run/engines/$p.tensorrt.engine
    step 1200 "${layerline[@]}" engines "${of[@]}" --backend tensorrt
    # Eager first: the engine's outputs are held against it.
    step 600 "${layerline[@]}" profile "${of[@]}" --backend tensorrt --what eager,train "${limit[@]}"
    step 600 "${layerline[@]}" profile "${of[@]}" --backend tensorrt --what engine --trace-iterations 10 "${limit[@]}"
    # As often loaded as by the profile: a line each.
    step 300 bash -c 'for load in 1 2 3 4 5; do "$0" "$1" "$2" "$3" 300; done >"$4"' "${TRT_PYTHON:-python3}" \
      "$here/tests/gpu/independent_latency.py" "$engine" "$run/export/inputs.npz" \
      "$out/$name/independent.$p.json"
    keep "$name"
    if [ "${COUNTERS:-1}" = 1 ]; then
      step 900 "${layerline[@]}" ncu "${of[@]}" --clock-control none --roofline
      step 900 "${layerline[@]}" ncu "${of[@]}" --clock-control none --roofline --every
      step 120 "${PYTHON:-python3}" -P "$here/tests/gpu/fraction.py" \
        "$run/captures/$p.tensorrt.ncu.csv" "$run/captures/$p.tensorrt.ncu-every.ncu.csv"
      cp "$out/last.log" "$out/$name/fraction.$p.txt"
      keep "$name"
    fi
    step 300 "${layerline[@]}" report --run "$run"
    keep "$name"
  done
  [ "${REBUILD:-1}" = 0 ] ||
    step 1200 "${layerline[@]}" profile --run "$run" --backend tensorrt --precision "${precisions##*,}" --what rebuild
  step 300 "${layerline[@]}" report --run "$run"
  keep "$name"
}

counters() { # more counters of the run of gpt2
  local of=(--run "$gpt2" --precision fp16 --clock-control none) what pieces
  for what in eager train; do
    step 600 "${layerline[@]}" ncu "${of[@]}" --roofline --of $what
  done
  keep gpt2-1x512
  # Every launch of a training step by two counters, against what the fraction would say.
  rm -rf "$runs/train-every"; cp -al "$gpt2" "$runs/train-every"
  rm -f "$runs/train-every"/captures/*.ncu*
  step 600 "${layerline[@]}" ncu "${of[@]/$gpt2/$runs/train-every}" --of train --every \
    --metrics smsp__inst_executed.sum --metrics dram__bytes.sum
  step 120 "${PYTHON:-python3}" -P "$here/tests/gpu/fraction.py" --train "$runs/train-every" fp16
  cp "$out/last.log" "$out/fraction_of_training.txt"
  step 300 bash "$here/tests/gpu/ncu_counts.sh"
  cp "$out/last.log" "$out/ncu_counts.txt"
  # Every launch once, in 1, 3 and 7 runs of the program. Hard links: a run folder for each.
  for pieces in 172 58 25; do
    rm -rf "$runs/pieces-$pieces"; cp -al "$gpt2" "$runs/pieces-$pieces"
    rm -f "$runs/pieces-$pieces"/captures/*.ncu*
    step 600 "${layerline[@]}" ncu "${of[@]/$gpt2/$runs/pieces-$pieces}" --batch-launches $pieces
    tar -C "$runs/pieces-$pieces/captures" -czf "$out/pieces-$pieces.tar.gz" --exclude='*.ncu-rep' \
      $(cd "$runs/pieces-$pieces/captures" && ls -d *.ncu* 2>/dev/null)
  done
}

tiny() {
  local of=(--run "$runs/tiny" --precision tf32 --backend tensorrt)
  step 300 "${layerline[@]}" export --run "$runs/tiny" --precision fp32 --model gpt2-tiny --seq 64
  step 300 "${layerline[@]}" engines "${of[@]}"
  step 300 "${layerline[@]}" profile "${of[@]}" --what engine --seconds 2
  step 600 bash "$here/tests/gpu/ncu_modes.sh" "$runs/tiny" tf32
  cp "$out/last.log" "$out/ncu_modes.txt"
  step 600 "${layerline[@]}" sweep "${of[@]}" --batches 1,4,8
  cp "$runs"/tiny/captures/sweep* "$out/"
}

onnxruntime_cuda() { # ONNX Runtime's engines of the run of gpt2
  local of=(--run "$gpt2" --backend onnxruntime-cuda) p
  step 600 "${layerline[@]}" export --run "$gpt2" --precision fp32,fp16 "${gpt2_model[@]}"
  for p in fp16 tf32 fp32; do
    step 600 "${layerline[@]}" engines "${of[@]}" --precision $p
    step 600 "${layerline[@]}" profile "${of[@]}" --precision $p --what engine --trace-iterations 10 "${limit[@]}"
  done
  step 300 "${layerline[@]}" report --run "$gpt2"
  keep gpt2-1x512
}

compiled() { # compiled NAME "BACKEND…" WHAT EXPORT-ARGUMENTS…: engines in fp16, each loaded three times; MODE of torch.compile
  local name=$1 backends=$2 what=$3 run=$runs/$1 backend; shift 3
  local of=(--run "$run" --precision fp16)
  step 600 "${layerline[@]}" export --run "$run" --precision fp32,fp16 "$@"
  [ -z "$what" ] || step 600 "${layerline[@]}" profile "${of[@]}" --what "$what" "${limit[@]}"
  for backend in $backends; do
    step 1200 "${layerline[@]}" engines "${of[@]}" --backend "$backend" ${MODE:+--optimization-level "$MODE"}
    step 600 "${layerline[@]}" profile "${of[@]}" --backend "$backend" --what engine --processes 3 \
      --trace-iterations 10 "${limit[@]}"
  done
  step 300 "${layerline[@]}" report --run "$run"
  keep "$name"
}

inductor() {
  local every="inductor onnxruntime-cuda tensorrt" family how run
  compiled gpt2-1x512 "$every" eager "${gpt2_model[@]}"
  step 600 "${layerline[@]}" ncu --run "$gpt2" --precision fp16 --backend inductor --clock-control none --roofline
  step 300 "${layerline[@]}" report --run "$gpt2"
  keep gpt2-1x512
  compiled gpt2-large-1x1024-plain "$every" eager --model gpt2-large --batch 1 --seq 1024
  for family in bert llama qwen3; do
    mkdir -p "$runs/models/$family"
    config $family >"$runs/models/$family/config.json"
    compiled $family-1x128 inductor "" --model "$runs/models/$family" --batch 1 --seq 128
  done
  # What the other modes take to build and to run.
  for how in reduce-overhead max-autotune; do
    MODE=$how compiled gpt2-$how inductor "" "${gpt2_model[@]}"
    MODE=$how compiled gpt2-large-$how inductor "" --model gpt2-large --batch 1 --seq 1024
  done
  for how in eager compiled; do
    run=$runs/train-$how
    step 600 "${layerline[@]}" train gpt2 --run "$run" --precision bf16 --batch 1 --seq 512 --steps 20 \
      --profile torch $([ $how = eager ] || echo --compile)
    step 300 "${layerline[@]}" report --run "$run"
    keep train-$how
  done
  step 300 "${layerline[@]}" compare "$runs/train-eager" "$runs/train-compiled"
  cp "$out/last.log" "$out/train-compiled.txt"
}

config() { # config FAMILY: a model of 4 blocks, 1024 wide, 16 heads; 4 of keys and values
  local own
  case $1 in
    bert) own='"architectures": ["BertModel"], "vocab_size": 30522' ;;
    llama) own='"architectures": ["LlamaForCausalLM"], "vocab_size": 32000, "num_key_value_heads": 4' ;;
    qwen3) own='"architectures": ["Qwen3ForCausalLM"], "vocab_size": 32000, "num_key_value_heads": 4, "head_dim": 64' ;;
  esac
  echo "{\"model_type\": \"$1\", \"hidden_size\": 1024, \"intermediate_size\": 4096, \"num_hidden_layers\": 4,"
  echo " \"num_attention_heads\": 16, \"tie_word_embeddings\": false, $own}"
}

for part in "${parts[@]}"; do
  case $part in
    gpt2) measure gpt2-1x512 fp16,tf32,fp32 "${gpt2_model[@]}" ;;
    counters) counters ;;
    tiny) tiny ;;
    onnxruntime-cuda) onnxruntime_cuda ;;
    inductor) inductor ;;
    gpt2-large) COUNTERS=0 measure gpt2-large-1x1024 fp16,tf32 --model gpt2-large --batch 1 --seq 1024 "${reference[@]}" ;;
    gpt2-large-batch) COUNTERS=0 measure gpt2-large-4x1024 tf32 --model gpt2-large --batch 4 --seq 1024 "${reference[@]}" ;;
    *) echo "error: no part $part" >&2; exit 2 ;;
  esac
done
