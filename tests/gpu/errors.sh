#!/usr/bin/env bash
# What goes wrong on a GPU machine, made to go wrong for real: the exit code and the line that a user
# sees. About 3 minutes; needs TensorRT, nsys, ncu and PyTorch on a GPU, and root for the last two.
#
# usage: LAYERLINE=layerline TRT_PYTHON=python3 PYTHON=python3 tests/gpu/errors.sh WORK
#
# Prints "holds" or "FAILS" for each; exit status 1 where one fails.
set -uo pipefail
work=${1:?usage: errors.sh WORK}; mkdir -p "$work"; work=$(cd "$work" && pwd)
read -r -a layerline <<<"${LAYERLINE:-layerline}"
run=$work/run
failed=0

# expect TEXT CODE PATTERN COMMAND…: the exit code, and the last line that the user sees
expect() {
  local text=$1 code=$2 pattern=$3 said got; shift 3
  said=$(timeout 200 "$@" 2>&1); got=$?
  if [ $got = "$code" ] && grep -qiE "$pattern" <<<"$said"; then
    echo "holds: $text ($code: $(tail -n 1 <<<"$said" | cut -c1-300))"
  else
    echo "FAILS: $text: exit $got, expected $code and /$pattern/: $(tail -n 3 <<<"$said" | cut -c1-600)"
    failed=1
  fi
}

expect "a small model is exported" 0 . "${layerline[@]}" export --run "$run" --precision fp32 --model gpt2-tiny --seq 64

"${PYTHON:-python3}" - <<'PY' &
import time

import torch

free = torch.cuda.mem_get_info()[0]
kept = torch.empty(free - (700 << 20), dtype=torch.uint8, device="cuda")
time.sleep(120)
PY
holder=$!
sleep 12
expect "no memory left at build" 3 'memory' "${layerline[@]}" engines --run "$run" --precision tf32 --backend tensorrt
kill $holder; wait $holder 2>/dev/null

expect "an engine is built" 0 . "${layerline[@]}" engines --run "$run" --precision tf32 --backend tensorrt
engine=$run/engines/tf32.tensorrt.engine

expect "no such interpreter for TensorRT" 3 'TRT_PYTHON|cannot be started|TensorRT' \
  env TRT_PYTHON=/nonexistent/python "${layerline[@]}" profile --run "$run" --precision tf32 --backend tensorrt --what engine
expect "without nsys the rest is measured" 0 . \
  env NSYS=/nonexistent/nsys "${layerline[@]}" profile --run "$run" --precision tf32 --backend tensorrt --what engine
expect "the report is made without kernels" 0 . "${layerline[@]}" report --run "$run"
expect "no GPU to be seen" 3 'GPU|CUDA' \
  env CUDA_VISIBLE_DEVICES= "${layerline[@]}" profile --run "$run" --precision tf32 --backend tensorrt --what engine --seconds 1
expect "without ncu" 3 'ncu' env NCU=/nonexistent/ncu "${layerline[@]}" ncu --run "$run" --precision tf32 --clock-control none

# The plan says for which GPU it was built; every byte pair 9, 0 in its head is made 8, 0.
cp -r "$run" "$work/other"
"${PYTHON:-python3}" - "$work/other/engines/tf32.tensorrt.engine" <<'PY'
import sys

with open(sys.argv[1], "r+b") as f:
    head = bytearray(f.read(256))
    for at in range(0, 250):
        if head[at : at + 4] == (9).to_bytes(4, "little"):
            head[at] = 8
    f.seek(0)
    f.write(head)
PY
expect "an engine that is not this GPU's" 3 'built for another|build the engine again' \
  "${layerline[@]}" profile --run "$work/other" --precision tf32 --backend tensorrt --what engine

if [ "$(id -u)" = 0 ]; then
  # Somebody who is not root, first as himself, then with ncu as root.
  chmod -R a+rwX "$work"
  as=(setpriv --reuid=65534 --regid=65534 --clear-groups env "HOME=$work" "TMPDIR=$work")
  "${as[@]}" true 2>/dev/null || { echo "skipped: setpriv does not work here"; exit $failed; }
  said=$("${as[@]}" "${layerline[@]}" ncu --run "$run" --precision tf32 --clock-control none 2>&1); code=$?
  case $code in
    0) echo "holds: counters are free to everybody here" ;;
    3) echo "holds: counters are forbidden ($(tail -n 1 <<<"$said"))" ;;
    *) echo "FAILS: not root: exit $code: $(tail -n 3 <<<"$said")"; failed=1 ;;
  esac
  install -m 4755 /bin/bash "$work/as-root"
  printf '#!/bin/bash\nexec setpriv --reuid=0 --regid=0 --clear-groups %s "$@"\n' "$(command -v ncu)" >"$work/ncu.sh"
  chmod 755 "$work/ncu.sh"
  expect "ncu as root for a user" 0 . env NCU="$work/as-root -p $work/ncu.sh" \
    "${as[@]}" "${layerline[@]}" ncu --run "$run" --precision tf32 --clock-control none --every
  owners=$(stat -c %u "$run"/captures/*.ncu* | sort -u | tr '\n' ' ')
  [ "$owners" = "65534 " ] && echo "holds: what root wrote is the user's" || { echo "FAILS: owners $owners"; failed=1; }
fi
exit $failed
