"""A rank of a workload: `profile.train.worker` as one of several, which fails with its exit status.

``python -m layerline.profile.ranks.worker JOB.json``; the job is that worker's, with ``ranks``, as
`identity.chosen` has them, which are watched, and ``results``, a folder for
``facts.rankNNNN.json``. Ranks that are not watched take the same steps.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from ...core.errors import InputError, LayerlineError
from ...core.files import read_json, write_json
from ...core.ranks import identity as ranks_
from ..train.worker import run
from .leaving import dump_collectives, exit_when_told, leave_group


def facts_of(folder: Path, rank: int) -> Path:
    """Where the facts of a rank are."""
    return folder / f"facts.rank{rank:04d}.json"


def main(path: Path) -> int:
    """Train as the job says; gives the exit status."""
    exit_when_told()
    job: dict[str, Any] = read_json(path)
    folder = Path(job["results"])
    try:
        rank = ranks_.identity(os.environ)
        if rank is None:
            raise InputError("no launcher says which rank this is", fix="start it with torchrun")
        facts = run({**job, "watched": ranks_.chosen(job["ranks"])(rank)})
    except LayerlineError as e:
        print(f"error: {e.line()}", file=sys.stderr)  # noqa: T201
        return e.exit_code
    except BaseException:
        dump_collectives(folder)
        raise
    write_json(facts_of(folder, rank.rank), facts)
    leave_group()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
