#!/usr/bin/env bash
# What is said of many ranks on GPUs, held against itself: nsys and torch.profiler, the clock of the
# program, the parts of a step, a planted straggler, a bubble, an independent timing of the wires.
# Makes the figures of docs/results where there are 2 or 4 GPUs. At most 10 minutes; needs PyTorch,
# transformers and nsys, and ncu for the part of that name.
#
# usage: LAYERLINE=layerline PYTHON=python3 tests/gpu/ranks.sh WORK RANKS [PART…]
#   PART: exchange fsdp layouts straggler checkpoint ncu (all of them by default)
#
# Prints "holds" or "FAILS" for each; exit status 1 where one fails. Ranks that share a GPU talk by
# gloo, and layouts that need NCCL are left out. SIZE=tiny: a try without a GPU.
set -uo pipefail
work=${1:?usage: ranks.sh WORK RANKS [PART…]}; ranks=${2:?usage: ranks.sh WORK RANKS [PART…]}; shift 2
mkdir -p "$work"; work=$(cd "$work" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
read -r -a layerline <<<"${LAYERLINE:-layerline}"
python=${PYTHON:-python3}
read -r -a parts <<<"${*:-exchange fsdp layouts straggler checkpoint ncu}"
gpus=$("$python" -c 'import torch; print(torch.cuda.device_count())')
profiles=torch,nsys exchange=() gpt=() llama=(--model 7b --seq 2048 --set checkpoint_every=1) planted=0.05
if [ "$gpus" -lt "$ranks" ]; then
  llama=(--model 7b --seq 256 --set layers=1); gpt=(--set layers=4)
fi
if [ "${SIZE:-}" = tiny ]; then
  profiles=torch; exchange=(--seq 256 --set hidden=512 --set warmup=2)
  gpt=(--model tiny --set global_batch=8 --set micro_batch=2); llama=(--model tiny)
fi
failed=0

# trained NAME OPTION…: a training of all ranks, explained, and what holds of it
trained() {
  local name=$1 run=$work/$1 began=$SECONDS; shift
  if ! timeout 280 "${layerline[@]}" -q train "$@" --nproc "$ranks" --run "$run" >"$run.log" 2>&1; then
    echo "FAILS: $name is trained: $(tail -n 2 "$run.log" | cut -c1-400)"; failed=1; return 1
  fi
  echo "== $name: $* ($((SECONDS - began)) s)"
  "${layerline[@]}" -q ranks "$run" 2>&1 | sed -n '1,12p'
  "$python" -P "$here/ranks_hold.py" "$run" || failed=1
}

for part in "${parts[@]}"; do
  case $part in
    exchange)
      for precision in fp32 bf16; do
        trained "exchange-$precision" sequence-parallel "${exchange[@]}" --precision $precision --profile $profiles
      done
      timeout 200 "$python" -m torch.distributed.run --nproc-per-node "$ranks" "$here/wires.py" ;;
    fsdp)
      for parallel in fsdp hsdp; do
        trained "llama-$parallel" llama "${llama[@]}" --precision bf16 --set parallel=$parallel --steps 4 \
          --profile $profiles --schedule 0,1,3
      done ;;
    layouts)
      layouts=(DP DP_TP)
      if [ "$gpus" -ge "$ranks" ] || [ "${SIZE:-}" = tiny ]; then layouts+=(DP_PP DP_TP_SP); [ "$ranks" -lt 4 ] || layouts+=(DP_TP_PP); fi
      for layout in "${layouts[@]}"; do
        trained "gpt-$layout" gpt-layouts "${gpt[@]}" --precision bf16 --set layout="$layout" --steps 4 \
          --profile $profiles --schedule 0,1,3
      done ;;
    straggler)
      PLANT=matmul:1:$planted PYTHONPATH=$here/../support/planted${PYTHONPATH:+:$PYTHONPATH} \
        trained straggler llama --model tiny --precision fp32 --steps 6 --profile torch
      if "${layerline[@]}" -q ranks "$work/straggler" 2>&1 | head -n 1 | grep -q '^Rank 1 '; then
        echo "holds: rank 1, whose products are slowed, is named"
      else echo "FAILS: rank 1, whose products are slowed, is not named"; failed=1; fi ;;
    checkpoint)
      options=(llama --model tiny --precision bf16 --nproc "$ranks" --set "checkpoints=$work/kept" --set save_every=3 --profile torch)
      "${layerline[@]}" -q train "${options[@]}" --run "$work/first" --steps 400 >"$work/first.log" 2>&1 &
      for _ in $(seq 120); do sleep 0.5; ls "$work"/kept/*/.metadata >/dev/null 2>&1 && break; done
      pkill -9 -f 'layerline.profile.ranks.worker' ; wait $!; tail -n 1 "$work/first.log" | cut -c1-300
      if "${layerline[@]}" -q train "${options[@]}" --run "$work/second" --steps 12 >"$work/second.log" 2>&1; then
        echo "holds: a killed job goes on from its newest checkpoint ($(grep -o 'step [0-9]*' "$work/second.log" | head -n 1))"
      else echo "FAILS: the job does not go on: $(tail -n 1 "$work/second.log")"; failed=1; fi ;;
    ncu)
      if timeout 200 "${layerline[@]}" -q train gpt-layouts --model tiny --set layout=DP --nproc "$ranks" --run "$work/ncu" \
        --profile ncu --launches 10:4 --ranks 0 --steps 2 >"$work/ncu.log" 2>&1; then
        echo "holds: ncu measures kernels of one rank: $(ls "$work/ncu/captures")"
      else echo "FAILS: ncu on one rank: $(tail -n 1 "$work/ncu.log" | cut -c1-300)"; failed=1; fi ;;
    *) echo "error: no part $part" >&2; exit 2 ;;
  esac
done
exit $failed
