"""Captures of ranks joined as the command does it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from layerline.analysis.captures import rank_partials
from layerline.analysis.model.ranks import Job, RankCapture
from layerline.analysis.ranks.job import reduce


def of_captures(captures: Sequence[RankCapture]) -> Job:
    """The job of these captures."""
    by_rank = {c.rank: c for c in captures}
    return reduce(
        [c.identity for c in captures],
        {r: c.collectives for r, c in by_rank.items()},
        {r: c.steps for r, c in by_rank.items()},
        by_rank.__getitem__,
    )


def of_files(paths: Sequence[Path]) -> Job:
    """The job of these files."""
    return of_captures([c for path in paths for c in rank_partials.captures(path)])
