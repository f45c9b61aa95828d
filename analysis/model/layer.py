"""What is known of one engine layer."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.stats import Stat

MOVEMENT = "movement"


@dataclass(frozen=True)
class Times:
    """`iterations`: how many a capture holds; `total`: ns of all layers in one. Null is unknown.
    `own_reports`: medians are over the iterations in which a layer ran, not over all of them.
    `engines`: of a capture of several, the time of each one's layers in one enqueue."""

    iterations: int | None
    total: Stat | None
    own_reports: bool = False
    engines: tuple[Stat | None, ...] = ()
