"""`layerline doctor`: what this machine can and cannot do, and how to get the rest.

Looks without importing heavy libraries: versions come from package metadata, tools from PATH.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import shlex
import shutil
import subprocess
import textwrap
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace

import click

from .. import cpp_compiler, machine
from ..errors import InputError
from ..tool_commands import words
from .options import examples


@dataclass(frozen=True)
class Finding:
    """One line of the diagnosis. `found` None means missing; `fix` says how to get it."""

    what: str
    needed_for: str
    found: str | None
    fix: str | None = None


def _package(name: str, needed_for: str, fix: str, minimum: tuple[int, ...] = ()) -> Finding:
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, needed_for, None, fix)
    numbers = tuple(int(n) for n in re.findall(r"\d+", version)[: len(minimum)])
    if numbers < minimum:
        wanted = ".".join(map(str, minimum))
        return Finding(name, needed_for, None, f"{version} is too old: {wanted} or newer; {fix}")
    return Finding(name, needed_for, version)


def _output(command: list[str]) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 and done.stdout.strip() else None


def _tool(variable: str, default: str, needed_for: str, fix: str) -> Finding:
    """A command that an environment variable may replace or prefix, e.g. NCU='sudo ncu'."""
    try:
        command = words(variable, default)
    except InputError as e:
        return Finding(default, needed_for, None, e.what)
    if shutil.which(command[0]) is None:
        return Finding(default, needed_for, None, f"{fix}, or name it with {variable}=…")
    answer = _output([*command, "--version"])
    if answer is None:
        return Finding(default, needed_for, None, f"`{shlex.join(command)} --version` fails; {fix}")
    version = re.search(r"\d+\.\d+[\w.-]*", answer)
    return Finding(default, needed_for, version.group() if version else "present")


def _gpu() -> Finding:
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    answer = _output(query)
    fix = "run the engine and eager captures on a GPU machine and bring the run directory here"
    return Finding("NVIDIA GPU", "TensorRT engines, nsys, ncu", answer, None if answer else fix)


def _compiler() -> Finding:
    """What inductor compiles with: CXX, else g++ (torch/_inductor/cpp_builder.py)."""
    needed_for, fix = (
        "torch.compile (BACKEND=inductor, train --compile)",
        "install g++ (apt install g++)",
    )
    found = replace(_tool("CXX", "g++", needed_for, fix), what=_COMPILER)
    path = cpp_compiler.compiler()
    if found.found is None or path is None or (why := cpp_compiler.unfit(path)) is None:
        return found
    return replace(found, found=None, fix=f"{why}; {cpp_compiler.REMEDY}")


# Prints, of the interpreter that runs it, the version of each package, null where it is missing.
_ASK = """
import importlib, importlib.metadata, json
def version(name):
    try: return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError: return None
def imported(name):
    try: return importlib.import_module(name).__version__
    except Exception: return None
found = {n: imported(n) for n in ("tensorrt", "tensorrt_rtx")}
print(json.dumps({**found, **{n: version(n) for n in ("polygraphy", "nvidia-ml-py")}}))
"""
_ENGINES = "building TensorRT engines"
_COMPILER = "C++ compiler"


def _tensorrt() -> list[Finding]:
    """TensorRT and what its workers import, of the interpreter that has it: TRT_PYTHON, or this."""
    rtx_for = "engines of TensorRT-RTX, for GPUs elsewhere too"
    clocks, here = "GPU clocks and power", "pip install 'layerline[gpu]'"
    try:
        python = words("TRT_PYTHON")
    except InputError as e:
        return [Finding("tensorrt", _ENGINES, None, e.what)]
    if not python:
        fix = f"{here}, or TRT_PYTHON=an interpreter that has it"
        rtx = _package("tensorrt-rtx", rtx_for, fix)
        return [
            _package("tensorrt", _ENGINES, fix),
            *([rtx] if rtx.found else []),
            _package("polygraphy", _ENGINES, here),
            _package("nvidia-ml-py", clocks, here),
        ]
    named = f"TRT_PYTHON={shlex.join(python)}"
    answer = _output([*python, "-c", _ASK])
    if answer is None:
        fix = f"{named} does not start; name an interpreter that has tensorrt"
        return [Finding("tensorrt", _ENGINES, None, fix)]
    found = json.loads(answer.splitlines()[-1])

    def finding(package: str, needed_for: str) -> Finding:
        version = found[package.replace("-rtx", "_rtx")]
        fix = f"{shlex.join(python)} -m pip install {package}"
        of_it = None if version is None else f"{version} ({named})"
        return Finding(package, needed_for, of_it, None if version else fix)

    tensorrt, rtx = finding("tensorrt", _ENGINES), finding("tensorrt-rtx", rtx_for)
    if not tensorrt.found:
        fix = f"{named} cannot import tensorrt; name an interpreter that can"
        tensorrt = Finding("tensorrt", _ENGINES, None, fix)
    return [
        tensorrt,
        *([rtx] if rtx.found else []),
        finding("polygraphy", _ENGINES),
        finding("nvidia-ml-py", clocks),
    ]


def diagnose() -> list[Finding]:
    """Everything the stages can use, in the order of the stages."""
    model = "pip install 'layerline[model]'"
    cpu = "pip install 'layerline[cpu]' (or [gpu]: one of the two, never both)"
    runtime = _package("onnxruntime", "engines on the CPU, parity", cpu)
    swap = "pip uninstall onnxruntime, then pip install 'layerline[gpu]'"
    gpu = _package("onnxruntime-gpu", "BACKEND=onnxruntime-cuda; also what onnxruntime is", swap)
    runtimes = [gpu] if gpu.found else [runtime, gpu]
    return [
        _package("torch", "export, eager profiles", model, (2, 9)),
        _package("transformers", "export, eager profiles", model, (5,)),
        _package("onnx", "export", model),
        _package("onnxscript", "export", model),
        *runtimes,
        _compiler(),
        _gpu(),
        *_tensorrt(),
        _tool("NSYS", "nsys", "traces of GPU kernels", "install Nsight Systems"),
        _tool("NCU", "ncu", "hardware counters", "install Nsight Compute"),
        _package("ncu-report", "reading .ncu-rep files", "pip install 'layerline[ncu]'"),
    ]


@click.command(
    epilog=examples(
        "layerline doctor",
        "TRT_PYTHON=/opt/trt/bin/python layerline doctor",
        "layerline doctor --json",
    )
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
def doctor(as_json: bool) -> None:
    """Show what this machine can do, and what to run next.

    What is missing is shown with the way to get it. Reading captures, comparing and reporting need
    none of the tools listed.
    """
    findings = diagnose()
    state = machine.state()
    if as_json:
        click.echo(json.dumps({"machine": state, "findings": [asdict(f) for f in findings]}))
        return
    memory = state["memory_bytes"]
    facts = (
        f"{state['cpu'] or 'unknown CPU'}, {state['cpus_usable']} CPUs usable, "
        f"{'unknown' if memory is None else f'{memory / 2**30:.0f} GiB'} memory, "
        f"governor {state['governor'] or 'unknown'}, load {state['load_1min']:.2f}"
    )
    click.echo(_wrapped(facts, ""))
    click.echo()
    for f in findings:
        sign = click.style("yes", fg="green") if f.found else click.style("no ", fg="yellow")
        first = f"{f.found}, for {f.needed_for}" if f.found else f"for {f.needed_for}"
        click.echo(f"{sign}  {f.what:{_NAME}}  {_wrapped(first, _INDENT).lstrip()}")
        if f.fix:
            click.echo(_wrapped(f"-> {f.fix}", _INDENT))
    can, following = able({f.what for f in findings if f.found is None}, findings)
    click.echo()
    click.echo(_wrapped(f"This machine can {'; '.join(can)}.", ""))
    click.echo()
    click.echo(f"Run next: {following}")


_WIDTH, _NAME = 80, 15
_INDENT = " " * (5 + _NAME + 2)


def _wrapped(text: str, indent: str) -> str:
    """The text in 80 columns, no word broken."""
    return textwrap.fill(
        text,
        _WIDTH,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


_MODEL = ("torch", "transformers", "onnx", "onnxscript")


def able(missing: Collection[str], findings: Sequence[Finding]) -> tuple[list[str], str]:
    """What can be done without the `missing`, and the one command to run next."""
    fixes = {f.what: f.fix for f in findings}
    lacking = [name for name in _MODEL if name in missing]
    can = []
    if not lacking and not {"NVIDIA GPU", "tensorrt", "polygraphy", "nsys"} & {*missing}:
        can.append("measure TensorRT engines under nsys")
    if not lacking and not {"NVIDIA GPU", "onnxruntime-gpu"} & {*missing}:
        can.append("measure ONNX Runtime on the GPU")
    if not lacking and "onnxruntime" not in missing:
        can.append("measure ONNX Runtime on this CPU")
    goes = bool(can)
    if can and _COMPILER not in missing:
        can.append("measure torch.compile beside it")
    can.append("read, compare and report captures from anywhere")
    if goes:
        small = "" if "NVIDIA GPU" not in missing else " MODEL=tiny"
        return can, f"make report{small}"
    if lacking:
        return can, str(fixes[lacking[0]]).rpartition("; ")[2]
    return can, "pip install 'layerline[cpu]'"
