"""Damaged inputs for every command that reads files, as many as asked: no traceback, no hang, no
more than 2 GB.

``python tests/fuzz/fuzz_commands.py --inputs 10000``. Inputs are numbered: a finding is made again
by ``--first N --inputs 1``. Commands run inside a child that is limited in time and memory, and
started again where one ends it.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

FOLDERS = "", "captures", "damaged"
sys.path[:0] = [str(Path(__file__).parents[1] / "support" / f) for f in FOLDERS]

SECONDS = 20  # of processor time for one input; ten times as many on the clock
MEMORY = 2 << 30  # bytes beyond what the process has before its first input
CODES = {0, 1, 2, 3, 4}
EACH = 2000  # inputs of one child


class HangError(BaseException):
    """A command goes on too long. No Exception, so that nothing on the way takes it for its own."""


def _give_up(*_: Any) -> None:
    raise HangError


def attempt(arguments: list[str]) -> str | None:
    """Run one command line in this process; what is wrong, None where nothing is."""
    from layerline.core.cli.command import main

    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    stdout, stderr = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = out, err
    code: Any = None
    wrong = None
    try:
        main(arguments)
    except SystemExit as e:
        code = e.code
    except HangError:
        wrong = "hang: " + "".join(traceback.format_exc().splitlines(keepends=True)[-7:-1])
    except BaseException:
        wrong = "traceback: " + traceback.format_exc()
    finally:
        sys.stdout, sys.stderr = stdout, stderr
        signal.alarm(0)
        signal.setitimer(signal.ITIMER_PROF, 0)
    for stream in (out, err):
        stream.flush()
    said = b"".join(s.buffer.getvalue() for s in (out, err)).decode()  # type: ignore[attr-defined]
    if wrong is None and "Traceback" in said:
        wrong = f"traceback: {said[-1500:]}"
    elif wrong is None and ("out of memory" in said or "fit in memory" in said):
        wrong = f"memory: {said[-300:]}"
    elif wrong is None and code not in CODES:
        wrong = f"exit code {code}: {said[-300:]}"
    elif wrong is None and code in (2, 3) and "error: " not in said:
        wrong = f"exit code {code} without a word: {said[-300:]}"
    return wrong


def limited(arguments: list[str]) -> str | None:
    """As `attempt`, ended after `SECONDS` of work or ten times as long without."""
    signal.signal(signal.SIGALRM, _give_up)
    signal.signal(signal.SIGPROF, _give_up)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.alarm(10 * SECONDS)
    return attempt(arguments)


def child(first: int, count: int, pipe: int) -> None:
    """Inputs one after the other; a line of JSON for each begin and each finding."""
    from damaged_inputs import Inputs

    def say(**what: Any) -> None:
        os.write(pipe, json.dumps(what).encode() + b"\n")

    with tempfile.TemporaryDirectory() as scratch:
        inputs = Inputs(Path(scratch))
        for arguments in inputs.sound():  # what a command imports is no input's memory
            if wrong := limited(arguments):
                say(number=None, wrong=wrong, arguments=arguments, damage="none")
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
        for number in range(first, first + count):
            folder = Path(scratch) / "case"
            folder.mkdir()
            case = inputs.case(number, folder)
            say(begin=number, arguments=case.arguments, damage=case.damage)
            began = time.process_time()
            wrong = limited(case.arguments)
            if wrong:
                say(number=number, wrong=wrong, arguments=case.arguments, damage=case.damage)
            say(seconds=round(time.process_time() - began, 2))
            shutil.rmtree(folder, ignore_errors=True)
        say(peak=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def run(first: int, count: int) -> list[dict[str, Any]]:
    """All inputs, in children; what was found."""
    found: list[dict[str, Any]] = []
    end, longest, peak = first + count, 0.0, 0
    while first < end:
        reader, writer = os.pipe()
        here = [sys.executable, "-P", __file__, "--child", str(writer)]
        some = ["--first", str(first), "--inputs", str(min(EACH, end - first))]
        process = subprocess.Popen(
            [*here, *some], pass_fds=[writer], stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL
        )
        os.close(writer)
        begun: dict[str, Any] = {}
        with os.fdopen(reader) as lines:
            for line in map(json.loads, lines):
                begun = line if "begin" in line else begun
                longest = max(longest, line.get("seconds", 0))
                peak = max(peak, line.get("peak", 0))
                if "wrong" in line:
                    found.append(line)
                    print(json.dumps(line), flush=True)
        if process.wait():
            died = {**begun, "number": begun.get("begin"), "wrong": f"ended {process.returncode}"}
            found.append(died)
            print(json.dumps(died), flush=True)
            first = begun.get("begin", end) + 1
        else:
            first += EACH
        print(f"{min(first, end)} of {end}, {len(found)} found", file=sys.stderr, flush=True)
    print(f"longest {longest} s, {peak / 1e6:.2f} GB at most", file=sys.stderr)
    return found


def main() -> None:
    """Read the options, run, end with 1 where something was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        child(options.first, options.inputs, options.child)
    else:
        sys.exit(bool(run(options.first, options.inputs)))


if __name__ == "__main__":
    main()
