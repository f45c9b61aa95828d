"""The CUDA kernels of `kernels` as C++ on the CPU: blocks one after the other, of one
thread. Their sums, tiles, tables and flags are then what a GPU makes of the same source."""

from __future__ import annotations

import ctypes
import functools
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import torch

from layerline.profile.eager.parameters import kernels as change_kernels

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
_AFTER = """
#define EACH(CALL) for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++) CALL
extern "C" void run_keep(int blocks, i64* a, i64* l, int* t, u8* k, double* p, u8* f, int x, int n,
    int r) { EACH(keep(a, l, t, k, p, f, x, n, r)); }
extern "C" void run_compare(int blocks, i64* a, i64* l, int* t, u8* k, double* p, u8* f, int x,
    int n) { EACH(compare(a, l, t, k, p, f, x, n)); }
extern "C" void run_finish(int blocks, i64* a, i64* l, double* p, u8* f, double* o, int n, int r)
    { EACH(finish(a, l, p, f, o, n, r)); }
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


class KernelsOnCpu:
    """In place of `counters.Kernels`."""

    def _run(self, name: str, blocks: int, arguments: list[Any]) -> None:
        converted = [
            ctypes.c_void_p(a.data_ptr()) if isinstance(a, torch.Tensor) else ctypes.c_int(a)
            for a in arguments
        ]
        getattr(_library(), f"run_{name}")(blocks, *converted)

    def keep(self, blocks: int, arguments: list[Any]) -> None:
        self._run("keep", blocks, arguments)

    def compare(self, blocks: int, arguments: list[Any]) -> None:
        self._run("compare", blocks, arguments)

    def finish(self, blocks: int, arguments: list[Any]) -> None:
        self._run("finish", blocks, arguments)
