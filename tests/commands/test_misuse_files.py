"""What is written goes where it was asked to, or one line says why not."""

from __future__ import annotations

import os
import resource
import shutil
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from layerline.core import files, tool_commands
from layerline.core.cli import doctor, options
from layerline.core.cli.command import cli
from layerline.core.errors import InputError, LayerlineError
from layerline.core.run import Run
from layerline.profile import nsys


def test_a_folder_is_not_overwritten_by_a_file(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    with pytest.raises(InputError, match="is a folder"):
        files.write_text(tmp_path / "there", "text")
    assert list(tmp_path.iterdir()) == [tmp_path / "there"]


def test_a_file_in_the_way_of_a_folder_is_named_itself(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("mine")
    with pytest.raises(InputError, match=r"/taken: is a file where a folder is needed"):
        files.write_text(tmp_path / "taken" / "deep" / "a.txt", "text")
    assert (tmp_path / "taken").read_text() == "mine"


def test_pipes_and_devices_are_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/null"), Path("/dev/stdout")):
        with pytest.raises(InputError, match="is no regular file"):
            files.write_text(path, "text")
    assert (tmp_path / "pipe").is_fifo()
    assert Path("/dev/null").is_char_device()


def test_an_output_that_cannot_be_made_is_named_by_its_own_name(tmp_path: Path) -> None:
    name = "n" * 250  # a file name of 255 bytes is allowed, the temporary one is longer
    with pytest.raises(InputError, match=rf"/{name}: cannot be written \(File name too long\)"):
        files.write_text(tmp_path / name, "text")


KILO = 1 << 10


@pytest.mark.parametrize(
    ("begins", "command"),
    [
        ('{"Layers": [', ["read"]),
        ('{"Layers": [', ["layers"]),
        ('{"segments": [{"segment_type": ', ["memory"]),
        ('[{ "count" : 10 }, { "name" : "', ["read"]),
        ("", ["nodes"]),
        ("{", ["graph", "-o", "g.dot", "--nodes"]),
    ],
)
def test_a_file_too_large_to_be_read_whole_is_named_and_not_read(
    tmp_path: Path, begins: str, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stands for: no input without a bound, whatever command reads it."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "huge.json"
    path.write_text(begins)
    os.truncate(path, 8 * KILO**3)
    held = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + KILO**3, held[1]))
    try:
        result = CliRunner().invoke(cli, [*command, str(path)])
    finally:
        resource.setrlimit(resource.RLIMIT_AS, held)
    told = str(result.exception or "") + result.output
    if isinstance(result.exception, InputError):
        told = result.exception.line()
    assert f"{path}: " in told and ("MiB" in told or "GiB" in told or "larger" in told), told


def test_files_of_a_run_whose_names_are_no_text_are_left_out_and_said(
    h100: Run, tmp_path: Path
) -> None:
    odd = Path(os.fsdecode(bytes(h100.file("captures")) + b"/fp32\xff.sqlite"))
    shutil.copyfile(h100.file("captures", "fp32.tensorrt.sqlite"), odd)
    result = CliRunner().invoke(cli, ["report", str(h100.path)])
    assert result.exception is None or isinstance(result.exception, LayerlineError)
    text = h100.file("report", "report.md").read_text()
    assert "left out, its name is not UTF-8" in text
    copy = tmp_path / "copy"
    result = CliRunner().invoke(cli, ["scrub", str(h100.path), "-o", str(copy)])
    assert result.exit_code == 0 and "a name that is not UTF-8" in result.output
    assert sorted(p.name for p in (copy / "captures").iterdir() if p.suffix == ".sqlite") == [
        "fp16.tensorrt.sqlite", "fp32.tensorrt.sqlite"
    ]  # fmt: skip


@pytest.mark.parametrize("name", [".env", "prod.env", ".env.local"])
def test_an_environment_is_not_copied(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text("TOKEN=abc\n")
    result = CliRunner().invoke(cli, ["scrub", str(path)], standalone_mode=False)
    assert result.return_value == 2 and "is an environment" in result.stderr
    assert [p.name for p in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("given", ["nan", "inf", "-inf", "1e400"])
def test_numbers_of_options_are_finite(given: str) -> None:
    @click.command()
    @click.option("--limit", type=options.Finite(min=0))
    def command(limit: float) -> None:
        raise AssertionError(limit)

    result = CliRunner().invoke(command, ["--limit", given])
    assert result.exit_code == 2 and "Invalid value for '--limit'" in result.output


@pytest.mark.parametrize("given", ["nan", "inf", "0", "1e30"])
def test_seconds_are_those_that_a_process_can_wait(given: str) -> None:
    with pytest.raises(click.BadParameter):
        options.SECONDS.convert(given, None, None)


def test_a_command_with_an_open_quote_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("NCU", "NSYS", "TRT_PYTHON"):
        monkeypatch.setenv(variable, "sudo 'ncu")
        with pytest.raises(InputError, match=rf"{variable}=sudo 'ncu is no command \(no closing"):
            tool_commands.words(variable, "x")
    told = {f.what: f.fix for f in doctor.diagnose()}
    for what in ("ncu", "nsys", "tensorrt"):
        assert "is no command" in (told[what] or "")


def test_a_blank_command_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NSYS", " ")
    monkeypatch.setenv("PATH", "")
    assert nsys.missing() == "nsys is not on the PATH"
