#!/usr/bin/env bash
# Every way of collecting counters, on one engine: do they run, and do they count the same work?
# About 3 minutes with a small model; needs ncu, TensorRT and a GPU whose counters may be read.
#
# usage: LAYERLINE=layerline PYTHON=python3 tests/gpu/ncu_modes.sh RUN PRECISION
#
# RUN has a TensorRT engine and its nsys capture. Instructions executed are counted by each way, per
# launch, and held against kernel replay. Prints "holds" or "FAILS" for each; exit status 1 where one
# fails. The run is left as it is.
set -uo pipefail
run=${1:?usage: ncu_modes.sh RUN PRECISION}; precision=${2:?usage: ncu_modes.sh RUN PRECISION}
read -r -a layerline <<<"${LAYERLINE:-layerline}"
work=$(mktemp -d "$(dirname "$run")/modes.XXXX"); trap 'rm -rf "$work"' EXIT
failed=0
count=smsp__inst_executed.sum

# way NAME ARGUMENTS…: counters of a copy of the run (hard links) into $work/NAME.txt, a line a launch
way() {
  local name=$1 copy=$work/$1 code; shift
  cp -al "$run" "$copy"; rm -rf "$copy"/captures/*.ncu*
  timeout 300 "${layerline[@]}" ncu --run "$copy" --precision "$precision" --clock-control none \
    --metrics $count "$@" >"$work/said" 2>&1; code=$?
  if [ $code != 0 ]; then
    echo "FAILS: $name: exit $code: $(tail -n 2 "$work/said" | cut -c1-400)"; failed=1; return 1
  fi
  "${layerline[@]}" report --run "$copy" >"$work/said" 2>&1
  "${PYTHON:-python3}" - "$copy/tables/counters.parquet" $count >"$work/$name.txt" 2>"$work/said" <<'PY'
import sys

import pyarrow.parquet as pq

for row in pq.read_table(sys.argv[1]).sort_by("launch").to_pylist():
    if row["metric"] == sys.argv[2]:
        print(row["launch"], row["value"])
PY
  [ -s "$work/$name.txt" ] || { echo "FAILS: $name: no $count in its table: $(tail -n 1 "$work/said")"; failed=1; return 1; }
  echo "runs: $name, $(wc -l <"$work/$name.txt") launches"
}

# same NAME: as kernel replay, launch by launch
same() {
  if cmp -s "$work/kernel.txt" "$work/$1.txt"; then echo "holds: $1 counts what kernel replay counts"
  else echo "FAILS: $1 differs: $(diff "$work/kernel.txt" "$work/$1.txt" | head -n 4 | tr '\n' ' ')"; failed=1; fi
}

way kernel --every || exit 1
way application --every --replay-mode application && same application
way warm --every --cache-control none && same warm
way passes --every --metrics smsp__cycles_active.sum --metrics sm__cycles_active.sum --passes 1 && same passes
way pieces --every --batch-launches 5 && same pieces
way fraction && echo "holds: the fraction is captured"
way named --every --kernel-name '.*gemm.*' && echo "holds: a filter by kernel name"

# The iteration as one: at least what its launches count together.
for mode in range app-range; do
  copy=$work/$mode; cp -al "$run" "$copy"; rm -rf "$copy"/captures/*.ncu*
  if ! timeout 300 "${layerline[@]}" ncu --run "$copy" --precision "$precision" --clock-control none \
    --metrics $count --replay-mode $mode >"$work/said" 2>&1; then
    echo "FAILS: $mode: $(tail -n 2 "$work/said" | cut -c1-400)"; failed=1; continue
  fi
  "${layerline[@]}" metrics attribute "$copy/captures/$precision.tensorrt.ncu-range.ncu.csv" \
    -m $count -o "$work/$mode.txt" >"$work/said" 2>&1 ||
    { echo "FAILS: $mode: $(tail -n 1 "$work/said" | cut -c1-400)"; failed=1; continue; }
  "${PYTHON:-python3}" - "$work/kernel.txt" "$work/$mode.txt" $mode <<'PY' || failed=1
import sys

launches = sum(float(line.split()[1]) for line in open(sys.argv[1]))
whole = [float(line.split()[0]) for line in open(sys.argv[2]) if line[:1] not in ("#", "\n")]
if len(whole) == 1 and 0.99 * launches <= whole[0] <= 1.1 * launches:  # the driver's own work too
    print(f"holds: {sys.argv[3]} counts {whole[0]:.0f}, its launches {launches:.0f}")
else:
    sys.exit(print(f"FAILS: {sys.argv[3]} counts {whole}, its launches {launches:.0f}") or 1)
PY
done
timeout 120 "${layerline[@]}" ncu --run "$run" --query >"$work/said" 2>&1 &&
  echo "holds: --query ($(tail -n 1 "$work/said" | cut -c1-200))" || { echo "FAILS: --query: $(tail -n 1 "$work/said")"; failed=1; }
exit $failed
