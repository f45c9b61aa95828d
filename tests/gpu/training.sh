#!/usr/bin/env bash
# What is said of training on a GPU, held against itself: phases and the step, modules and the total,
# nsys and torch.profiler, the peak of memory, a loop written by hand, what counting parameters
# costs. About 12 minutes on one GPU; needs PyTorch, transformers and nsys.
#
# usage: LAYERLINE=layerline PYTHON=python3 tests/gpu/training.sh WORK [PART…]
#     PART: medium_fp32 medium_bf16 long_fp32 checkpointed compiled bert_fp16 seed loop bits counting (all by default)
#
# Prints "holds" or "FAILS" for each; exit status 1 where one fails. SIZE=tiny: a try without a GPU.
set -uo pipefail
work=${1:?usage: training.sh WORK [PART…]}; shift; mkdir -p "$work"; work=$(cd "$work" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
read -r -a layerline <<<"${LAYERLINE:-layerline}"
python=${PYTHON:-python3}
profiles=torch,operators,memory,parameters,waits,graph
medium=(--model gpt2-medium --batch 2 --seq 180); long=(--model gpt2 --seq 1024)
bert=(--model bert --batch 4 --seq 128); steps=30; benches=("gpt2-medium 2 180 fp32 80" "gpt2-medium 2 180 bf16 80" "gpt2 1 1024 bf16 150")
counted=("gpt2-medium 2 180 fp32 100" "gpt2-medium 2 180 bf16 100" "gpt2-medium 2 180 fp32 100 --fused")
copied=("gpt2-medium 2 180 fp32 5" "gpt2-medium 2 180 bf16 5 --fused")
if [ "${SIZE:-}" = tiny ]; then
  medium=(--model tiny --batch 2); long=(--model tiny --seq 64); bert=(--model tiny); steps=3; benches=("tiny 2 32 fp32 3")
  counted=("tiny 2 32 fp32 2"); copied=("tiny 2 32 fp32 5 --fused")
else
  profiles=$profiles,nsys
fi
failed=0

# trained NAME WORKLOAD OPTION…: a training, its report, and what holds of both
trained() {
  local name=$1; shift
  local began=$SECONDS
  if ! timeout 300 "${layerline[@]}" -q train "$@" --run "$work/$name" --steps $steps >"$work/$name.log" 2>&1; then
    echo "FAILS: $name is trained: $(tail -n 2 "$work/$name.log")"; failed=1; return
  fi
  timeout 120 "${layerline[@]}" -q report "$work/$name" >>"$work/$name.log" 2>&1
  if [[ $* = *memory* ]]; then timeout 300 "${layerline[@]}" -q memory "$work/$name" ${remedies:+--try "$remedies"} >>"$work/$name.log" 2>&1; fi
  echo "== $name: $* ($((SECONDS - began)) s)"
  "$python" "$here/training_holds.py" "$work/$name" || failed=1
}

for part in ${*:-medium_fp32 medium_bf16 long_fp32 checkpointed compiled bert_fp16 seed loop bits counting}; do
  case $part in
    medium_fp32)
      remedies=checkpoint,checkpoint-half,batch,fused
      trained $part gpt2 "${medium[@]}" --precision fp32 --profile "$profiles"
      remedies= ;;
    medium_bf16) trained $part gpt2 "${medium[@]}" --precision bf16 --profile "$profiles" ;;
    long_fp32)
      remedies=checkpoint,checkpoint-half
      trained $part gpt2 "${long[@]}" --precision fp32 --profile "$profiles"
      remedies= ;;
    checkpointed) trained $part gpt2 "${long[@]}" --precision bf16 --profile torch --checkpoint --accumulate 2 --fused ;;
    compiled) trained $part gpt2 "${long[@]}" --precision bf16 --profile torch --compile ;;
    bert_fp16) trained $part bert "${bert[@]}" --precision fp16 --profile torch ;;
    seed)
      for again in "" .again; do
        "${layerline[@]}" -q train gpt2 "${medium[@]}" --precision bf16 --deterministic --profile torch \
          --run "$work/seed$again" --steps 10 >"$work/seed$again.log" 2>&1 || tail -n 2 "$work/seed$again.log"
      done
      echo "== a seed gives the same losses again"
      "$python" "$here/training_holds.py" "$work/seed" "$work/seed.again" || failed=1 ;;
    loop)
      for of in "${benches[@]}"; do
        # shellcheck disable=SC2086 # words of their own
        said=$("$python" -P "$here/../bench/bench_training.py" $of 2>&1) || failed=1
        echo "== loop against one by hand: ${said##*$'\n'}"
      done ;;
    bits)
      for of in "${copied[@]}"; do
        echo "== counted changes against copies: $of"
        # shellcheck disable=SC2086 # words of their own
        "$python" -P "$here/counted_bits.py" $of || failed=1
      done ;;
    counting)
      for of in "${counted[@]}"; do
        # shellcheck disable=SC2086 # words of their own
        said=$("$python" -P "$here/../bench/bench_parameters.py" $of 2>&1) || failed=1
        echo "== counting changes: ${said##*$'\n'}"
      done ;;
    *) echo "error: no part $part" >&2; exit 2 ;;
  esac
done
exit $failed
