#!/usr/bin/env bash
# What does ncu count by? Invocations of --kernel-id and --launch-skip, inside and outside of the
# range between cudaProfilerStart and cudaProfilerStop. About 30 s; needs ncu and PyTorch on a GPU.
#
# usage: PYTHON=python3 NCU=ncu tests/gpu/ncu_counts.sh
#
# The program launches one fill kernel on two grids: A A B before the range, A A B B in it, A after.
# One line a question, and the answer that ncu gave; exit status 1 where the captures that
# layerline makes would rest on an assumption that does not hold. ncu 2025.3.1 on Hopper counts per
# function name, whatever the grid: invocation 1 is the first A, 2 the second, 3 and 4 are B.
set -euo pipefail
python=${PYTHON:-python3}
read -r -a ncu <<<"${NCU:-ncu}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat > "$work/fill.py" <<'PY'
import torch

stride = 1 << 12
x = torch.empty(16 * stride, device="cuda")
torch.cuda.synchronize()


def fill(blocks):
    x[: blocks * stride].fill_(1.0)


for blocks in (4, 4, 5):
    fill(blocks)
torch.cuda.synchronize()
torch.cuda.cudart().cudaProfilerStart()
for blocks in (4, 4, 5, 5):
    fill(blocks)
torch.cuda.synchronize()
torch.cuda.cudart().cudaProfilerStop()
fill(4)
torch.cuda.synchronize()
PY
failed=0

# captured ARGUMENTS…: the grids of what ncu profiled, in order, as "N N …"
captured() {
  "${ncu[@]}" --profile-from-start off --clock-control none --metrics launch__grid_size --csv \
    --page raw --log-file "$work/log" "$@" "$python" "$work/fill.py" >"$work/said" 2>&1 || true
  if grep -q ERR_NVGPUCTRPERM "$work/log" "$work/said"; then
    echo "error: counters are forbidden here (ERR_NVGPUCTRPERM)" >&2
    exit 3
  fi
  "$python" - "$work/log" <<'PY'
import csv
import sys

lines = [l for l in open(sys.argv[1]) if l.startswith('"')]
rows = list(csv.DictReader(lines))[1:]
print(*(row["launch__grid_size"].replace(",", "") for row in rows))
PY
}

# question TEXT EXPECTED GIVEN
question() {
  if [ "$2" = "$3" ]; then
    echo "holds: $1 ($3)"
  else
    echo "FAILS: $1: expected '$2', ncu captured '$3'"
    failed=1
  fi
}

all=$(captured)
read -r -a grid <<<"$all"
[ "${#grid[@]}" = 4 ] || { echo "error: expected 4 launches in the range, ncu has '$all'" >&2; exit 2; }
a=${grid[0]} b=${grid[2]}
question "only launches between profiler start and stop are profiled" "$a $a $b $b" "$all"
skipped=$(captured --launch-skip 1 --launch-count 2)
question "--launch-skip and --launch-count count launches of the range only" "$a $b" "$skipped"
second=$(captured --kernel-id "::regex:.*:2")
case $second in
  "$a") echo "holds: invocation numbers count launches of the range, per function name ($second)" ;;
  "$a $b") echo "FAILS: invocation numbers count by grid too ($second): plans miss kinds of work, eager captures fall back to every launch"; failed=1 ;;
  "$b") echo "FAILS: invocation numbers count from the start of the program, by grid ($second): eager captures fall back to every launch"; failed=1 ;;
  "") echo "FAILS: invocation 2 is not in the range: numbers count from the start of the program"; failed=1 ;;
  *) echo "FAILS: invocation 2 is '$second', neither of the known ways to count"; failed=1 ;;
esac
several=$(captured --kernel-id "::regex:.*:1|2")
question "several invocations are one expression" "$a $a" "$several"
anyname=$(captured --kernel-id ":::1")
question "without a name all kernels are meant" "$a" "$anyname"
long=$("$python" -c "print('|'.join('no_such_kernel_%05d' % i for i in range(4500)))")
names=$(captured --kernel-id "::regex:^($long|.*)\$:1")
question "an expression of ${#long} characters is taken" "$a" "$names"
exit $failed
