"""The few CUDA calls that measuring an engine needs, through the driver API and ctypes.

The driver's own library (libcuda.so.1) is there wherever a GPU works, whichever CUDA toolkit, torch
or TensorRT is installed; no package is needed. The primary context is used, which is the one that
the runtime API (TensorRT, torch) uses too. Standard library only; also runs on Python 3.10.

Source of the signatures: CUDA driver API reference manual (cuda.h). `_v2` names are what cuda.h
maps the plain names to.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from ctypes import byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any

_EVENT_DEFAULT = 0
_STREAM_NON_BLOCKING = 1
_HOST_DEVICE_MAPPED = 2
OUT_OF_MEMORY = 2
_ATTRIBUTES = {
    "multiprocessors": 16,
    "clock_khz": 13,
    "memory_clock_khz": 36,
    "memory_bus_bits": 37,
    "l2_bytes": 38,
    "max_threads_per_multiprocessor": 39,
    "capability_major": 75,
    "capability_minor": 76,
}


class CudaError(RuntimeError):
    """A driver call failed; `code` is the CUresult, `name` its name."""

    def __init__(self, call: str, code: int, name: str) -> None:
        self.call, self.code, self.name = call, code, name
        super().__init__(f"{call} failed: {name} ({code})")


class NoDriver(RuntimeError):
    """This machine has no CUDA driver or no usable GPU."""


class Gate:
    """Holds a stream back while work is put on it, so that the work then runs without gaps.

    A launch costs the host some microseconds, more under a profiler; work that is queued behind a
    closed gate shows what the device alone needs. The gate opens by itself after `patience`
    seconds: the launch queue is finite (about a thousand entries), and putting more behind a
    closed gate would wait forever.
    """

    def __init__(self, cuda: Cuda, word: Any, address: int, patience: float = 1.0) -> None:
        self._cuda, self._word, self._address, self._patience = cuda, word, address, patience
        self._turn = 0
        self.opened_by_itself = 0

    def close(self, stream: int) -> None:
        """Let the stream wait from here on."""
        self._turn += 1
        self._cuda.wait_for_word(stream, self._address, self._turn)
        self._timer = threading.Timer(self._patience, self._give_up, (self._turn,))
        self._timer.daemon = True
        self._timer.start()

    def open(self) -> None:
        """Let the stream go on."""
        self._timer.cancel()
        self._word[0] = self._turn

    def _give_up(self, turn: int) -> None:
        if self._word[0] < turn:
            self.opened_by_itself += 1
            self._word[0] = turn


Work = Callable[[], Any]


class StreamClock:
    """Times work on one stream by device events: from idle, or queued whole before it begins."""

    def __init__(self, cuda: Cuda, stream: int) -> None:
        self.cuda, self.stream = cuda, stream
        self.start, self.end = cuda.event(), cuda.event()
        self.gate = cuda.gate()

    def timed(self, work: Work) -> int:
        """Device time of work on an idle stream, launch costs that it waits for included."""
        cuda = self.cuda
        cuda.record(self.start, self.stream)
        work()
        cuda.record(self.end, self.stream)
        cuda.wait(self.end)
        return cuda.elapsed_ns(self.start, self.end)

    def queued(self, work: Work) -> int | None:
        """Device time of work that was queued as a whole before it began.

        None where it cannot be: the work waits for the device itself (a copy to the host in the
        middle), or puts more on the stream than a launch queue holds, so the gate had to open by
        itself.
        """
        cuda, before = self.cuda, self.gate.opened_by_itself
        self.gate.close(self.stream)
        cuda.record(self.start, self.stream)
        try:
            work()
            cuda.record(self.end, self.stream)
        finally:
            self.gate.open()
        cuda.wait(self.end)
        if self.gate.opened_by_itself > before:
            return None
        return cuda.elapsed_ns(self.start, self.end)

    def queued_series(self, work: Work, count: int) -> list[int]:
        """Device times of so many queued calls of `work`, each from an idle stream; none where one
        cannot be queued."""
        times: list[int] = []
        for _ in range(count):
            self.cuda.synchronize(self.stream)
            ns = self.queued(work)
            if ns is None:
                return []
            times.append(ns)
        return times


class _Device:
    """The driver's handle of one device; nothing is made on it."""

    def __init__(self, device: int) -> None:
        try:
            self._lib = ctypes.CDLL("libcuda.so.1")
        except OSError:
            raise NoDriver("no CUDA driver on this machine (libcuda.so.1)") from None
        self._lib.cuInit.argtypes = [c_uint]
        try:
            self._call("cuInit", 0)
            count = c_int()
            self._call("cuDeviceGetCount", byref(count))
        except CudaError as e:
            raise NoDriver(f"the CUDA driver finds no usable GPU ({e.name})") from None
        if device >= count.value:
            raise NoDriver(f"no GPU {device}: this machine shows {count.value}")
        self._device = c_int()
        self._call("cuDeviceGet", byref(self._device), c_int(device))

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._lib, name)(*arguments)
        if code:
            text = c_char_p()
            self._lib.cuGetErrorName(c_int(code), byref(text))
            raise CudaError(name, code, (text.value or b"unknown error").decode())

    def bus_id(self) -> str:
        """Where the device sits: domain:bus:device.function."""
        text = ctypes.create_string_buffer(32)
        self._call("cuDeviceGetPCIBusId", text, c_int(32), self._device)
        return text.value.decode()

    def total(self) -> int:
        """The device's memory in bytes."""
        size = c_size_t()
        self._call("cuDeviceTotalMem_v2", byref(size), self._device)
        return size.value


def bus_id(device: int = 0) -> str | None:
    """The PCI bus id of CUDA's device of that number, e.g. ``0000:3B:00.0``; None without one.

    Makes no context.
    """
    try:
        return _Device(device).bus_id()
    except (CudaError, NoDriver):
        return None


def driver_version() -> str | None:
    """The newest CUDA that the driver serves, e.g. "13.0"; None without a driver."""
    version = c_int()
    try:
        failed = ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(byref(version))
    except OSError:
        return None
    return None if failed else f"{version.value // 1000}.{version.value % 1000 // 10}"


def memory() -> tuple[int, int] | None:
    """Free and all bytes of the GPU's memory; None without a GPU, or where the driver cannot say.

    Makes the device's primary context, which TensorRT then uses. 0 free where there is no room
    even for that.
    """
    try:
        total = _Device(0).total()
    except (CudaError, NoDriver):
        return None
    try:
        return Cuda().memory()
    except CudaError as e:
        return (0, total) if e.code == OUT_OF_MEMORY else None


class Cuda(_Device):
    """The driver with the primary context of one device made current on this thread."""

    def __init__(self, device: int = 0) -> None:
        super().__init__(device)
        context = c_void_p()
        self._call("cuDevicePrimaryCtxRetain", byref(context), self._device)
        self._call("cuCtxSetCurrent", context)

    def device_facts(self) -> dict[str, Any]:
        """Name, memory and the attributes of the device; driver version as 'major.minor'."""
        name = ctypes.create_string_buffer(256)
        self._call("cuDeviceGetName", name, c_int(256), self._device)
        facts: dict[str, Any] = {
            "name": name.value.decode(),
            "memory_bytes": self.total(),
            "cuda_driver": driver_version(),
        }
        for key, attribute in _ATTRIBUTES.items():
            value = c_int()
            self._call("cuDeviceGetAttribute", byref(value), c_int(attribute), self._device)
            facts[key] = value.value
        return facts

    def memory(self) -> tuple[int, int]:
        """Free and all device memory in bytes."""
        free, total = c_size_t(), c_size_t()
        self._call("cuMemGetInfo_v2", byref(free), byref(total))
        return free.value, total.value

    def allocate(self, size: int) -> int:
        """Allocate `size` bytes of device memory (at least one); gives the address."""
        pointer = c_uint64()
        self._call("cuMemAlloc_v2", byref(pointer), c_size_t(max(size, 1)))
        return pointer.value

    def to_device(self, address: int, array: Any) -> None:
        """Copy a contiguous numpy array to device memory."""
        self._call(
            "cuMemcpyHtoD_v2",
            c_uint64(address),
            c_void_p(array.ctypes.data),
            c_size_t(array.nbytes),
        )

    def to_host(self, array: Any, address: int) -> None:
        """Fill a contiguous numpy array from device memory."""
        self._call(
            "cuMemcpyDtoH_v2",
            c_void_p(array.ctypes.data),
            c_uint64(address),
            c_size_t(array.nbytes),
        )

    def stream(self) -> int:
        """A stream of its own that does not wait for the default stream."""
        handle = c_void_p()
        self._call("cuStreamCreate", byref(handle), c_uint(_STREAM_NON_BLOCKING))
        return handle.value or 0

    def synchronize(self, stream: int) -> None:
        """Wait for everything on the stream."""
        self._call("cuStreamSynchronize", c_void_p(stream))

    def event(self) -> int:
        """A timing event."""
        handle = c_void_p()
        self._call("cuEventCreate", byref(handle), c_uint(_EVENT_DEFAULT))
        return handle.value or 0

    def record(self, event: int, stream: int) -> None:
        """Record the event on the stream."""
        self._call("cuEventRecord", c_void_p(event), c_void_p(stream))

    def wait(self, event: int) -> None:
        """Wait until the event has happened."""
        self._call("cuEventSynchronize", c_void_p(event))

    def elapsed_ns(self, start: int, end: int) -> int:
        """Device time between two events that happened. Their resolution is about 0.5 µs."""
        milliseconds = c_float()
        self._call("cuEventElapsedTime", byref(milliseconds), c_void_p(start), c_void_p(end))
        return round(milliseconds.value * 1e6)

    def gate(self) -> Gate:
        """A word that a stream can be made to wait for; see `Gate`."""
        host, device = c_void_p(), c_uint64()
        self._call("cuMemHostAlloc", byref(host), c_size_t(4), c_uint(_HOST_DEVICE_MAPPED))
        self._call("cuMemHostGetDevicePointer_v2", byref(device), host, c_uint(0))
        return Gate(self, ctypes.cast(host, ctypes.POINTER(c_uint)), device.value)

    def wait_for_word(self, stream: int, address: int, value: int) -> None:
        """Let the stream wait until the word at a device address is at least `value`."""
        self._call(
            "cuStreamWaitValue32_v2", c_void_p(stream), c_uint64(address), c_uint(value), c_uint(0)
        )

    def profiler_start(self) -> None:
        """Tell nsys or ncu that the part to be captured begins."""
        self._call("cuProfilerStart")

    def profiler_stop(self) -> None:
        """Tell nsys or ncu that the part to be captured is over."""
        self._call("cuProfilerStop")
