"""Reading a large snapshot and opening its page.

    python tests/bench/bench_snapshot.py [--mib 1024] [SNAPSHOT.pickle]

Grows a snapshot (`grow_snapshot`) where none is named. Printed: seconds of wall and CPU and peak
memory of reading it and of `layerline memory`, the size of the page, and the seconds that Chromium
takes until its table is filled (skipped where there is no Chromium).
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import grow_snapshot

READ = "from layerline.analysis.readers.memory.snapshot import read"
COMMAND = ["-m", "layerline.core.cli.command", "-q", "memory"]
COUNT = """
import resource, subprocess, sys, time
start = time.perf_counter()
subprocess.run([sys.executable, "-P", *sys.argv[1:]], check=True, stdout=subprocess.DEVNULL)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(f"{time.perf_counter() - start:.1f} s wall, {used.ru_utime + used.ru_stime:.1f} s CPU, "
      f"{used.ru_maxrss // 1024} MiB")
"""


def measured(arguments: list[str]) -> str:
    """What a Python process with these arguments takes."""
    command = [sys.executable, "-c", COUNT, *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def opened(page: Path, width: int) -> float | None:
    """Seconds until the page shows who is alive at the peak."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), None)
    if chromium is None:
        return None
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": width, "height": 800})
        start = time.perf_counter()
        tab.goto(page.as_uri())
        tab.wait_for_selector("#alive tr")
        took = time.perf_counter() - start
        browser.close()
    return took


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("snapshot", type=Path, nargs="?")
    parser.add_argument("--mib", type=int, default=1024)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = options.snapshot or Path(folder, "snapshot.pickle")
        if options.snapshot is None:
            subprocess.run(
                [sys.executable, grow_snapshot.__file__, str(path), "--mib", str(options.mib)],
                check=True,
            )
        page = Path(folder, "memory.html")
        size = path.stat().st_size >> 20
        code = f"{READ}; from pathlib import Path; read(Path({str(path)!r}))"
        print(f"reading {size} MiB: {measured(['-c', code])}")
        print(f"layerline memory: {measured([*COMMAND, str(path), '-o', str(page)])}")
        for width in (1280, 390):
            took = opened(page, width)
            shown = "no Chromium here" if took is None else f"{took:.2f} s"
            print(f"opening its page of {page.stat().st_size >> 10} KiB, {width} wide: {shown}")


if __name__ == "__main__":
    main()
