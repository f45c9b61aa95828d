"""One communication of a rank, as it is found in the events of a trace."""

from __future__ import annotations

from dataclasses import dataclass

from ..model.ranks import Group
from ..readers.torch.communication import Arguments
from ..readers.torch.events import UNKNOWN, Events


@dataclass(frozen=True)
class Found:
    """A communication: `event` is its record or call on the host, UNKNOWN for none. `operation` in
    the words of the tables; `number`: its sequence number in its group; `thread`: that a
    library's range ran on; UNKNOWN for none."""

    event: int
    operation: str
    arguments: Arguments
    start: int | None
    end: int | None
    known_by: str
    stream: int = UNKNOWN
    number: int = UNKNOWN
    group: Group | None = None
    thread: int = UNKNOWN


def arguments_of(events: Events, event: int) -> Arguments:
    """The arguments of an event; none where it has none."""
    code = int(events.communication[event])
    return events.communications[code] if code != UNKNOWN else Arguments()
