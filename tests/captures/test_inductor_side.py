"""What a side of inductor says beside its numbers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from captured import engine_of
from nsys_build import Export

from layerline.analysis.captures.engine import otherwise
from layerline.analysis.model.comparison import Side
from layerline.analysis.report.headline import _placement
from layerline.core.documents import Break, Build
from layerline.core.files import write_json
from layerline.core.run import Run


def files(build: Build | None) -> Any:
    return SimpleNamespace(build=build)


def test_breaks_and_recompiles_of_torch_compile_are_said_beside_the_package() -> None:
    build = Build(graph_breaks=[Break(place="own.py:7 in forward", why="print")], recompiles=2)
    side = Side(
        task="engine",
        precision="fp32",
        backend="inductor",
        phase="inference",
        label="torch.compile fp32",
        source="x",
        device=otherwise(files(build)),
    )
    texts = [s.text for s in _placement(side)]
    assert len(texts) == 2
    assert "breaks the graph at own.py:7 in forward (print)" in texts[0]
    assert "compiles again for equal inputs (2 times in two calls)" in texts[1]


def test_nothing_is_said_of_a_model_that_torch_compile_takes_whole() -> None:
    assert otherwise(files(Build(recompiles=0))) == {}
    assert otherwise(files(None)) == {}


ADDMM, TANH = "aoti_torch_cuda_addmm_out", "triton_poi_fused_tanh_0"


def under_nsys(folder: Path) -> Run:
    """A package on a GPU: of each of six inferences a product of a (20 us) and a kernel that
    computes for a and b (10 us), 5 us apart; nothing was profiled by torch.profiler."""
    run, name = Run(folder), "fp16.inductor"
    made = Export()
    for i in range(6):
        at = 1_000_000 * i
        made.range(f"layerline/iteration/{i}", at, at + 90_000)
        for op, (call, start, ns) in enumerate(
            [(ADDMM, 10_000, 20_000), (f"kernels_.{TANH}", 35_000, 10_000)]
        ):
            made.range(f"{call}, op_id = {op + 1}", at + 100 * op, at + 100 * op + 90)
            made.launch(at + 100 * op + 50, ns, name=call, start=at + start)
    listed = [
        {"name": f"{call}:{place}", "occurrence": 0, "nodes": [f"{m}/op" for m in modules],
         "modules": modules, "rule": "provenance"}
        for place, (call, modules) in enumerate([(ADDMM, ["a"]), (TANH, ["a", "b"])], 1)
    ]  # fmt: skip
    layers = {"schema_version": 1, "engine": "e", "layers": listed, "nodes": []}
    write_json(run.file("engines", f"{name}.layers.json"), layers)
    record = {"schema_version": 1, "source": "export/model.json", "runs_on": "cuda"}
    write_json(run.file("engines", f"{name}.build.json"), record)
    write_json(run.file("captures", f"{name}.latency.json"), {"latency_ns": [40_000] * 6})
    # The device's, from just before the first kernel.
    about = {"source": f"{name}.sqlite", "latency_ns": [36_000] * 6, "facts": {"queued": True}}
    write_json(run.file("captures", f"{name}.trace.meta.json"), about)
    made.write(run.file("captures", f"{name}.sqlite"))
    return run


def test_a_package_under_nsys_has_its_kernels_in_modules_and_adds_up(tmp_path: Path) -> None:
    (side,) = engine_of(under_nsys(tmp_path), "fp16", "inductor").sides
    assert side.layers is not None
    rows = {r["layer"]: r for r in side.layers.to_pylist()}
    assert {k: (r["modules"], r["calls"]) for k, r in rows.items()} == {
        f"{ADDMM}:1": (["a"], 6),
        f"{TANH}:2": (["a", "b"], 6),
    }
    assert side.side.coverage == 1.0
    assert {c.name: c.ok for c in side.side.checks}["i"] is True
    second = next(c for c in side.side.checks if c.name == "ii")
    assert second.ok is True  # 35 us from the first kernel to the end of the last, of 36


def test_latency_of_a_graph_is_not_held_against_a_trace_without_one(tmp_path: Path) -> None:
    """Such a trace has the kernels, and launches between them that no replay has."""
    run = under_nsys(tmp_path)
    latency = {"latency_ns": [20_000] * 6, "queued_ns": [20_000] * 6}
    file = run.file("captures", "fp16.inductor.latency.json")
    for graph, ok in ((True, None), (False, False)):
        write_json(file, {**latency, "facts": {"cuda_graph": graph}})
        (side,) = engine_of(run, "fp16", "inductor").sides
        (third,) = [c for c in side.side.checks if c.name == "iii"]
        assert third.ok is ok
        assert ("CUDA graph" in third.text) is graph
