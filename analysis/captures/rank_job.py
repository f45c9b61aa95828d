"""The captures of ranks joined to their job, from a run or from any files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from ...core.capture_names import named
from ...core.cli.progress import log, progress
from ...core.run import Run
from ..model.ranks import Identity, Job, RankCapture
from ..ranks import identity
from . import rank_partials as partials

LEFT_OUT = "left out: "  # of notes of a job: a capture that cannot be read, and why
# Of profiler traces, and of nsys exports.
TRACES, NSYS = (".trace.json", ".trace.json.gz"), ".sqlite"


def of_run(run: Run) -> dict[str, list[Path]]:
    """By precision the captures of ranks in a run: profiler traces, else nsys exports."""
    found: dict[tuple[str, str], list[Path]] = {}
    for path, name in named(run.file("captures"), *TRACES, NSYS).items():
        if name.task == "train":
            kind = "nsys" if name.suffix == NSYS else "trace"
            found.setdefault((name.precision, kind), []).append(path)
    precisions = sorted({p for p, _ in found})
    return {p: sorted(found.get((p, "trace")) or found[p, "nsys"]) for p in precisions}


def joined(
    paths: Sequence[Path], folder: Path, workers: int | None = None, scheduler: str | None = None
) -> tuple[Job, Mapping[int, Path]]:
    """The job, and the partial of each rank, written into `folder`. InputError where the files
    are not those of one job; one that cannot be read is left out, and that is said."""
    places: list[Path] = []
    failures: list[partials.Failure] = []
    making = partials.make_all(paths, folder, workers, scheduler)
    from ..ranks import job  # here, while others read: it takes a third of a second

    with progress(f"reading {len(paths)} captures", len(paths)) as doing:
        for made in making:
            doing.done()
            if isinstance(made, partials.Failure):
                failures.append(made)
            else:
                places += made
    for failure in failures:
        if failure.contradiction or not places:
            raise failure.error()
    for failure in failures:
        log(f"{LEFT_OUT}{failure.error().line()}")
    identities = [partials.identity(place) for place in places]
    if len(identities) == 1 and identities[0].rank is None:
        identities = [_alone(identities[0])]
    identity.settled(identities)
    each = zip(identities, places, strict=True)
    by_rank = {one.rank: place for one, place in each if one.rank is not None}
    whose = {one.rank: one for one in identities}

    def load(rank: int) -> RankCapture:
        return replace(partials.load(by_rank[rank]), identity=whose[rank])

    with progress("joining the ranks"):
        left = [f"{LEFT_OUT}{failure.error().line()}" for failure in failures]
        found = job.reduce(
            identities,
            {r: partials.table(p, "collectives") for r, p in by_rank.items()},
            {r: partials.table(p, "steps") for r, p in by_rank.items()},
            load,
            left,
        )
    return found, by_rank


def _alone(one: Identity) -> Identity:
    """A single capture that says no rank is that of rank 0, and says so."""
    note = "does not say of which rank it is: taken for rank 0"
    return msgspec.structs.replace(one, rank=0, notes=(*one.notes, note))
