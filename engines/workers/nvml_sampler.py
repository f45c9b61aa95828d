"""GPU clocks, power, temperature, memory and throttle reasons, sampled while something runs.

Uses NVML through nvidia-ml-py (`pynvml`) when it is installed; otherwise the summary says why
there is none. Standard library only besides; runs on Python 3.10.

NVML counts the GPUs of the machine by their bus, CUDA those that it may see (CUDA_VISIBLE_DEVICES),
by default the fastest first: device 0 of the one need not be device 0 of the other. What both know
is the bus id.
"""

from __future__ import annotations

import statistics
import threading
from collections.abc import Callable
from typing import Any

# Bits of nvmlDeviceGetCurrentClocksEventReasons that mean: slower than asked for.
# Source: nvml.h, nvmlClocksEventReason*. Idle (0x1) and application clocks (0x2) are no throttling.
THROTTLE_REASONS = {
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}


class Sampler:
    """Context manager that samples the GPU every `period` seconds on a thread of its own.

    `bus` is where the GPU sits, from `cuda_driver.bus_id`; None where there is none.
    """

    def __init__(self, bus: str | None, period: float = 0.02) -> None:
        self._bus, self._period = bus, period
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._rows: list[dict[str, int]] = []
        self.missing: str | None = None

    def __enter__(self) -> Sampler:
        if self._bus is None:
            self.missing = "the CUDA driver shows no GPU"
            return self
        try:
            import pynvml

            pynvml.nvmlInit()
            handle = pynvml.nvmlDeviceGetHandleByPciBusId(self._bus.encode())
        except ImportError:
            self.missing = "nvidia-ml-py is not installed"
            return self
        except pynvml.NVMLError as e:
            self.missing = f"NVML: {e}"
            return self
        reads = _reads(pynvml, handle)
        self._thread = threading.Thread(target=self._run, args=(pynvml, reads), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self, pynvml: Any, reads: dict[str, Callable[[], int]]) -> None:
        while True:
            row = {}
            for key, read in list(reads.items()):
                try:
                    row[key] = int(read())
                except pynvml.NVMLError:
                    del reads[key]  # not offered by this GPU or driver: absent, not zero
            self._rows.append(row)
            if self._stop.wait(self._period):
                return

    def summary(self) -> dict[str, Any]:
        """Median, minimum and maximum of what was read, and the throttle reasons seen.

        Units: sm_mhz, memory_mhz, power_mw, celsius, memory_used_bytes. `throttled` lists reasons
        with the share of samples; `samples` is their number.
        """
        if self.missing:
            return {"samples": 0, "missing": self.missing}
        result: dict[str, Any] = {"samples": len(self._rows)}
        for key in ("sm_mhz", "memory_mhz", "power_mw", "celsius", "memory_used_bytes"):
            values = [row[key] for row in self._rows if key in row]
            if values:
                low, middle, high = min(values), statistics.median(values), max(values)
                result[key] = {"median": middle, "min": low, "max": high}
        masks = [row["reasons"] for row in self._rows if "reasons" in row]
        if masks:
            shares = {
                name: sum(1 for m in masks if m & bit) / len(masks)
                for bit, name in THROTTLE_REASONS.items()
            }
            result["throttled"] = {name: share for name, share in shares.items() if share}
        return result


def _reads(pynvml: Any, handle: Any) -> dict[str, Callable[[], int]]:
    name = "nvmlDeviceGetCurrentClocksEventReasons"
    reasons = getattr(pynvml, name, None) or pynvml.nvmlDeviceGetCurrentClocksThrottleReasons
    return {
        "sm_mhz": lambda: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM),
        "memory_mhz": lambda: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM),
        "power_mw": lambda: pynvml.nvmlDeviceGetPowerUsage(handle),
        "celsius": lambda: pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU),
        "memory_used_bytes": lambda: pynvml.nvmlDeviceGetMemoryInfo(handle).used,
        "reasons": lambda: reasons(handle),
    }
