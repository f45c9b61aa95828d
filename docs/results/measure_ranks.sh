#!/usr/bin/env bash
# Makes every figure that is said of several ranks, on a machine with 1, 2 or 4 GPUs, and holds each
# against another: nsys and torch.profiler, the clock of the program, the parts of a step, a planted
# straggler, a bubble, an independent timing of the wires, memory against the plan. At most 10
# minutes; needs PyTorch, transformers and nsys, and ncu for the part of that name.
#
#   docs/results/measure_ranks.sh OUT RANKS [PART…]
#       PART: exchange fsdp layouts straggler checkpoint hang ncu small (all of them by default)
#
# Uses `layerline` from the PATH, or LAYERLINE=…; PYTHON=… for another interpreter. Runs go to RUNS
# (default OUT/runs). OUT gets holds.txt, "holds" or "FAILS" for each figure, and exchange.tar.gz,
# fsdp.tar.gz, layouts.tar.gz and others.tar.gz of reports, tables and captures, traces first, up to
# 15 MB in each; what is done stays where time ends. Exit status 1 where one fails. Ranks that share
# a GPU talk by gloo, and layouts that need NCCL are left out; LAYOUTS="DP_PP …": these alone.
# SIZE=tiny: a try without a GPU. NVLink multicast stays off.
set -uo pipefail
usage="usage: measure_ranks.sh OUT RANKS [PART…]"
out=${1:?$usage}; ranks=${2:?$usage}; shift 2
mkdir -p "$out" "${RUNS:=$out/runs}"; out=$(cd "$out" && pwd); work=$(cd "$RUNS" && pwd)
tests=$(cd "$(dirname "$0")/../../tests" && pwd)
read -r -a layerline <<<"${LAYERLINE:-layerline}"
python=${PYTHON:-python3}
read -r -a parts <<<"${*:-exchange fsdp layouts straggler checkpoint hang ncu small}"
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1
exec > >(tee -a "$out/holds.txt")
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
  "${layerline[@]}" -q ranks "$run" 2>&1 | sed -n -e '1,12p' -e '/^rank  stage/,/^$/p'
  "$python" -P "$tests/gpu/ranks_hold.py" "$run" || failed=1
}

# kept ARCHIVE RUNS…: what is small of them, then traces, then the rest, of up to 12 MB each and as
# long as there is room; RUNS may be a pattern
kept() {
  local archive=$1; shift
  (cd "$work" && find $* -type f -size -12000000c \( -path '*/report/*' -o -path '*/tables/*' -o -path '*/captures/*' \
    -o -name '*.log' \) -printf '%s\t%p\n' 2>/dev/null |
    awk '{print ($1 < 2000000 ? 0 : /trace\.json\.gz$/ ? 1 : 2) "\t" $0}' | sort -n -k1,1 -k2,2 |
    awk -F '\t' '$2 <= 15000000 - all {all += $2; print $3}' | tar -czf "$out/$archive.tar.gz" -T -)
}

for part in "${parts[@]}"; do
  case $part in
    exchange)
      for precision in fp32 bf16; do
        trained "exchange-$precision" sequence-parallel "${exchange[@]}" --precision $precision --profile $profiles
      done
      timeout 200 "$python" -m torch.distributed.run --nproc-per-node "$ranks" "$tests/gpu/wires.py" ;;
    fsdp)
      for parallel in fsdp hsdp; do
        trained "llama-$parallel" llama "${llama[@]}" --precision bf16 --set parallel=$parallel --steps 4 \
          --profile $profiles --schedule 0,1,3
      done ;;
    layouts)
      layouts=(DP DP_TP)
      if [ "$gpus" -ge "$ranks" ] || [ "${SIZE:-}" = tiny ]; then layouts+=(DP_PP DP_TP_SP); [ "$ranks" -lt 4 ] || layouts+=(DP_TP_PP); fi
      [ -z "${LAYOUTS:-}" ] || read -r -a layouts <<<"$LAYOUTS"
      for layout in "${layouts[@]}"; do
        trained "gpt-$layout" gpt-layouts "${gpt[@]}" --precision bf16 --set layout="$layout" --steps 4 \
          --profile $profiles --schedule 0,1,3
      done ;;
    straggler)
      PLANT=matmul:1:$planted PYTHONPATH=$tests/support/ranks/planted${PYTHONPATH:+:$PYTHONPATH} \
        trained straggler llama --model tiny --precision fp32 --steps 6 --profile torch
      said=$("${layerline[@]}" -q ranks "$work/straggler" 2>&1)
      if [[ $said == "Rank 1 "* ]]; then
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
      if timeout 200 "${layerline[@]}" -q train --nproc "$ranks" --run "$work/ncu" --profile ncu --launches 10:4 --ranks 0 \
        -- "$python" -P "$tests/support/ranks/training_job.py" "$work" --device cuda --unprofiled >"$work/ncu.log" 2>&1; then
        echo "holds: ncu measures kernels of one rank: $(ls "$work/ncu/captures")"
      else echo "FAILS: ncu on one rank: $(tail -n 1 "$work/ncu.log" | cut -c1-300)"; failed=1; fi
      offers=$(ncu --help | grep -oE -- '--(communicator|lockstep)[a-z-]*' | sort -u | xargs)
      echo "  of collectives, $(ncu --version | tail -n 1) offers: ${offers:-nothing}" ;;
    small)  # captures that are small enough to keep
      trained small llama --model tiny --precision bf16 --steps 4 --profile $profiles --schedule 0,1,2 ;;
    hang)  # the limit counts from when the ranks have begun; what starts them takes a cold disk a minute
      own=cpu; [ "$gpus" -lt "$ranks" ] || own=cuda
      timeout 300 "${layerline[@]}" -q train --nproc "$ranks" --run "$work/hang" --timeout 90 --profile torch \
        -- "$python" -P "$tests/support/ranks/rank_program.py" stuck "" "$own" >"$work/hang.log" 2>&1
      if grep -q 'it did not end within 90 s' "$work/hang.log" && grep -q 'rank 1 stood in load' "$work/hang.log"; then
        echo "holds: a job that hangs ($own) is ended, and each rank's line is told"
      else echo "FAILS: a job that hangs: $(tail -n 1 "$work/hang.log" | cut -c1-400)"; failed=1; fi ;;
    *) echo "error: no part $part" >&2; exit 2 ;;
  esac
  case $part in
    exchange) kept "$part" 'exchange-*' ;;
    fsdp) kept "$part" 'llama-*' ;;
    layouts) kept "$part" 'gpt-*' ;;
    *) kept others straggler first/captures second/captures hang ncu small '*.log' ;;
  esac
done
exit $failed
