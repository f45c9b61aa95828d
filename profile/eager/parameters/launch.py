"""The kernels of `kernels`, compiled for the current device, and their launches.

torch packs a kernel's arguments and looks for the driver at each launch, which takes the host
several times as long as the launch does (`torch.cuda._utils._CudaKernel`). Here arguments are
packed once: they stay where they are from step to step.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch

from .kernels import SOURCE, THREADS


class Launch:
    """A kernel with its arguments: tensors, which have to be kept, integers of 32 bits, and
    ``c_void_p``, which may point elsewhere at each launch."""

    def __init__(
        self, driver: Any, kernel: Any, grid: tuple[int, int], arguments: Sequence[Any]
    ) -> None:
        """`driver`: has ``cuLaunchKernel``; `kernel`: torch's; `grid`: blocks, threads of one."""
        self._driver, self._kernel, (self._blocks, self._threads) = driver, kernel, grid
        self._held = [*map(_of_c, arguments)]
        self._packed = (ctypes.c_void_p * len(self._held))(*map(ctypes.addressof, self._held))

    def __call__(self) -> None:
        """Launch it on the current stream. RuntimeError with the driver's error."""
        if not self._blocks:
            return
        of_block = (self._threads, 1, 1, 0, self.stream(), self._packed, None)
        code = self._driver.cuLaunchKernel(self._kernel.func, self._blocks, 1, 1, *of_block)
        if code:
            raise RuntimeError(f"the driver cannot launch a kernel that counts (error {code})")

    @staticmethod
    def stream() -> Any:
        """The current stream, as the driver takes it."""
        return torch.cuda.current_stream()._as_parameter_


def _of_c(argument: Any) -> Any:
    if isinstance(argument, torch.Tensor):
        return ctypes.c_void_p(argument.data_ptr())
    return ctypes.c_int(argument) if isinstance(argument, int) else argument


class Kernels:
    """The compiled kernels. RuntimeError, OSError or AttributeError where torch cannot compile
    them."""

    def __init__(self) -> None:
        from torch.utils import cpp_extension

        home = cpp_extension.CUDA_HOME
        # torch asks for the folder of CUDA's headers. The source includes none.
        cpp_extension.CUDA_HOME = home or "/usr"
        try:
            self._kernels = {name: torch.cuda._compile_kernel(SOURCE, name) for name in THREADS}
        finally:
            cpp_extension.CUDA_HOME = home
        self._driver = ctypes.CDLL("libcuda.so.1")

    def launch(self, name: str, blocks: int, arguments: Sequence[Any]) -> Launch:
        """A launch of a kernel, to be called in each step."""
        return Launch(self._driver, self._kernels[name], (blocks, THREADS[name]), arguments)
