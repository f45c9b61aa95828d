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
from dataclasses import asdict, dataclass

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .. import machine
from ..errors import InputError
from ..tool_commands import words


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


def _tensorrt() -> Finding:
    needed_for = "TensorRT engines (BACKEND=tensorrt)"
    try:
        python = words("TRT_PYTHON")
    except InputError as e:
        return Finding("tensorrt", needed_for, None, e.what)
    if python:
        code = "import tensorrt; print(tensorrt.__version__)"
        answer = _output([*python, "-c", code])
        named = f"TRT_PYTHON={shlex.join(python)}"
        fix = f"{named} cannot import tensorrt; name an interpreter that can"
        return Finding("tensorrt", needed_for, answer, None if answer else fix)
    fix = "pip install 'layerline[gpu]', or TRT_PYTHON=an interpreter that has it"
    return _package("tensorrt", needed_for, fix)


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
        _gpu(),
        _tensorrt(),
        _package("polygraphy", "TensorRT engines", "pip install 'layerline[gpu]'"),
        _package("nvidia-ml-py", "GPU clocks and power", "pip install 'layerline[gpu]'"),
        _tool("NSYS", "nsys", "traces of GPU kernels", "install Nsight Systems"),
        _tool("NCU", "ncu", "hardware counters", "install Nsight Compute"),
        _package("ncu-report", "reading .ncu-rep files", "pip install 'layerline[ncu]'"),
    ]


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
def doctor(as_json: bool) -> None:
    """Say what this machine can and cannot do, and how to get the rest.

    Reading captures, comparing and reporting need none of the tools listed.
    """
    findings = diagnose()
    state = machine.state()
    if as_json:
        click.echo(json.dumps({"machine": state, "findings": [asdict(f) for f in findings]}))
        return
    memory = state["memory_bytes"]
    console = Console(highlight=False)
    console.print(
        f"{state['cpu'] or 'unknown CPU'}, {state['cpus_usable']} CPUs usable, "
        f"{'unknown' if memory is None else f'{memory / 2**30:.0f} GiB'} memory, "
        f"governor {state['governor'] or 'unknown'}, load {state['load_1min']:.2f}",
        markup=False,
    )
    table = Table(box=None, pad_edge=False)
    for heading in ("", "what", "found", "needed for", "what to do"):
        table.add_column(heading, overflow="fold")
    for f in findings:
        sign = Text("yes", style="green") if f.found else Text("no", style="yellow")
        table.add_row(sign, f.what, Text(f.found or "–"), f.needed_for, Text(f.fix or ""))
    console.print(table)
    missing = {f.what for f in findings if f.found is None}
    can = []
    if not missing & {"torch", "transformers", "onnx", "onnxscript", "onnxruntime"}:
        can.append("make report with ONNX Runtime on this CPU")
    if not missing & {"NVIDIA GPU", "tensorrt", "nsys"}:
        can.append("make report with TensorRT and nsys")
    if not missing & {"NVIDIA GPU", "onnxruntime-gpu"}:
        can.append("make report with ONNX Runtime on the GPU")
    can.append("read, layers, compare and scrub on captures from anywhere")
    console.print("\nThis machine can: " + "; ".join(can) + ".", markup=False)
