"""nsys and ncu around the ranks of a job: around each, or one around all of a node.

The kernels of a collective wait for those of the other ranks, which a replay does not start: ncu
leaves them out by name. A launch that is not replayed at once (kernel) is replayed by running the
whole job again (application): then one ncu stands around torchrun, as each run needs ranks that
meet anew.
"""

from __future__ import annotations

from pathlib import Path

from ...core.capture_names import CaptureName
from ...core.errors import InputError
from ...core.files import listing
from ...core.ranks import identity as ranks_
from .. import nsys
from ..ncu import tool as ncu
from .options import Asked, numbers

NCU_SECONDS = 1800.0  # a job under ncu that takes longer hangs, most likely


def nsys_prefix(asked: Asked, stem: str, *, windowed: bool) -> list[str]:
    """nsys's command. `windowed`: the program marks what is captured (cudaProfilerApi)."""
    more = []
    if asked.delay is not None:
        more.append(f"--delay={asked.delay:g}")
    if asked.duration is not None:
        # nsys ends the program with the capture, unless told.
        more += [f"--duration={asked.duration:g}", "--kill=none"]
    # % begins a macro in a report's name.
    output = Path(stem.replace("%", "%%"))
    return nsys.prefix(output, traces=nsys.ON_DEVICE, marked=windowed, more=more)


def ncu_prefix(asked: Asked, stem: str, batch: int, *, windowed: bool) -> list[str]:
    """ncu's command for one batch of launches. InputError where neither the program nor the user
    says which: counting every kernel of a training takes days."""
    if not windowed and asked.launches is None:
        raise InputError(
            "ncu would replay every kernel of the job",
            fix="give --launches SKIP:COUNT, or --schedule with a program that calls `steps`",
        )
    if asked.launches is None and asked.batches > 1:
        raise InputError("batches of how many kernels?", fix="give --launches [SKIP:]COUNT")
    options = ncu.Options(kernel_name=ncu.NO_NCCL, replay_mode=asked.replay)
    chosen = ["--target-processes", "all"]
    if asked.launches is not None:
        skip, count = numbers(asked.launches)
        chosen += ["--launch-skip", str(skip + batch * count), "--launch-count", str(count)]
    made = ncu.prefix(ncu.command(), options, Path(stem), chosen)
    if not windowed:
        at = made.index("--profile-from-start")
        del made[at : at + 2]
    return made


def export(report: Path, name: CaptureName) -> None:
    """nsys's own SQLite of a report, with what NCCL says of its messages (blobs). InputError with
    what nsys printed, where it fails, and where the report is of another capture than `name`."""
    nsys.own(report)
    sqlite = report.with_suffix(".sqlite")
    nsys.export(report, sqlite, nsys.mark(name), ["--include-blobs=true"])


def messages(folder: Path) -> list[Path]:
    """What ncu said in the captures of this host's ranks."""
    return [p for p in listing(folder) if p.suffix == ".log" and f"@{ranks_.host()}." in p.name]


def last_kernels(folder: Path) -> str | None:
    """The kernels that ncu began last, for a job that failed or hung under it."""
    found = {ncu.last_kernel(path.read_text(errors="replace")) for path in messages(folder)}
    return ", ".join(sorted(k for k in found if k)) or None
