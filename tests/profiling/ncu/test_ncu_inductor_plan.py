"""Equal launches of a package of inductor, by an nsys capture, and the places of its code."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import ncu_fake
import pyarrow as pa
import pytest
from ncu_fake import seen
from nsys_build import Export

from layerline.analysis.captures import counters as counters_
from layerline.analysis.readers.base import Artefact
from layerline.analysis.rundir.problems import Problems
from layerline.core import tables
from layerline.core.errors import CheckFailed, InputError
from layerline.core.files import write_json
from layerline.core.replay import match
from layerline.core.replay import plan as plan_
from layerline.core.replay.match import Seen
from layerline.core.replay.pieces import Cut
from layerline.core.run import Run, open_run
from layerline.profile.ncu import in_pieces, inductor_launches, target, tool

REPORT = "fp16.inductor.ncu-rep"
BLOCKS = 6
ADDMM, TANH = "aoti_torch_cuda_addmm_out", "triton_poi_fused_tanh_0"
# Of each block: two products by one kernel with one grid, of which the second is deeper, and
# between them a kernel that inductor made.
CALLS = [call for _ in range(BLOCKS) for call in (ADDMM, TANH, ADDMM)]
MODULES = [
    [f"h.{i}.{part}"] for i in range(BLOCKS) for part in ("attn.c_proj", "mlp.act", "mlp.c_proj")
]


def layers(modules: list[list[str]] = MODULES) -> list[dict[str, Any]]:
    return [
        {"name": f"{call}:{place}", "op": call, "occurrence": 0, "modules": of,
         "nodes": [f"{m}/op" for m in of], "rule": "provenance" if of else "unresolved"}
        for place, (call, of) in enumerate(zip(CALLS, modules, strict=True), 1)
    ]  # fmt: skip


class Capture:
    """An nsys capture of a package: each call in a range, and in an extern call an operator's."""

    def __init__(self) -> None:
        self.made, self.now, self.number = Export(), 0, itertools.count(1)

    def kernel(self, name: str, grid: int = 8, ns: int = 5000) -> None:
        self.now += 10
        more: dict[str, Any] = dict.fromkeys(("gridY", "gridZ", "blockY", "blockZ"), 1)
        more |= {"gridX": grid, "blockX": 128, "registersPerThread": 32}
        more |= {"staticSharedMemory": 0, "dynamicSharedMemory": 0}
        more |= {"shortName": self.made.string(name)}
        self.made.launch(self.now, ns, name=name, **more)
        self.now += 10

    def span(self, text: str, begun: int) -> None:
        self.now += 1
        self.made.range(text, begun, self.now)

    def inference(self, number: int, calls: list[str], ns: int = 5000) -> None:
        begun = self.now = self.now + 1
        for call in calls:
            opened = self.now = self.now + 1
            if call == ADDMM:
                inner = self.now = self.now + 1
                self.kernel("gemm", ns=ns)
                self.span(f"aten::addmm, op_id = {next(self.number)}", inner)
                self.span(f"{call}, op_id = {next(self.number)}", opened)
            else:
                self.kernel(call, 3)
                self.span(f"kernels_.{call}, op_id = {next(self.number)}", opened)
        self.span(f"layerline/iteration/{number}", begun)

    def write(self, path: Path) -> Path:
        return self.made.write(path)


@pytest.fixture
def sqlite(tmp_path: Path) -> Path:
    capture = Capture()
    capture.inference(0, CALLS)
    capture.inference(1, CALLS)
    return capture.write(tmp_path / "fp16.inductor.sqlite")


def test_each_launch_of_one_inference_has_its_place_in_the_code(sqlite: Path) -> None:
    found = inductor_launches.of_nsys(sqlite, layers())
    assert [x.layer for x in found] == [x["name"] for x in layers()]
    assert [x.function for x in found[:3]] == ["gemm", TANH, "gemm"]


def test_an_extern_call_is_the_same_work_in_each_block_and_another_in_another_module(
    sqlite: Path,
) -> None:
    """One kernel with one grid may multiply 768 or 3072 deep, which no launch shows."""
    found = inductor_launches.of_nsys(sqlite, layers())
    kinds = plan_.kinds(found)
    assert len(set(kinds.values())) == 3
    assert kinds[0] == kinds[3] and kinds[2] == kinds[5] and kinds[0] != kinds[2]
    plan = plan_.plan(found)
    assert plan_.missing(plan.launches, [x.index for x in plan.chosen]) == []
    assert plan.share < 0.5


def test_an_extern_call_of_several_modules_or_of_none_is_its_own_work(sqlite: Path) -> None:
    modules = [["h.0.attn", "h.0"], *MODULES[1:3], [], *MODULES[4:]]
    kinds = plan_.kinds(inductor_launches.of_nsys(sqlite, layers(modules)))
    alike = [i for i, kind in kinds.items() if i != 0 and kind == kinds[0]]
    assert alike == [] and [i for i, k in kinds.items() if k == kinds[3]] == [3]


def test_a_launch_in_no_call_of_the_package_has_no_layer_and_is_its_own_work(
    tmp_path: Path,
) -> None:
    capture = Capture()
    begun = capture.now
    capture.kernel(TANH, 3)
    capture.kernel(TANH, 3)
    capture.span("layerline/iteration/0", begun)
    found = inductor_launches.of_nsys(capture.write(tmp_path / "x.sqlite"), layers())
    assert [x.layer for x in found] == [None, None]
    assert len(set(plan_.kinds(found).values())) == 2


def test_a_capture_without_an_inference_is_refused(tmp_path: Path) -> None:
    capture = Capture()
    capture.kernel("gemm")
    capture.span("other", 0)
    with pytest.raises(InputError, match="holds no iteration"):
        inductor_launches.of_nsys(capture.write(tmp_path / "x.sqlite"), layers())


def report_of(launches: list[plan_.Launch], source: str = REPORT) -> Artefact:
    """What a reader gives of a report in which no range was open."""
    rows = [
        {"source": source, "launch": i, "kernel": x.kernel, "layer": None}
        for i, x in enumerate(launches)
    ]
    sizes = [{"grid": str(x.grid), "block": str(x.block)} for x in launches]
    values = [{"metric": "m", "value": float(x.index)} for x in launches]
    counters = [r | v for r, v in zip(rows, values, strict=True)]
    return Artefact(
        "ncu-report",
        {
            "counters": tables.table("counters", counters),
            "launches": pa.Table.from_pylist([r | s for r, s in zip(rows, sizes, strict=True)]),
        },
        {},
        [],
    )


def run_of(folder: Path) -> Run:
    run = open_run(folder / "run", create=True)
    listed = {"schema_version": 1, "engine": "e", "layers": layers(), "nodes": []}
    write_json(run.file("engines", "fp16.inductor.layers.json"), listed)
    return run


def bare(launches: list[plan_.Launch]) -> list[Seen]:
    """What a report in which no range was open holds of these launches."""
    return [Seen(s.number, s.function, s.grid, s.block, None) for s in seen(launches)]


@pytest.mark.parametrize("readable", [True, False])
def test_counters_of_a_fraction_are_given_to_every_launch_at_its_own_place_and_module(
    sqlite: Path, tmp_path: Path, *, readable: bool
) -> None:
    """Also where the machine that captured could not read its report, and it is matched later."""
    run = run_of(tmp_path)
    plan = plan_.plan(inductor_launches.of_nsys(sqlite, layers()))
    index_of = match.planned_of(plan.launches, plan.chosen, bare(plan.chosen))
    measured_of = {REPORT: index_of} if readable else {}
    document = plan_.document(plan.launches, measured_of, plan.chosen)
    write_json(run.file("captures", "fp16.inductor.ncu.plan.json"), document)
    report = run.file("captures", REPORT)
    joined = counters_._joined(run, report, report_of(plan.chosen), Problems())
    rows = sorted(joined.to_pylist(), key=lambda r: r["launch"])
    assert [r["layer"] for r in rows] == [x["name"] for x in layers()]
    assert [r["modules"] for r in rows] == MODULES
    assert {r["rule"] for r in rows} == {"provenance"}
    assert [r["nodes"] for r in rows] == [x["nodes"] for x in layers()]
    # The counters are of a launch of the same kind: the place in the block, of whichever block.
    assert all(int(r["value"]) % 3 == r["launch"] % 3 for r in rows)
    measured = [r["launch"] for r in rows if r["representative_of"] is None]
    assert measured == [x.index for x in plan.chosen]


def test_a_capture_without_a_plan_has_its_launches_and_no_modules(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    launches = [plan_.Launch(0, "k", "k", (1, 1, 1), (1, 1, 1), 1, 0, 0, None)]
    report = run.file("captures", REPORT)
    joined = counters_._joined(run, report, report_of(launches), Problems())
    assert [(r["kernel"], r["modules"], r["rule"]) for r in joined.to_pylist()] == [
        ("k", None, "unresolved")
    ]


def test_one_launch_more_than_planned_is_refused_for_nothing_else_tells_them_apart(
    sqlite: Path,
) -> None:
    plan = plan_.plan(inductor_launches.of_nsys(sqlite, layers()))
    with pytest.raises(CheckFailed, match="that are not the"):
        match.planned_of(plan.launches, plan.chosen, bare([*plan.chosen, plan.launches[0]]))


def test_the_target_reads_the_launches_by_its_own_layers(sqlite: Path, tmp_path: Path) -> None:
    run = run_of(tmp_path)
    of = target.Target(
        run, "fp16.inductor", None, None, [], sqlite, {}, torch=True,  # type: ignore[arg-type]
        layers=run.file("engines", "fp16.inductor.layers.json"),
    )  # fmt: skip
    plan = of.plan()
    assert plan is not None and len(plan.launches) == len(CALLS)
    assert plan.launches[0].layer == f"{ADDMM}:1"


def test_a_capture_in_pieces_has_the_places_of_all_its_launches(
    sqlite: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (own := tmp_path / "own").mkdir()
    fake, run = ncu_fake.make(tmp_path, monkeypatch), run_of(own)
    listed = run.file("engines", "fp16.inductor.layers.json")
    of = dataclasses.replace(
        fake.target, run=run, stem="fp16.inductor", sqlite=sqlite, layers=listed, torch=True
    ).every()
    launches = of.launches() or []
    unnamed = [dataclasses.replace(x, layer=None) for x in launches]
    ncu_fake.reports(monkeypatch, unnamed[:10], unnamed[10:])
    monkeypatch.setenv("FAKE_TOTAL", str(len(launches)))
    in_pieces.capture(of, tool.Options(), Cut(10, None), timeout=30)
    folder = of.file(".ncu.batches")
    joined = counters_._joined(run, folder, report_of(launches, folder.name), Problems())
    assert [(r["launch"], r["modules"]) for r in joined.to_pylist()] == list(enumerate(MODULES))
    assert set(joined["representative_of"].to_pylist()) == {None}
