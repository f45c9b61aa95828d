"""`layerline gate`: what a user would lose sleep over."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from paths import ROOT
from run_by_hand import ENGINE, outcome, write_run

from layerline.analysis.comparison.gate import judge
from layerline.analysis.comparison.limits import Limits
from layerline.analysis.model import baseline
from layerline.core.files import read_json, sha256, write_json

NAME = "fp16.onnxruntime"
MEDIANS = (950_000, 951_000, 949_000, 950_500, 949_500)


def run(path: Path, medians: tuple[int, ...] = MEDIANS, n: int = 8) -> Path:
    """A run whose latency was taken by a process for each median."""
    write_run(path)
    measure(path, medians, n)
    return path


def measure(path: Path, medians: tuple[int, ...], n: int = 8) -> None:
    samples = [m for m in medians for _ in range(n)]
    document: dict[str, Any] = {"latency_ns": samples}
    if len(medians) > 1:
        document["processes"] = [{"n": n} for _ in medians]
    write_json(path / f"captures/{NAME}.latency.json", document)


def scaled(by: float) -> tuple[int, ...]:
    return tuple(round(m * by) for m in MEDIANS)


def gate(*arguments: object) -> int:
    return outcome("gate", *arguments, "--side", "engine")


@pytest.fixture
def a(tmp_path: Path) -> Path:
    return run(tmp_path / "a")


def test_the_same_again_is_not_slower(a: Path, tmp_path: Path, capsys: Any) -> None:
    assert gate(a, run(tmp_path / "b", scaled(1.001))) == 0
    out = capsys.readouterr().out
    assert out.startswith("✓ not slower: this comparison would have seen 3.")
    assert len(out.splitlines()) <= 24


def test_slower_by_more_than_the_limit_is_slower(a: Path, tmp_path: Path, capsys: Any) -> None:
    b = run(tmp_path / "b", scaled(1.1))
    assert gate(a, b) == 1
    assert capsys.readouterr().out.startswith("✗ slower: +10.0 % (+9.")
    assert gate(a, b, "--slower", "15%") == 0
    assert gate(b, a) == 0


def test_what_was_found_is_not_held_against_what_is_always_seen(
    a: Path, tmp_path: Path, capsys: Any
) -> None:
    """A change that is smaller than what is seen 19 times in 20 can be found: both are said, and
    never as if the comparison could not have seen it."""
    wide = (950_000, 990_000, 910_000, 960_000, 940_000)
    base = run(tmp_path / "base", wide)
    slow = run(tmp_path / "slow", tuple(round(m * 1.09) for m in wide))
    path = tmp_path / "x.json"
    assert gate(base, slow, "-o", path) == 1
    latency = next(j for j in json.loads(path.read_text())["judged"] if j["what"] == "latency")
    assert latency["change"] < latency["visible"] and latency["status"] == "worse"
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.startswith("✗ slower: +9.0 % (+") and "would have seen" not in head
    assert " is seen 19 times in 20" in head
    assert not any("would have seen" in row for row in rows if ": slower" in row)


def test_what_cannot_be_told_is_advised_once(tmp_path: Path, capsys: Any) -> None:
    drifts = tuple(950_000 + 30_000 * i for i in range(5))
    assert gate(run(tmp_path / "b", drifts), run(tmp_path / "c", drifts)) == 4
    out = capsys.readouterr().out
    assert "name several runs of each, or measure in turn (--measure): they drift" in out
    assert out.count("name several runs") == 1


@pytest.mark.parametrize(
    ("spread", "advice"),
    [
        (90_000, "measure on a quieter machine, or allow more: with --slower "),
        (40_000, "measure more rounds (--rounds "),
    ],
)
def test_what_was_measured_in_turn_is_not_advised_to_be(
    tmp_path: Path, spread: int, advice: str
) -> None:
    both = []
    for name, signs in (("a", (1, -1, 0, 1, -1)), ("b", (-1, 1, 1, 0, -1))):
        path = run(tmp_path / name, tuple(950_000 + spread * s for s in signs))
        assert gate("--save", tmp_path / f"{name}.json", path) == 0
        both.append(replace(baseline.read(tmp_path / f"{name}.json"), in_turn="now"))
    found = judge(*both, Limits(sides=["engine"]), ("a", "b"))
    (latency,) = [j for j in found.judged if j.what == "latency"]
    assert latency.fix.startswith(advice) and "--measure" not in latency.fix


def test_a_stale_report_does_not_pass(a: Path, tmp_path: Path) -> None:
    b = run(tmp_path / "b")
    assert outcome("report", "--run", b) == 0
    measure(b, scaled(3))
    assert (b / "report/summary.json").exists()
    assert gate(a, b) == 1


def test_captures_of_an_engine_that_was_built_again_cannot_be_told(
    a: Path, tmp_path: Path, capsys: Any
) -> None:
    b = run(tmp_path / "b")
    took, built = f"profile/{NAME}.latency", f"engines/{NAME}"
    for step, side, digest in ((took, "inputs", "0" * 64), (built, "outputs", "1" * 64)):
        files = {f"engines/{NAME}.onnx": {"sha256": digest, "size": 1, "mtime_ns": 1}}
        manifest = {"schema_version": 1, "step": step, side: files}
        write_json(b / f"manifests/{step}.json", manifest)
    assert gate(a, b) == 4
    out = capsys.readouterr().out
    assert out.startswith(f"? cannot tell: {took} measured another ") and "has left since;" in out
    assert "to do: measure again (layerline profile)" in out
    assert gate(a, "--save", tmp_path / "a.json") == 0
    assert gate(b, "--save", tmp_path / "b.json") == 2
    # Where no capture is known to be the new engine's, the side is not gone: it was not measured.
    meta = b / f"captures/{NAME}.profile.meta.json"
    left = {"sha256": sha256(meta), "size": meta.stat().st_size, "mtime_ns": 1}
    recorded = read_json(b / f"manifests/{took}.json")
    step = took.replace("latency", "profile")
    outputs = {meta.relative_to(b).as_posix(): left}
    write_json(b / f"manifests/{step}.json", {**recorded, "step": step, "outputs": outputs})
    assert gate(a, b) == 4
    assert "the new side does not" not in capsys.readouterr().out


@pytest.mark.parametrize("lost", [f"engines/{NAME}.layers.json", f"captures/{NAME}.profile.json"])
def test_a_lost_engine_is_no_success(a: Path, tmp_path: Path, lost: str, capsys: Any) -> None:
    b = run(tmp_path / "b")
    (b / lost).unlink()
    assert gate(a, b) == 1
    assert "the baseline has it and the new side does not" in capsys.readouterr().out


@pytest.mark.parametrize("cut", [f"captures/{NAME}.profile.json", f"captures/{NAME}.accuracy.json"])
def test_what_is_cut_short_in_a_baseline_is_not_as_if_it_had_never_been(
    a: Path, tmp_path: Path, cut: str, capsys: Any
) -> None:
    """Kind: a file of either run that is there and cannot be used. The side was "new"."""
    b = run(tmp_path / "b")
    (a / cut).write_text('{"cut')
    assert gate(a, b) == 4
    assert f"baseline: {cut} cannot be used (" in capsys.readouterr().out
    assert gate(b, a) in (1, 4)
    assert cut in capsys.readouterr().out
    assert gate(a, "--save", tmp_path / "a.json") == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "it is empty"), ('{"schema_ver', "is not JSON"), ("[]", "not an object"),
     ("{}", "schema_version is missing"), ('{"schema_version": 2}', "schema version 2")],
)  # fmt: skip
def test_a_run_of_another_form_is_not_judged(
    a: Path, tmp_path: Path, text: str, said: str, capsys: Any
) -> None:
    """Kind: what a run says of its own form is damaged, or of another layerline."""
    b = run(tmp_path / "b")
    (b / "manifests").mkdir(exist_ok=True)
    (b / "manifests/version.json").write_text(text)
    for runs in ((a, b), (b, a)):
        assert gate(*runs) == 2
        told = capsys.readouterr().err
        assert said in told and "choose another RUN" in told and told.count("\n") == 1


def test_a_latency_that_was_not_measured_again_does_not_pass(
    a: Path, tmp_path: Path, capsys: Any
) -> None:
    b = run(tmp_path / "b")
    (b / f"captures/{NAME}.latency.json").unlink()
    assert gate(a, b) == 4
    assert "latency" in capsys.readouterr().out
    # Nor do two runs that have a profile alone.
    (a / f"captures/{NAME}.latency.json").unlink()
    assert gate(a, b) == 4
    assert "operations: 920 µs → 920 µs" in capsys.readouterr().out


def test_other_shapes_of_what_was_trained_and_never_exported_are_said(
    tmp_path: Path, capsys: Any
) -> None:
    """Kind: a run whose shapes stand in its captures alone."""
    runs = []
    for name, batch, sequence in (("a", 2, 64), ("b", 1, 128)):
        write_run(tmp_path / name)
        runs.append(tmp_path / name)
        for path in (runs[-1] / "engines", runs[-1] / "export"):
            shutil.rmtree(path)
        for path in (runs[-1] / "captures").glob(f"{NAME}*"):
            path.unlink()
        meta = runs[-1] / "captures/eager.fp32.meta.json"
        write_json(meta, {**read_json(meta), "batch": batch, "sequence": sequence})
    assert outcome("gate", *runs) == 4
    assert "changed, too: batch 2 → 1, sequence 64 → 128" in capsys.readouterr().out
    for run in runs:
        assert outcome("report", "--run", run) == 0
    assert outcome("compare", *runs) == 2
    assert "batch (2 against 1), sequence (64 against 128)" in capsys.readouterr().err


def test_a_side_that_is_required_must_be_there(a: Path, tmp_path: Path) -> None:
    b = run(tmp_path / "b")
    assert gate(a, b, "--require", f"engine:{NAME}") == 0
    assert gate(a, b, "--require", "engine:fp16.tensorrt") == 1


def test_three_times_slower_without_an_interval_does_not_pass(
    a: Path, tmp_path: Path, capsys: Any
) -> None:
    one, slow = run(tmp_path / "one", (950_000,), 2), run(tmp_path / "slow", (2_850_000,), 2)
    assert gate(one, slow) == 4
    # The command of the README, with the engine that it is of.
    how = "layerline profile RUN --what engine --processes 5 --precision fp16 --backend onnxruntime"
    assert f"to do: {how}, of both, or " in capsys.readouterr().out
    readme = (ROOT / "README.md").read_text()
    assert "layerline profile runs/before --what engine --processes 5 " in readme
    # Here the baseline says how far processes lie apart.
    assert gate(a, slow) == 1


def test_an_engine_with_wrong_outputs_fails_however_fast(
    a: Path, tmp_path: Path, capsys: Any
) -> None:
    b = run(tmp_path / "b", scaled(0.5))
    figures = {"max_abs": 9.0, "max_rel": 1.0, "cosine": 0.2, "top1": 0.0}
    write_json(b / f"captures/{NAME}.accuracy.json", figures)
    assert gate(a, b) == 1
    out = capsys.readouterr().out
    assert out.startswith("✗ wrong") and "cosine 0.2" in out and "faster" not in out
    (b / f"captures/{NAME}.accuracy.json").unlink()
    assert gate(a, b) == 4


def test_engines_that_nobody_checked_do_not_pass_without_a_word(
    a: Path, tmp_path: Path, capsys: Any
) -> None:
    b = run(tmp_path / "b")
    assert gate(a, b) == 0
    assert "not checked" not in capsys.readouterr().out
    for path in (a, b):
        (path / f"captures/{NAME}.accuracy.json").unlink()
    assert gate(a, b, "-o", tmp_path / "x.json") == 0
    out = capsys.readouterr().out
    assert out.startswith("✓ not slower, outputs not checked: this comparison would have seen")
    assert json.loads((tmp_path / "x.json").read_text())["unchecked"] == [ENGINE]


def test_accuracy_within_its_limit_may_still_have_fallen(a: Path, tmp_path: Path) -> None:
    b = run(tmp_path / "b")
    figures = {"max_abs": 0.5, "max_rel": 0.1, "cosine": 0.9991, "top1": 1.0}
    write_json(b / f"captures/{NAME}.accuracy.json", figures)
    assert gate(a, b) == 0
    assert gate(a, b, "--accuracy", "0.0001") == 1


def test_noise_wider_than_the_limit_cannot_be_told(a: Path, tmp_path: Path, capsys: Any) -> None:
    noisy = tuple(round(950_000 * x) for x in (0.8, 1.25, 0.9, 1.1, 1.0))
    assert gate(a, run(tmp_path / "b", noisy)) == 4
    assert "processes lie further apart than the limit" in capsys.readouterr().out


def test_a_change_has_no_lower_end_where_no_time_would_be_left(tmp_path: Path, capsys: Any) -> None:
    a, b = run(tmp_path / "a", (950_000, 950_100)), run(tmp_path / "b", (330_000, 920_000))
    # t of one degree of freedom 6.314, error 295 us: 1.86 ms on both sides of -325 us, of 950 us.
    assert gate(a, b, "-o", tmp_path / "x.json") == 4
    out = capsys.readouterr().out
    assert "latency: 950 µs → 625 µs, −34.2 % (below +162 %): cannot tell" in out
    (latency,) = [j for j in json.loads((tmp_path / "x.json").read_text())["judged"]
                  if j["what"] == "latency"]  # fmt: skip
    assert latency["low"] is None and latency["high"] == pytest.approx(1.618, abs=1e-3)


def test_what_builds_lie_apart_is_allowed(a: Path, tmp_path: Path) -> None:
    b = run(tmp_path / "b", scaled(1.06))
    assert gate(a, b) == 1
    write_json(b / f"captures/{NAME}.rebuild.json", {"relative_difference": 0.07})
    for path, digest in ((a, "0" * 64), (b, "1" * 64)):
        step = f"profile/{NAME}.latency"
        files = {f"engines/{NAME}.onnx": {"sha256": digest, "size": 1, "mtime_ns": 1}}
        manifest = {"schema_version": 1, "step": step, "inputs": files}
        write_json(path / f"manifests/{step}.json", manifest)
    assert gate(a, b) == 4


def test_one_engine_in_several_runs_is_no_new_build() -> None:
    side = baseline.SideSamples(quantities=[baseline.Quantity(what="latency", runs=[[1000, 1001]])])
    before, after, anew = (
        baseline.Baseline(baseline_version=1, sides={ENGINE: replace(side, builds=builds)})
        for builds in (["x", "x"], ["x"], ["y"])
    )
    for other, said in ((after, False), (anew, True)):
        verdict = judge(before, other, Limits(), ("a", "b"))
        assert any("built anew" in r for r in verdict.remarks) is said
        assert any(c.name == f"engine of {ENGINE}" for c in verdict.changed) is said


def test_a_changed_model_is_said_and_judged(a: Path, tmp_path: Path, capsys: Any) -> None:
    b = run(tmp_path / "b")
    model = read_json(b / "export/model.json")
    write_json(b / "export/model.json", {**model, "class": "Other", "seed": 3})
    assert gate(a, b) == 0
    assert "class Net → Other" in capsys.readouterr().out


def test_another_machine_cannot_be_told_unless_asked(a: Path, tmp_path: Path) -> None:
    b = run(tmp_path / "b", scaled(1.1))
    for path, cpu in ((a, "one"), (b, "other")):
        at = path / f"captures/{NAME}.latency.json"
        write_json(at, {**read_json(at), "machine": {"before": {"cpu": cpu}}})
    assert gate(a, b) == 4
    assert gate(a, b, "--other-machine") == 1


@pytest.mark.parametrize(("by", "code"), [(1.0, 0), (1.2, 1), (None, 4)])
@pytest.mark.parametrize("form", ["text", "json"])
def test_a_closed_pipe_changes_no_exit_code(
    a: Path, tmp_path: Path, by: float | None, code: int, form: str
) -> None:
    b = run(tmp_path / "b", (950_000,) if by is None else scaled(by))
    start = run(tmp_path / "one", (950_000,)) if by is None else a
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-P", "-m", "layerline.core.cli.command", "gate", start, b]
    done = subprocess.run(
        [*map(str, command), "--side", "engine", "--form", form],
        stdout=write,
        stderr=subprocess.PIPE,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (code, b"")


def test_a_baseline_file_judges_as_the_run_does(a: Path, tmp_path: Path) -> None:
    file = tmp_path / "base.json"
    assert gate("--save", file, a, "--slower", "15%") == 0
    assert file.stat().st_size < baseline.MAX_BYTES
    assert gate(file, run(tmp_path / "b", scaled(1.1))) == 0  # the limit that it was saved with
    assert gate(file, tmp_path / "b", "--slower", "3%") == 1


def test_a_baseline_of_a_large_model_has_room(tmp_path: Path) -> None:
    many = [baseline.Quantity(what="module", name=f"transformer.h.{i}.attn.q_proj",
                              runs=[[i + 10**7] * 5]) for i in range(4000)]  # fmt: skip
    latency = baseline.Quantity(what="latency", runs=[[10**9] * 5])
    side = baseline.SideSamples(quantities=[latency, *many])
    whole = baseline.Baseline(baseline_version=1, sides={ENGINE: side})
    baseline.write(tmp_path / "x.json", whole)
    assert (tmp_path / "x.json").stat().st_size <= baseline.MAX_BYTES
    kept = baseline.read(tmp_path / "x.json")
    assert kept.sides[ENGINE].quantities[0] == latency
    modules = kept.sides[ENGINE].quantities[1:]
    assert kept.left_out == 4000 - len(modules) and modules[-1] == many[-1]


def test_an_update_keeps_its_reason_and_the_latencies_before(
    a: Path, tmp_path: Path, capsys: Any
) -> None:
    file = tmp_path / "base.json"
    assert gate("--save", file, a) == 0
    for by in (1.05, 1.1):
        b = run(tmp_path / f"{by}", scaled(by))
        assert gate(file, b, "--update") == 2  # why is not said
        assert gate(file, b, "--update", "--reason", f"costs {by}") == 0
    capsys.readouterr()
    kept = baseline.read(file)
    assert (kept.reason, [p.reason for p in kept.history]) == ("costs 1.1", ["", "costs 1.05"])
    assert gate(file, run(tmp_path / "c", scaled(1.1))) == 0
    assert "trend engine/fp16.onnxruntime/inference: ▁▅██" in capsys.readouterr().out


def test_the_page_shows_the_baselines_that_were_kept(a: Path, tmp_path: Path, capsys: Any) -> None:
    file, new = tmp_path / "base.json", run(tmp_path / "b", scaled(1.1))
    assert gate("--save", file, a) == gate(file, new, "--update", "--reason", "<b>heads</b>") == 0
    assert outcome("report", new, "--baseline", file) == 0
    page = (new / "report/index.html").read_text()
    assert '<section id="trend"' in page and page.count("<polyline") == 1
    assert "&lt;b&gt;heads&lt;/b&gt;" in page and "950 µs" in page and "1.05 ms" in page
    assert outcome("report", new) == 0  # without one the page is made again
    assert "polyline" not in (new / "report/index.html").read_text()
    assert outcome("report", new, "--baseline", new / "report/summary.json") == 2
    # An update of what is of no use says which run that is, not the baseline.
    wrong = {"max_abs": 9.0, "max_rel": 1.0, "cosine": 0.2, "top1": 0.0}
    write_json(new / f"captures/{NAME}.accuracy.json", wrong)
    capsys.readouterr()
    assert gate(file, new, "--update", "--reason", "x") == 2
    assert capsys.readouterr().err.startswith(f"error: {new}: ")


def test_every_form_says_the_same(a: Path, tmp_path: Path, capsys: Any) -> None:
    b = run(tmp_path / "b", scaled(1.1))
    files = [tmp_path / f"x.{end}" for end in ("md", "xml", "json")]
    assert gate(a, b, *(x for f in files for x in ("-o", f)), "--form", "annotations") == 1
    out = capsys.readouterr().out
    assert out.startswith("::notice title=layerline gate::✗ slower")
    assert "::error title=engine/fp16.onnxruntime/inference::latency" in out and "%25" in out
    markdown, junit, document = files
    assert len(markdown.read_text().splitlines()) <= 25
    assert "| slower |" in markdown.read_text()
    root = ET.parse(junit).getroot()
    assert int(root.get("failures", 0)) == len(root.findall(".//failure")) >= 1
    found = json.loads(document.read_text())
    assert (found["answer"], found["exit_code"]) == ("slower", 1)


def test_a_kind_that_is_named_must_be_told(a: Path, tmp_path: Path, capsys: Any) -> None:
    b = run(tmp_path / "b")
    assert gate(a, b, "--slower", "a=5%") == 4  # one capture each
    assert "name several runs" in capsys.readouterr().out
    assert gate(a, b, "--slower", "nothing=5%") == 4
