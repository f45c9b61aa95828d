"""A real Slurm on this machine, of two nodes: Debian's slurm-wlm and munge, with a configuration of
its own, so that nothing that is installed is touched."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

NEEDED = ("sbatch", "srun", "scontrol", "slurmctld", "slurmd", "munged")
NODES = ("node1", "node2")
_CONF = """
ClusterName=layerline
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdSpoolDir={folder}/spool.%n
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmdLogFile={folder}/slurmd.%n.log
ReturnToService=2
MpiDefault=none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
NodeName=node1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=2 State=UNKNOWN
NodeName=node2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=2 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> str | None:
    """Why there can be no Slurm here; None where there can."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    lacking = [name for name in NEEDED if shutil.which(name, path=path) is None]
    if lacking:
        return f"{', '.join(lacking)}: not installed (apt install slurm-wlm munge)"
    return None if os.geteuid() == 0 else "this Slurm runs as root only"


@contextlib.contextmanager
def cluster() -> Iterator[dict[str, str]]:
    """Start it; gives the environment in which its commands reach it."""
    # munge wants a folder that others can enter, and a socket's path is short.
    with tempfile.TemporaryDirectory(prefix="slurm") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "state").mkdir()
        key = folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        conf = folder / "slurm.conf"
        conf.write_text(_CONF.format(host=socket.gethostname(), folder=folder, ports=_ports(3)))
        paths = os.environ["PATH"] + ":/usr/sbin:/sbin"
        environment = {**os.environ, "PATH": paths, "SLURM_CONF": str(conf)}
        start = ["munged", "--foreground", "--force", f"--key-file={key}"]
        start += [f"--{what}-file={folder}/munged.{what}" for what in ("pid", "log", "seed")]
        stack.enter_context(_daemon([*start, f"--socket={folder}/munge.socket"], environment))
        _until(lambda: (folder / "munge.socket").exists(), "munged")
        stack.enter_context(_daemon(["slurmctld", "-D", "-c"], environment))
        for node in NODES:
            stack.enter_context(_daemon(["slurmd", "-D", "-N", node], environment))

        def idle() -> bool:
            said = subprocess.run(
                ["sinfo", "-h", "-N", "-o", "%t"], env=environment, capture_output=True, text=True
            )
            return said.stdout.split() == ["idle"] * len(NODES)

        _until(idle, "slurmctld and slurmd")
        yield environment


@contextlib.contextmanager
def _daemon(command: list[str], environment: dict[str, str]) -> Iterator[None]:
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _until(there: object, what: str, seconds: float = 60.0) -> None:
    assert callable(there)
    end = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < end, f"{what} did not start within {seconds:g} s"
        time.sleep(0.2)


def _ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
