"""The device's time for an eager forward that is queued as a whole, on a driver that is played."""

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from layerline.engines.workers.cuda_driver import CudaError, NoDriver  # noqa: E402
from layerline.profile.eager import measure_inference as inference  # noqa: E402


class Played:
    """A stream that takes 2000 ns for what is put on it; logs the order of the calls."""

    def __init__(self, *, opens_by_itself: bool = False, refuses: bool = False) -> None:
        self.log: list[str] = []
        self.opens_by_itself, self.refuses = opens_by_itself, refuses

    def event(self) -> int:
        self.log.append("event")
        return self.log.count("event")

    def synchronize(self, stream: int) -> None:
        self.log.append(f"idle {stream}")

    def record(self, event: int, stream: int) -> None:
        self.log.append(f"record {event} on {stream}")

    def wait(self, event: int) -> None:
        self.log.append(f"wait {event}")

    def elapsed_ns(self, start: int, end: int) -> int:
        return 2000 * (end - start)

    def gate(self):
        gate = SimpleNamespace(opened_by_itself=0)

        def close(stream: int) -> None:
            if self.refuses:
                raise CudaError("cuStreamWaitValue32_v2", 801, "CUDA_ERROR_NOT_SUPPORTED")
            self.log.append(f"close {stream}")

        def open_() -> None:
            gate.opened_by_itself += self.opens_by_itself
            self.log.append("open")

        gate.close, gate.open = close, open_
        return gate


@pytest.fixture
def play(monkeypatch):
    def play(driver):
        monkeypatch.setattr(inference, "Cuda", lambda device: driver)
        monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
        stream = SimpleNamespace(cuda_stream=7)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream)
        return driver

    return play


def test_work_is_put_between_two_events_behind_a_closed_gate_on_an_idle_stream(play):
    driver = play(Played())
    found = inference.queued(lambda: driver.log.append("work"), 2)
    assert found == ([2000, 2000], None)
    once = ["idle 7", "close 7", "record 1 on 7", "work", "record 2 on 7", "open", "wait 2"]
    assert driver.log == ["event", "event", *once, *once]


def test_work_that_waits_for_the_device_has_no_time_of_its_own_and_the_reason(play):
    play(Played(opens_by_itself=True))
    assert inference.queued(lambda: None) == ([], inference.WAITS)


def test_a_driver_that_cannot_hold_a_stream_back_is_the_reason(play, monkeypatch):
    play(Played(refuses=True))
    found, why = inference.queued(lambda: None)
    assert found == [] and "CUDA_ERROR_NOT_SUPPORTED" in why

    def none(device):
        raise NoDriver("no CUDA driver on this machine (libcuda.so.1)")

    monkeypatch.setattr(inference, "Cuda", none)
    assert inference.queued(lambda: None) == (
        [],
        "no CUDA driver on this machine (libcuda.so.1)",
    )


def test_the_gate_opens_when_the_work_fails(play):
    driver = play(Played())

    def work():
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        inference.queued(work)
    assert driver.log[-1] == "open"
