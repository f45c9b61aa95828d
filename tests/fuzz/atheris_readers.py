"""Coverage-guided fuzzing of the readers, for long runs beside the test suite.

``pip install atheris``, then ``python tests/fuzz/atheris_readers.py [CORPUS] [libFuzzer options]``,
e.g. ``-max_total_time=600``. Without a corpus the seeds of the tests are written to one. Anything
but an Artefact or a LayerlineError is a finding; libFuzzer keeps the file that led to it.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["layerline"]):
    from layerline.analysis.readers import registry
    from layerline.core.errors import LayerlineError

    for _name in registry.READERS:
        registry.load(_name)

sys.path[:0] = [str(Path(__file__).parents[1] / "support" / f) for f in ("", "damaged")]
from reader_seeds import SEEDS  # noqa: E402

FOLDER = tempfile.TemporaryDirectory()
FILE = Path(FOLDER.name) / "input"


def one_input(data: bytes) -> None:
    """Read one file of whatever kind it looks like."""
    FILE.write_bytes(data)
    with contextlib.suppress(LayerlineError):
        registry.read(FILE)


def corpus() -> str:
    """A folder with the seeds that are single files."""
    folder = Path(tempfile.mkdtemp(prefix="layerline-corpus-"))
    for name, writers in SEEDS.items():
        for number, write in enumerate(writers):
            with tempfile.TemporaryDirectory() as scratch:
                path = write(Path(scratch))
                if path.is_file():
                    (folder / f"{name}-{number}").write_bytes(path.read_bytes())
    return str(folder)


if __name__ == "__main__":
    arguments = sys.argv if any(not a.startswith("-") for a in sys.argv[1:]) else None
    atheris.Setup(arguments or [*sys.argv, corpus()], one_input)
    atheris.Fuzz()
