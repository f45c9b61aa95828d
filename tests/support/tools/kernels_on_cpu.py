"""The CUDA kernels of `kernels` as C++ on the CPU: blocks one after the other, of one
thread. Their sums, tiles, tables and flags are then what a GPU makes of the same source."""

from __future__ import annotations

import ctypes
import functools
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from layerline.profile.eager.parameters import kernels as change_kernels
from layerline.profile.eager.parameters import launch

COMPILER = shutil.which("g++") or shutil.which("clang++")

_BEFORE = """
#include <cstring>
using std::memcpy;
#define __global__
#define __device__
#define __shared__ static
#define __syncthreads() ((void)0)
#define __shfl_down_sync(ALL, X, FAR) 0.0
struct Index { int x; };
static Index threadIdx = {0}, blockIdx = {0}, blockDim = {1};
"""
# What the driver does: arguments come as the addresses of each.
_AFTER = """
#define AT(TYPE, N) *(TYPE*)a[N]
static void of_keep(void** a) { keep(AT(i64*, 0), AT(i64*, 1), AT(int*, 2), AT(u8*, 3),
    AT(double*, 4), AT(u8*, 5), AT(int, 6), AT(int, 7), AT(int, 8)); }
static void of_compare(void** a) { compare(AT(i64*, 0), AT(i64*, 1), AT(int*, 2), AT(u8*, 3),
    AT(double*, 4), AT(u8*, 5), AT(int, 6), AT(int, 7)); }
static void of_finish(void** a) { finish(AT(i64*, 0), AT(i64*, 1), AT(double*, 2), AT(u8*, 3),
    AT(double*, 4), AT(int, 5), AT(int, 6)); }
typedef void (*Kernel)(void**);
extern "C" {
Kernel run_keep = of_keep, run_compare = of_compare, run_finish = of_finish;
int cuLaunchKernel(void* kernel, unsigned blocks, unsigned by, unsigned bz, unsigned threads,
                   unsigned ty, unsigned tz, unsigned shared, void* stream, void** arguments,
                   void** extra) {
    if (by * bz * ty * tz != 1 || threads % 32 || shared || stream || extra) return 1;
    for (blockIdx.x = 0; blockIdx.x < (int)blocks; blockIdx.x++) ((Kernel)kernel)(arguments);
    return 0;
}
}
"""


@functools.cache
def _library() -> ctypes.CDLL:
    folder = Path(tempfile.mkdtemp())
    source = folder / "kernels.cpp"
    source.write_text(_BEFORE + change_kernels.SOURCE + _AFTER)
    library = folder / "kernels.so"
    command = [str(COMPILER), "-O2", "-std=c++17", "-w", "-shared", "-fPIC", str(source)]
    subprocess.run([*command, "-o", str(library)], check=True)
    loaded = ctypes.CDLL(str(library))
    shutil.rmtree(folder)
    return loaded


class KernelsOnCpu(launch.Kernels):
    """In place of `launch.Kernels`: launches go to a driver on the CPU."""

    def __init__(self) -> None:
        self._driver = _library()
        self._kernels = {
            name: SimpleNamespace(func=ctypes.c_void_p.in_dll(self._driver, f"run_{name}"))
            for name in change_kernels.THREADS
        }

    def launch(self, name: str, blocks: int, arguments: Sequence[Any]) -> launch.Launch:
        return _Launch(self._driver, self._kernels[name], (blocks, 32), arguments)


class _Launch(launch.Launch):
    stream = staticmethod(lambda: None)
