"""A run with one wrong value in one of its JSON files: a report that is the same but for what that
value explains, and that names the file where it cannot be used. No traceback, no other number."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import json_mutations as mutations
import pytest
import rendering
from click.testing import CliRunner

from layerline.analysis import pipeline
from layerline.analysis.checks import raw_totals
from layerline.analysis.readers.nsys import host
from layerline.core.cli.command import cli
from layerline.core.errors import LayerlineError
from layerline.core.files import write_json
from layerline.core.run import Run

EACH = 12  # mutations of each file
SEED = 20

# The numbers of summary.json that a value in a file may change, by a pattern of their paths; a
# number that goes is told as unknown. What no pattern names may not change.
_SIDE = r"engines\.fp32\.\w+\."
EXPLAINED = {
    "captures/fp32.tensorrt.latency.json": _SIDE
    + r"(device\.|latency_samples|steadiness\.(settled|target|n)|launch_bound|queued_|host\.)",
    "captures/fp32.tensorrt.trace.meta.json": _SIDE + r"(closure\.ii|host\.|residual_share|traced)",
    "captures/fp32.tensorrt.accuracy.json": rf"({_SIDE}(parity|outputs)\.|ratios\.)",
    "captures/fp32.tensorrt.rebuild.json": _SIDE + r"rebuild_noise",
    "captures/fp32.onnxruntime.latency.json": _SIDE + r"(device\.|latency_samples|steadiness\.)",
    "captures/sweep.json": r"sweep\.",
    "engines/fp32.onnxruntime.layers.json": r"(engines\.fp32\.onnxruntime\.(coverage|unresolved)|"
    r"modules\.engine/fp32\.onnxruntime|ratios\.)",
    # Which module a layer is comes from the graph: coverage tells what no longer resolves.
    "export/fp32.nodes.json": r"(engines\.fp32\.tensorrt\.(coverage|unresolved)|"
    r"modules\.|ratios\.)",
    "engines/fp32.tensorrt.network.json": r"(engines\.fp32\.tensorrt\.(coverage|unresolved)|"
    r"modules\.|ratios\.)",
    "export/model.json": r"facts\.",
}
FILES = (
    *EXPLAINED,
    "captures/fp32.onnxruntime.profile.meta.json",
    "engines/fp32.tensorrt.build.json",
    "engines/fp32.tensorrt.layers.json",
    "engines/fp32.onnxruntime.build.json",
    "manifests/profile/fp32.onnxruntime.profile.json",
)
LAYERS = {"wte": "transformer.wte", "head": "lm_head"}
RUNS = 8


@pytest.fixture
def made(h100: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run with an engine under nsys, one with a profile of its own, and all the files that lie
    beside them. What is read of raw captures, which stay as they are, is kept."""
    for path in h100.path.rglob("fp16.*"):
        path.unlink()
    captures = h100.file("captures")
    latency = json.loads((captures / "fp32.tensorrt.latency.json").read_text())
    n = len(latency["latency_ns"])
    latency["processes"] = [{"n": n - 20}, {"n": 20}]
    if "queued_ns" in latency:
        m = len(latency["queued_ns"])
        latency["processes"] = [{"n": n - 20, "queued_n": m}, {"n": 20, "queued_n": 0}]
    write_json(captures / "fp32.tensorrt.latency.json", latency)
    write_json(
        captures / "fp32.tensorrt.accuracy.json",
        {"max_abs": 1e-5, "max_rel": 1e-6, "cosine": 1.0, "top1": 1.0, "reference": "eager"},
    )
    write_json(captures / "fp32.tensorrt.rebuild.json", {"relative_difference": 0.01})
    point = {
        "batch": 1, "sequence": 64, "precision": "fp32", "backend": "tensorrt", "source": "x",
        "summary": {"n": 20, "median": 100, "low": 99, "high": 101, "p90": 110, "p99": 120},
        "clock": "host", "ended_by": "target", "relative_width": 0.01, "target": 0.02,
        "throughput_per_second": 1e6, "memory": {"device_bytes": 1000},
    }  # fmt: skip
    skipped = [{"what": "batch 4", "why": "no memory", "fix": "take less"}]
    write_json(captures / "sweep.json", {"points": [point], "skipped": skipped})
    _onnxruntime(h100)
    for module, name in (
        (raw_totals, "nsys"), (raw_totals, "onnxruntime"), (host, "read"),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, _kept(getattr(module, name)))
    return h100


def _onnxruntime(made: Run) -> None:
    """An engine of two nodes, profiled by ONNX Runtime in a warm-up run and eight others."""
    events: list[dict[str, Any]] = []
    for i in range(RUNS + 1):
        common = {"pid": 1, "tid": 1, "ph": "X", "args": {}}
        start = 1000 * i
        events.append({"cat": "Session", "name": "model_run", "ts": start, "dur": 500, **common})
        for k, name in enumerate(LAYERS):
            args = {"op_name": "Gemm", "provider": "CPUExecutionProvider", "node_index": str(k)}
            one = {"cat": "Node", "name": f"{name}_kernel_time", "ts": start + 10 + 200 * k}
            events.append({**common, **one, "dur": 100 + i + 50 * k, "args": args})
    name = "fp32.onnxruntime"
    write_json(made.file("captures", f"{name}.profile.json"), events)
    times = [500_000 + 100 * i for i in range(RUNS)]
    write_json(
        made.file("captures", f"{name}.profile.meta.json"),
        {"profile": f"{name}.profile.json", "latency_ns": times, "facts": {"warmup_runs": 1}},
    )
    facts = {"providers": ["CPUExecutionProvider"], "threads": 2}
    write_json(
        made.file("captures", f"{name}.latency.json"),
        {"latency_ns": times, "target": 0.02, "summary": {"n": RUNS}, "facts": facts},
    )
    layers = [
        {"name": n, "occurrence": 0, "op": "Gemm", "nodes": [f"{m}/Gemm"], "modules": [m],
         "rule": "name", "kind": "compute", "precision_in": "fp32", "precision_out": "fp32",
         "compute_precision": "fp32", "tactic": "CPU"}
        for n, m in LAYERS.items()
    ]  # fmt: skip
    document = {"schema_version": 1, "layers": layers, "nodes": []}
    write_json(made.file("engines", f"{name}.layers.json"), document)
    write_json(made.file("engines", f"{name}.build.json"), {"source": "export/fp32.onnx", **facts})
    write_json(
        made.file("manifests", "profile", f"{name}.profile.json"),
        {"step": f"profile/{name}.profile", "started": "2026", "versions": {"torch": "2"},
         "facts": {"skipped": {"what": "x", "why": "y", "fix": "z"}}, "options": {},
         "inputs": {"export/inputs.npz": {"sha256": "a", "size": 1, "mtime_ns": 1}}},
    )  # fmt: skip


def _kept(function: Any) -> Any:
    known: dict[str, Any] = {}

    def keep(*arguments: Any) -> Any:
        key = repr(arguments)
        if key not in known:
            known[key] = function(*arguments)
        return known[key]

    return keep


def figures(run: Run) -> Any:
    """The summary of a run; the report is written as text too."""
    result = pipeline.analyse(run)
    rendering.markdown(result.comparison).encode()
    json.dumps(result.record, allow_nan=False).encode()
    made = rendering.summary(result.comparison)
    return json.loads(json.dumps(made, allow_nan=False))


def chosen(document: Any, name: str) -> Iterator[tuple[str, str]]:
    """(what was done, the file's new text): some of all mutations, always the same."""
    draw = random.Random(f"{SEED} {name}")
    every = [(p, kind) for p in mutations.places(document) for kind in mutations.VALUES]
    for place, kind in draw.sample(every, min(EACH, len(every))):
        text = mutations.changed(document, place, mutations.VALUES[kind])
        yield f"{'.'.join(map(str, place))}: {kind}", text
    whole = json.dumps(document)
    yield "half of it", whole[: draw.randrange(1, len(whole))]
    yield "nothing", ""
    yield "another document", "[1]"


@pytest.mark.parametrize("name", FILES)
def test_one_wrong_value_is_named_or_gives_the_same_numbers(made: Run, name: str) -> None:
    before, file = figures(made), made.path / name
    assert not mutations.other_numbers(before, figures(made))
    original = file.read_text()
    refused = 0
    for what, text in chosen(json.loads(original), name):
        file.write_text(text)
        try:
            found = figures(made)
        except Exception as e:
            raise AssertionError(f"{what}: {e!r}") from e
        refused += bool(found["unusable"])
        for one in found["unusable"]:
            assert one["file"] == name and "\n" not in one["why"], what
        for path, (old, new) in mutations.other_numbers(before, found).items():
            where = ".".join(map(str, path))
            explained = re.match(EXPLAINED.get(name, "nothing"), where)
            assert explained, f"{what}: {where} was {old}, is {new}"
    assert refused or name.startswith("manifests/")


def _cli(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(cli, [str(a) for a in arguments])
    if isinstance(result.exception, LayerlineError):
        assert "\n" not in result.exception.line()
        return result.exception.exit_code, result.exception.line()
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def test_a_summary_with_one_wrong_value_is_refused_or_compared_as_far_as_it_goes(
    made: Run, tmp_path: Path
) -> None:
    document = figures(made)
    write_json(tmp_path / "a.json", document)
    for what, text in chosen(document, "summary.json"):
        (tmp_path / "b.json").write_text(text)
        code, _ = _cli("compare", tmp_path / "a.json", tmp_path / "b.json")
        assert code in (0, 2), what


@pytest.mark.parametrize("name", ["export/fp32.nodes.json", "engines/fp32.tensorrt.network.json"])
def test_layers_with_one_wrong_value(made: Run, name: str) -> None:
    file = made.path / name
    original = json.loads(file.read_text())
    for what, text in list(chosen(original, name))[-12:]:
        file.write_text(text)
        code, _ = _cli(
            "layers", made.file("captures", "fp32.tensorrt.sqlite"),
            "--nodes", made.file("export", "fp32.nodes.json"),
            "--network", made.file("engines", "fp32.tensorrt.network.json"),
        )  # fmt: skip
        assert code in (0, 2), what


@pytest.mark.parametrize(
    "sizes",
    [[{"n": 42}, {"n": 42}], [{"n": 42}, {}], [{}], [{"n": -1}, {"n": 43}], [None], [{"n": 2}]],
)
def test_processes_that_do_not_fit_the_samples_are_refused(made: Run, sizes: list[Any]) -> None:
    file = made.file("captures", "fp32.tensorrt.latency.json")
    document = json.loads(file.read_text())
    assert len(document["latency_ns"]) == 42
    write_json(file, {**document, "processes": sizes})
    found = figures(made)
    assert [one["file"] for one in found["unusable"]] == ["captures/fp32.tensorrt.latency.json"]
    assert found["unusable"][0]["why"].startswith(("latency_ns", "processes"))
    assert found["engines"]["fp32.tensorrt"]["latency_median_ns"] is None
