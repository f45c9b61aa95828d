"""ncu around a worker: its command, what it may not do, where it hung, and the CSV it prints.

The command is

    ncu --nvtx --profile-from-start off --section ComputeWorkloadAnalysis … --export NAME
        --force-overwrite --log-file NAME.log WORKER JOB

A worker warms up before it starts the profiler, so a report holds the chosen iterations only.
ncu's messages go to a file of their own: its standard output is mixed with the worker's. NCU
replaces or prefixes the command, e.g. ``NCU='sudo env PATH=/opt/ncu/bin ncu'``; files that root
then owns are copied, so that they belong to the user. Options: docs.nvidia.com/nsight-compute,
Nsight Compute CLI.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...core.documents.ncu import PERMISSION
from ...core.errors import InputError, ToolMissing, one_line
from ...core.files import replacing
from ...core.roofline_metrics import METRICS as ROOFLINE
from ...core.tool_commands import words
from .. import nsys

DEFAULT_SECTION = "ComputeWorkloadAnalysis"
CLOCKS = "base"
PERMISSION_FIX = (
    "run ncu as root (NCU='sudo env PATH=$PATH ncu'), or let every user read counters: "
    "`options nvidia NVreg_RestrictProfilingToAdminUsers=0` in /etc/modprobe.d/, then reload the "
    f"driver or reboot (developer.nvidia.com/{PERMISSION})"
)
# Collective kernels wait for their peers, which a replay never brings (NVIDIA/nccl#466).
NO_NCCL = "regex:^(?!nccl)"
NO_KERNEL = "ncu profiled no kernel"
# Replay modes that measure what is between profiler start and stop, or in the ranges of
# --nvtx-include, as one. They take no --profile-from-start, and filters by kernel do nothing.
RANGES = ("range", "app-range")
_PROFILING = re.compile(r'==PROF== Profiling "(.*?)" - (\d+)')
_ERROR = re.compile(r"==ERROR==\s*(.*)")


@dataclass(frozen=True)
class Options:
    """What to measure and how, as ncu names it; empty means ncu's own default."""

    sections: tuple[str, ...] = ()
    sets: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    replay_mode: str = ""
    cache_control: str = ""
    clock_control: str = ""
    kernel_name: str = ""
    nvtx_include: tuple[str, ...] = ()
    roofline: bool = False  # the roofline's metrics too

    @property
    def of_ranges(self) -> bool:
        """Whether ncu measures a range as a whole, and no kernels."""
        return self.replay_mode in RANGES

    @property
    def filtered(self) -> bool:
        """Whether the user chose what is measured, so that no plan does."""
        return bool(self.kernel_name or self.nvtx_include or self.of_ranges)

    def as_json(self) -> dict[str, Any]:
        """For a manifest."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in vars(self).items()}

    def arguments(self) -> list[str]:
        """As ncu's arguments, what is measured and how; without filters of launches."""
        sections = self.sections
        if not (sections or self.sets or self.metrics):
            sections = (DEFAULT_SECTION,)
        given = [x for s in sections for x in ("--section", s)]
        given += [x for s in self.sets for x in ("--set", s)]
        metrics = dict.fromkeys((*self.metrics, *(ROOFLINE if self.roofline else ())))
        if metrics:
            given += ["--metrics", ",".join(metrics)]
        if self.replay_mode:
            given += ["--replay-mode", self.replay_mode]
        if self.replay_mode == "application":
            # Grids may differ between runs of the application; names and their order do not.
            given += ["--app-replay-match", "name"]
        if self.cache_control:
            given += ["--cache-control", self.cache_control]
        # Said always: what ncu does without it changed from base to boost between its versions.
        given += ["--clock-control", self.clock_control or CLOCKS]
        return given + [x for n in self.nvtx_include for x in ("--nvtx-include", n)]


def no_gpu() -> ToolMissing:
    """Why nothing is counted on this machine."""
    return ToolMissing("no NVIDIA GPU here", fix="run this on a machine with a GPU")


def command() -> list[str]:
    """The ncu command as the user has it; ToolMissing where there is none.

    InputError where the current directory is gone: ncu and what it starts need one.
    """
    try:
        Path.cwd()
    except FileNotFoundError:
        raise InputError(
            "the current directory no longer exists", fix="cd to one that does"
        ) from None
    argv = words("NCU", "ncu")
    if shutil.which(argv[0]) is None:
        raise ToolMissing(
            f"{argv[0]} is not on the PATH",
            fix="install Nsight Compute, or name it with NCU=…",
        )
    return argv


def prefix(
    tool: list[str], options: Options, output: Path, launches: list[str] | None = None
) -> list[str]:
    """What goes before the worker's command.

    `output` without a suffix; `launches` are filters that choose launches (``--kernel-id`` …),
    beside the user's own.
    """
    chosen = list(launches or [])
    if options.kernel_name:
        name = options.kernel_name
        chosen = ["--kernel-name", name if name.startswith("regex:") else f"regex:{name}", *chosen]
    return [
        *tool,
        "--nvtx",
        *(() if options.of_ranges else ("--profile-from-start", "off")),
        *options.arguments(),
        *chosen,
        # % begins a macro in the name of a report (Nsight Compute CLI, File Macros).
        *("--export", str(output).replace("%", "%%"), "--force-overwrite"),
        *("--log-file", str(log_of(output))),
    ]


def log_of(output: Path) -> Path:
    """Where ncu's messages of one capture go."""
    return output.with_name(output.name + ".log")


def messages(output: Path) -> str:
    """What ncu said in a capture; empty where it said nothing or could not."""
    try:
        return log_of(output).read_text(errors="replace")
    except OSError:
        return ""


def last_kernel(text: str) -> str | None:
    """The kernel that ncu began last, by its progress lines, or None."""
    kernels = _PROFILING.findall(text)
    return f'"{kernels[-1][0]}", number {kernels[-1][1]}' if kernels else None


def profiled(text: str) -> int:
    """How many launches ncu began, by its progress lines."""
    return len(_PROFILING.findall(text))


def check(output: Path, also: str = "") -> Path:
    """See that ncu wrote its report; gives it.

    ToolMissing with the remedy where counters are forbidden or ncu failed; InputError where it
    ran and no kernel fitted.
    """
    text = messages(output) + "\n" + also
    refuse(text)
    report = output.with_name(output.name + ".ncu-rep")  # that --export leaves
    if report.exists():
        nsys.own(report)
        return report
    if "No kernels were profiled" in text:
        raise InputError(NO_KERNEL, fix="see that --kernel-name and --nvtx-include fit the run")
    raise ToolMissing(f"ncu wrote no report: {_why(text)}", fix="run `layerline doctor`")


def refuse(text: str) -> None:
    """ToolMissing with NVIDIA's remedy where ncu said that it may not read counters."""
    if PERMISSION in text:
        raise ToolMissing(
            f"ncu may not read performance counters here ({PERMISSION})", fix=PERMISSION_FIX
        )


def _why(text: str) -> str:
    errors = [e.strip() for e in _ERROR.findall(text) if e.strip()]
    lines = errors[:1] or [line.strip() for line in text.splitlines() if line.strip()][-1:]
    return one_line(lines[0])[:300] if lines else "it said nothing"


def write_csv(report: Path, csv: Path) -> None:
    """NVIDIA's own raw page of a report, units row and all. ToolMissing where ncu cannot."""
    asked = [*command(), "--import", str(report), "--csv", "--page", "raw"]
    with replacing(csv) as temporary:
        done = subprocess.run(asked, capture_output=True, check=False)
        text = done.stdout.decode(errors="replace")
        if done.returncode or '"ID"' not in text:
            reason = _why(done.stderr.decode(errors="replace") or text)
            raise ToolMissing(f"ncu cannot print it: {reason}", file=report)
        temporary.write_bytes(done.stdout)


def query(path: Path, timeout: float) -> int:
    """Write the metrics that this GPU has, with their descriptions; gives their number."""
    asked = [*command(), "--query-metrics", "--query-metrics-mode", "all"]
    try:
        done = subprocess.run(
            asked, capture_output=True, text=True, errors="replace", timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        raise ToolMissing(
            f"ncu did not list its metrics within {timeout:g} s", fix="give a longer --timeout"
        ) from None
    refuse(done.stdout + done.stderr)
    lines = [line for line in done.stdout.splitlines() if "__" in line.split(" ")[0]]
    if done.returncode or not lines:
        raise ToolMissing(
            f"ncu lists no metrics: {_why(done.stderr + done.stdout)}",
            fix="see that `ncu --query-metrics` works, and what NCU=… names",
        )
    with replacing(path) as temporary:
        temporary.write_text(done.stdout)
    return len(lines)
