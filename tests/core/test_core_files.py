"""Files are whole or not there; the run directory believes nothing half-written."""

import json
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from layerline.core import files, run
from layerline.core.errors import InputError


def test_a_failed_write_leaves_the_old_file_and_no_leftover(tmp_path):
    target = tmp_path / "a.json"
    files.write_json(target, {"x": 1})
    with pytest.raises(ValueError, match="JSON"):
        files.write_json(target, {"x": float("nan")})
    assert json.loads(target.read_text()) == {"x": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_a_full_disk_is_an_error_and_leaves_the_old_file(tmp_path):
    target = tmp_path / "a.txt"
    target.write_text("old")
    said = pytest.raises(InputError, match=r"a\.txt: cannot be written \(No space left")
    with said, files.replacing(target) as temporary:
        temporary.write_text("half of it")
        raise OSError(28, "No space left on device")
    assert target.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe\x00", b"[" * 100_000])
def test_broken_json_is_one_line_that_names_the_file(tmp_path, content):
    path = tmp_path / "broken.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"broken\.json: is (not JSON|empty)") as caught:
        files.read_json(path)
    assert "\n" not in caught.value.line()


def test_error_lines_cannot_carry_terminal_escapes():
    assert "\x1b" not in InputError("name \x1b[31m\nrest", file="a\rb").line()


def make_step(tmp_path, options=None, name="export/fp32"):
    opened = run.open_run(tmp_path / "run", create=True)
    given = tmp_path / "input"
    if not given.exists():
        given.write_text("input")
    return run.Step(opened, name, options or {}, [given], [opened.file("export", "out")])


def execute(step):
    with step.recording():
        files.write_text(step.outputs[0], "result")


def test_a_step_is_valid_only_after_it_completed(tmp_path):
    step = make_step(tmp_path)
    assert not step.valid()
    execute(step)
    assert make_step(tmp_path).valid()


def test_changed_options_inputs_or_outputs_make_a_step_invalid(tmp_path):
    execute(make_step(tmp_path, {"seq": 128}))
    assert make_step(tmp_path, {"seq": 128}).valid()
    assert not make_step(tmp_path, {"seq": 64}).valid()
    (tmp_path / "run/export/out").write_text("tampered")
    assert not make_step(tmp_path, {"seq": 128}).valid()
    execute(make_step(tmp_path, {"seq": 128}))
    (tmp_path / "input").write_text("changed")
    assert not make_step(tmp_path, {"seq": 128}).valid()


def test_a_touched_but_equal_file_stays_valid(tmp_path):
    execute(make_step(tmp_path))
    os.utime(tmp_path / "input", (1, 1))
    assert make_step(tmp_path).valid()


def test_a_step_that_fails_is_not_valid_even_with_its_old_outputs(tmp_path):
    execute(make_step(tmp_path))
    with pytest.raises(RuntimeError), make_step(tmp_path).recording():
        raise RuntimeError
    assert not make_step(tmp_path).valid()


def test_killed_halfway_nothing_is_believed_and_leftovers_go(tmp_path):
    code = f"""
import os, signal
from pathlib import Path
from layerline.core import files, run
r = run.open_run(Path({str(tmp_path / "run")!r}), create=True)
step = run.Step(r, "export/fp32", {{}}, [], [r.file("export", "out")])
with step.recording():
    with files.replacing(step.outputs[0]) as p:
        p.write_text("half")
        os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True)
    assert done.returncode == -signal.SIGKILL
    assert list((tmp_path / "run/export").iterdir())
    opened = run.open_run(tmp_path / "run")
    assert not list((tmp_path / "run/export").iterdir())
    assert not run.Step(opened, "export/fp32", {}, [], [opened.file("export", "out")]).valid()


def test_another_schema_version_is_refused_with_the_remedy(tmp_path):
    (tmp_path / "manifests").mkdir()
    (tmp_path / "manifests/version.json").write_text('{"schema_version": 99}')
    with pytest.raises(InputError, match=r"schema version 99.*choose another RUN"):
        run.open_run(tmp_path)


def test_a_run_that_is_missing_or_a_file_is_refused(tmp_path):
    with pytest.raises(InputError, match="no such run directory"):
        run.open_run(tmp_path / "none")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="not a directory"):
        run.open_run(tmp_path / "file", create=True)


def test_two_processes_take_turns_in_a_run_directory(tmp_path):
    path = tmp_path / "run"
    run.open_run(path, create=True)
    code = f"""
from pathlib import Path
from layerline.core import run
run.open_run(Path({str(path)!r}))
print("in")
"""
    environment = {k: v for k, v in os.environ.items() if k != "LAYERLINE_RUN_LOCK"}
    other = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=environment, text=True,
    )  # fmt: skip
    try:
        assert other.stderr.readline().startswith("waiting for another process")
        time.sleep(0.2)
        assert other.poll() is None
        os.close(run._locks.pop(path.resolve()))
        assert other.communicate(timeout=30)[0] == "in\n"
    finally:
        other.kill()
        other.wait()


def test_who_holds_the_machine_lock_may_take_it_again_and_keeps_it_until_the_outer_end():
    code = f"""
from layerline.core import files
files.LOCK_PATH = {str(files.LOCK_PATH)!r}
with files.machine_lock("it"): print(1)
"""
    other = [sys.executable, "-c", code]
    with files.machine_lock("outer"):
        with files.machine_lock("inner"):
            pass
        with pytest.raises(subprocess.TimeoutExpired):
            subprocess.run(other, check=True, timeout=3)
    subprocess.run(other, check=True, timeout=300)


def test_the_machine_lock_ends_with_its_process():
    code = """
import os, signal
from layerline.core.files import machine_lock
with machine_lock("test"):
    os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", code], check=False, timeout=300)
    subprocess.run(
        [sys.executable, "-c", code.replace("os.kill(os.getpid(), signal.SIGKILL)", "print(1)")],
        check=True, timeout=300,
    )  # fmt: skip


def test_who_waits_for_the_machine_is_told_for_whom_and_for_how_long(tmp_path):
    lock = tmp_path / "lock"
    code = f"""
from pathlib import Path
from layerline.core import files
files.LOCK_PATH, files.WAITED_S = Path({str(lock)!r}), (0.2, 0.4)
with files.machine_lock("waiting"): print("in")
"""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "LOCK_PATH", lock)
        with files.machine_lock("the holder"):
            other = subprocess.Popen(
                [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                text=True,
            )  # fmt: skip
            whom = f"(the holder, process {os.getpid()})"
            assert other.stderr.readline() == f"waiting for this machine {whom}\n"
            again = other.stderr.readline()
            assert again.startswith(f"still waiting for this machine {whom}, for ")
    assert other.communicate(timeout=60)[0] == "in\n"


def test_control_characters_in_strings_are_read_as_they_are(tmp_path):
    """Kind: TensorRT's inspector writes the separator of a fused layer's metadata unescaped."""
    path = tmp_path / "inspector.json"
    path.write_text('{"Metadata": "[ONNX Layer: a]\x1f[ONNX Layer: b]\n", "n": 1.5}')
    assert files.read_json(path) == {"Metadata": "[ONNX Layer: a]\x1f[ONNX Layer: b]\n", "n": 1.5}


@pytest.mark.parametrize("text", ['{"a": "\x1f", "n": NaN}', '{"a": "\x1f", "n": 1e999}'])
def test_beside_a_control_character_numbers_are_still_numbers(text, tmp_path):
    path = tmp_path / "broken.json"
    path.write_text(text)
    with pytest.raises(InputError, match="is not JSON"):
        files.read_json(path)


def test_the_time_of_a_run_goes_on_and_its_code_is_hashed_once(monkeypatch):
    """`now` of a process that goes on is not that of its first call; sources are read once."""
    moments = iter([datetime(2026, 1, 1, second=s, tzinfo=UTC) for s in (1, 2)])
    clock = SimpleNamespace(UTC=UTC, datetime=SimpleNamespace(now=lambda _zone: next(moments)))
    monkeypatch.setattr(run, "datetime", clock)
    assert [run.now(), run.now()] == ["2026-01-01T00:00:01+00:00", "2026-01-01T00:00:02+00:00"]
    first = run.code_hash("export")
    monkeypatch.setattr(run, "sha256", lambda _path: pytest.fail("read again"))
    assert run.code_hash("export") == first
