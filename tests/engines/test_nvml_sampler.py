"""The GPU that is sampled is the one that works, on machines with several."""

from __future__ import annotations

import ctypes
import sys
import types
from typing import Any

import pytest

from layerline.engines.workers import cuda_driver
from layerline.engines.workers.nvml_sampler import Sampler


class Driver:
    """libcuda of a machine of which two GPUs are visible, in another order than on the bus."""

    buses = (b"0000:86:00.0", b"0000:3B:00.0")

    def __init__(self, name: str) -> None:
        def init(flags: int) -> int:
            return 0

        def count(found: Any) -> int:
            found._obj.value = len(self.buses)
            return 0

        def get(device: Any, number: Any) -> int:
            device._obj.value = number.value
            return 0

        def where(text: Any, length: Any, device: Any) -> int:
            text.value = self.buses[device.value]
            return 0

        self.cuInit: Any = init
        self.cuDeviceGetCount = count
        self.cuDeviceGet = get
        self.cuDeviceGetPCIBusId = where


def test_a_device_is_known_by_its_bus_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", Driver)
    assert cuda_driver.bus_id(0) == "0000:86:00.0"
    assert cuda_driver.bus_id(1) == "0000:3B:00.0"
    assert cuda_driver.bus_id(2) is None


def test_without_a_driver_there_is_no_bus_id_and_the_summary_says_so() -> None:
    def none(name: str) -> None:
        raise OSError(name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ctypes, "CDLL", none)
        bus = cuda_driver.bus_id()
    assert bus is None
    with Sampler(bus) as sampler:
        pass
    assert sampler.summary() == {"samples": 0, "missing": "the CUDA driver shows no GPU"}


def test_nvml_is_asked_for_the_gpu_on_that_bus(monkeypatch: pytest.MonkeyPatch) -> None:
    power = {b"0000:3B:00.0": 70_000, b"0000:86:00.0": 640_000}
    nvml = types.ModuleType("pynvml")
    nvml.__dict__.update(
        NVMLError=type("NVMLError", (Exception,), {}),
        NVML_CLOCK_SM=1,
        NVML_CLOCK_MEM=2,
        NVML_TEMPERATURE_GPU=0,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByPciBusId=lambda bus: bus,
        nvmlDeviceGetClockInfo=lambda handle, which: 1980,
        nvmlDeviceGetPowerUsage=power.__getitem__,
        nvmlDeviceGetTemperature=lambda handle, which: 40,
        nvmlDeviceGetMemoryInfo=lambda handle: types.SimpleNamespace(used=1 << 30),
        nvmlDeviceGetCurrentClocksEventReasons=lambda handle: 0,
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    with Sampler("0000:86:00.0", period=0.001) as sampler:
        pass
    assert sampler.summary()["power_mw"]["median"] == 640_000
