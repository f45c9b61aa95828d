"""The grammar of the names in captures/ and engines/."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerline.core import capture_names
from layerline.core.capture_names import EVERY, PRECISIONS, RANGE, CaptureName
from layerline.core.run import Run
from layerline.engines import backend as backends
from layerline.export import inference
from layerline.profile.eager import nsys, process
from layerline.profile.engine import trace
from layerline.profile.engine.measure import Subject
from layerline.profile.ncu import target

SUFFIXES = sorted(capture_names._KINDS)
NCU = [s for s in SUFFIXES if capture_names._KINDS[s] == "ncu"]


@st.composite
def names(draw) -> CaptureName:
    task = draw(st.sampled_from(["engine", "eager", "train"]))
    backend = draw(st.from_regex(r"[a-z][a-z0-9-]{0,20}", fullmatch=True))
    suffix = draw(st.sampled_from(SUFFIXES))
    rank = draw(st.none() | st.integers(0, 100_000))
    host = st.none() | st.from_regex(r"[A-Za-z0-9-]{1,63}", fullmatch=True)
    variants = st.sampled_from(["", EVERY, RANGE, "2"]) | st.from_regex(r"[\w-]+", fullmatch=True)
    return CaptureName(
        task,
        draw(st.sampled_from(PRECISIONS)),
        backend if task == "engine" else None,
        suffix,
        rank,
        draw(variants.filter(lambda v: not v.startswith("rank"))) if suffix in NCU else "",
        None if task == "engine" else draw(host),
    )


@given(names())
def test_a_name_is_read_back_from_its_path(name):
    path = name.path(Path("captures"))
    assert CaptureName.parse(path) == name
    assert path.name == name.stem + name.suffix


@given(st.text(max_size=40) | st.from_regex(r"(fp16|eager|train)(\.[a-z0-9]{1,9}){0,5}"))
def test_any_other_text_is_no_name_or_keeps_itself(text):
    name = CaptureName.parse(text)
    if name is not None:
        assert name.path(Path()).name == Path(text).name
        assert name.precision in PRECISIONS


def written(run: Run) -> list[Path]:
    """The files that the profile stage and the engines stage write."""
    paths = []
    for task in capture_names.TORCH_TASKS:
        for precision in PRECISIONS:
            for part in process.PARTS:
                paths += process.files(run, task, precision, part).values()
            for suffix in (nsys.REPORT, nsys.META, nsys.SQLITE):
                paths.append(nsys.output(run, precision, task, suffix))
    for name in inference.BACKENDS:
        backend = backends.load(name)
        for precision in PRECISIONS:
            of = Subject(run, precision, backend, {})
            paths += backend.outputs(run, precision)
            paths += map(of.capture, trace.suffixes(of))
            paths += map(
                of.capture,
                [
                    ".profile.json", ".latency.json", ".profile.meta.json", ".outputs.npz",
                    ".accuracy.json", ".rebuild.json", ".sqlite",
                ],
            )  # fmt: skip
    counted = target.torch_target(run, "train", "bf16")
    for of_ncu in (counted, counted.every(), counted.whole()):
        paths += map(of_ncu.file, (*NCU, ".2.ncu-rep", ".2.ncu.csv"))
    return paths


def test_what_runs_of_an_engine_is_known_of_every_backend() -> None:
    found = {backends.load(name).suffix for name in inference.BACKENDS}
    assert found == set(capture_names.ENGINES)


def test_every_name_that_is_written_is_of_a_known_kind():
    run = Run(Path("RUN"))
    for path in written(run):
        name = CaptureName.parse(path)
        assert name is not None, path
        assert name.kind != "other", path
        assert name.path(path.parent) == path


@pytest.mark.parametrize(
    ("file", "side", "kind", "variant"),
    [
        ("fp16.tensorrt.latency.json", "fp16.tensorrt", "latency", ""),
        ("fp16.onnxruntime-cuda.trace.profile.json", "fp16.onnxruntime-cuda", "trace", ""),
        ("train.bf16.rank0003.trace.json.gz", "train.bf16.rank0003", "trace", ""),
        ("fp16.tensorrt.rank0001.ncu-every.ncu.csv", "fp16.tensorrt.rank0001", "ncu", EVERY),
        ("eager.fp16.2.ncu-rep", "eager.fp16", "ncu", "2"),
        ("fp16.tensorrt.old.latency.json", "fp16.tensorrt", "other", ""),
    ],
)
def test_a_name_says_what_it_is_of(file, side, kind, variant):
    name = CaptureName.parse(f"RUN/captures/{file}")
    assert name is not None
    assert (name.side, name.kind, name.variant) == (side, kind, variant)


@pytest.mark.parametrize(
    "file", ["sweep.json", "fp16.onnx", "eager.fp16", "int8.tensorrt.latency.json", ".1.partial.x"]
)
def test_a_file_of_no_engine_and_of_no_task_has_no_name(file):
    assert CaptureName.parse(file) is None


def test_a_folder_lists_its_captures_by_name_and_no_other_file(tmp_path):
    files = ["train.bf16.memory.json", "fp16.tensorrt.latency.json", "sweep.json",
             "eager.fp32.latency.json"]  # fmt: skip
    for file in files:
        (tmp_path / file).touch()
    found = capture_names.named(tmp_path)
    assert [p.name for p in found] == sorted(set(files) - {"sweep.json"})
    assert all(name.path(tmp_path) == path for path, name in found.items())
    latencies = capture_names.named(tmp_path, ".latency.json", ".memory.pickle").values()
    assert [name.side for name in latencies] == ["eager.fp32", "fp16.tensorrt"]
    assert capture_names.named(tmp_path / "none") == {}
