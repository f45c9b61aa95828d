"""A package under nsys and ncu, as far as it goes without a GPU: what its worker does between
profiler start and stop, and where it is refused. A stand-in takes the place of torch and of the
driver, and keeps what it is told."""

from __future__ import annotations

import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

import layerline.engines.launch as launch_module
from layerline.core.errors import ToolMissing
from layerline.core.files import write_json
from layerline.core.run import Run, open_run
from layerline.engines import inductor_backend
from layerline.engines.inductor_backend import InductorBackend
from layerline.profile import dry_run
from layerline.profile.command import profile
from layerline.profile.engine import measure
from layerline.profile.ncu import step, target
from layerline.profile.ncu.command import ncu

WORKERS = Path(launch_module.__file__).parent / "workers"
PLAN = measure.Plan(warmup=1, least=2, most=2)


class Told:
    """What was done, in order; `queues`: whether an inference can be queued as a whole."""

    def __init__(self, *, queues: bool = True) -> None:
        self.log: list[str] = []
        self.queues = queues
        self.stream = 7
        self.cuda = SimpleNamespace(
            profiler_start=lambda: self.log.append("start"),
            profiler_stop=lambda: self.log.append("stop"),
        )

    @contextmanager
    def within(self, what: str) -> Iterator[None]:
        self.log.append(f"<{what}>")
        yield
        self.log.append(f"</{what}>")

    def timed(self, work: Any) -> int:
        work()
        self.log.append("waited")
        return 5

    def queued(self, work: Any) -> int | None:
        work()
        self.log.append("queued")
        return 4 if self.queues else None

    def emit_nvtx(self, enabled: bool) -> Any:
        return self.within("emit") if enabled else nullcontext()


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(WORKERS))
    import inductor_worker

    yield inductor_worker
    for name in ("inductor_worker", "common"):
        sys.modules.pop(name, None)


def traced(
    worker: Any, monkeypatch: pytest.MonkeyPatch, told: Told, *, cuda: bool = True, **options: Any
) -> dict[str, Any]:
    opened = []

    class Package:
        def __init__(self, _job: Any, path: str, *, graphed: bool = True) -> None:
            opened.append((path, graphed))
            self.cuda = cuda
            on_device = SimpleNamespace(
                stream=lambda _stream: nullcontext(),
                ExternalStream=lambda stream: stream,
                nvtx=SimpleNamespace(range=told.within),
            )
            profiler = SimpleNamespace(emit_nvtx=told.emit_nvtx)
            self.torch = SimpleNamespace(
                no_grad=nullcontext, cuda=on_device, autograd=SimpleNamespace(profiler=profiler)
            )

        def queue(self) -> None:
            told.log.append("run")

        def facts(self) -> dict[str, Any]:
            return {}

    monkeypatch.setattr(worker, "Package", Package)
    monkeypatch.setattr(worker, "_clock", lambda: told)
    given = {"profiled": "p.pt2", "cuda_graph": True, **options}
    job = {"warmup": 1, "iterations": {"min": 2, "max": 2}, "options": given, "engine": "e.pt2"}
    answer: dict[str, Any] = worker.trace(job)
    assert opened == [("p.pt2", False)]  # kernels of a graph have no launch of their own
    return answer


def test_under_nsys_each_inference_is_in_its_range_and_queued_as_a_whole(
    worker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told()
    answer = traced(worker, monkeypatch, told)
    before, inside = told.log[: told.log.index("start")], told.log[told.log.index("start") :]
    assert before == ["<emit>", "run", "waited", "run", "queued"]
    ranges = [f"layerline/iteration/{i}" for i in (0, 1)]
    each = [[f"<{r}>", "run", "queued", f"</{r}>"] for r in ranges]
    assert inside == ["start", *each[0], *each[1], "stop", "</emit>"]
    assert (answer["latency_ns"], answer["facts"]["queued"]) == ([4, 4], True)


def test_what_cannot_be_queued_is_timed_from_idle_and_that_is_said(
    worker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = traced(worker, monkeypatch, Told(queues=False))
    assert (answer["latency_ns"], answer["facts"]["queued"]) == ([5, 5], False)


def test_under_ncu_no_range_is_opened_and_nothing_waits_for_a_gate(
    worker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told()
    traced(worker, monkeypatch, told, queued=False)
    assert told.log == ["run", "waited", "start", *["run", "waited"] * 2, "stop"]


def test_a_package_for_cpus_has_nothing_to_capture(
    worker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(worker.WorkerError, match="for CPUs, and has no kernels"):
        traced(worker, monkeypatch, Told(), cuda=False)


def subject(folder: Path, runs_on: str) -> measure.Subject:
    run, backend = open_run(folder / "run", create=True), InductorBackend()
    backend.engine(run, "fp16").parent.mkdir(parents=True, exist_ok=True)
    backend.engine(run, "fp16").write_bytes(b"package")
    record = {"runs_on": runs_on, "inputs": ["x"], "outputs": ["y"]}
    write_json(backend.build_record(run, "fp16"), {"schema_version": 1, **record})
    return measure.subject(run, "fp16", backend)


def on_gpu(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """A machine with a GPU and nsys."""
    monkeypatch.setattr(inductor_backend, "gpu_models", lambda: ["NVIDIA Test"])
    tool = folder / "nsys"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("NSYS", str(tool))


def test_a_package_for_a_gpu_is_captured_there_and_one_for_cpus_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_gpu(monkeypatch, tmp_path)
    for runs_on, captured in (("cuda", True), ("cpu", False)):
        lines = dry_run.engine(subject(tmp_path, runs_on), PLAN, PLAN, 10)
        assert any('"task": "trace"' in line for line in lines) is captured
        assert any("nsys export" in line or "export --type" in line for line in lines) is captured


def test_nsys_tells_the_launches_that_ncu_replays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_gpu(monkeypatch, tmp_path)
    found = target.engine_target(subject(tmp_path, "cuda"))
    assert found.sqlite == found.file(".sqlite") and found.layers is not None
    assert found.layers.name == "fp16.inductor.layers.json"
    job = found.job(found.warmup)
    assert (job["task"], job["options"]["queued"]) == ("trace", False)
    assert job["warmup"] == 2  # a first inference sets up what is set up once
    assert step._no_nsys_capture(subject(tmp_path, "cuda")) is not None


@pytest.mark.parametrize(
    ("command", "more"), [(ncu, ()), (profile, ("--what", "ncu"))], ids=["ncu", "profile"]
)
def test_without_a_gpu_it_is_refused_in_one_line(
    command: Any, more: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inductor_backend, "gpu_models", list)
    run = subject(tmp_path, "cpu").run
    arguments = [str(run.path), "--precision", "fp16", "--backend", "inductor", *more]
    done = CliRunner().invoke(command, arguments)
    assert isinstance(done.exception, ToolMissing)
    assert "no NVIDIA GPU here" in done.exception.what


def test_iterations_of_nsys_cannot_be_asked_for_without_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inductor_backend, "gpu_models", list)
    arguments = [str(subject(tmp_path, "cpu").run.path), "--backend", "inductor"]
    done = CliRunner().invoke(profile, [*arguments, "--trace-iterations", "3"])
    assert done.exit_code == 2 and "nsys captures nothing of it" in done.output


def test_a_capture_of_another_package_is_known_by_its_hash(tmp_path: Path) -> None:
    from layerline.analysis.captures.counters import foreign

    run = Run(tmp_path)
    built = {"engines/fp16.inductor.pt2": {"sha256": "new"}}
    manifest = {"schema_version": 1, "step": "engines/fp16.inductor", "outputs": built}
    write_json(run.file("manifests", "engines", "fp16.inductor.json"), manifest)
    report = run.file("captures", "fp16.inductor.ncu-rep")
    for digest, other in (("old", True), ("new", False)):
        about = {"schema_version": 1, "inputs": {"fp16.inductor.pt2": digest}}
        write_json(run.file("captures", "fp16.inductor.ncu.meta.json"), about)
        assert foreign(run, report, None) is other
