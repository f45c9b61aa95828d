"""``parameter_changes*.log``: which parameters changed at each optimizer step, one line a step.

::

    1700000000.123456, 17: 0:51463168 2:3072 3:1024

Unix time, the step, and for each parameter of which elements changed its index and how many did;
the others did not change at that step. What an index is, ``*.parameters.index.json`` beside it
says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

LINE = re.compile(
    r"\s*+(?P<time>\d{9,18}(?:\.\d*)?)\s*+,\s*+(?:iter(?:ation)?\s*+[:=]?\s*+)?(?P<step>\d{1,18})\s*+:"
    r"(?P<counts>[\s,;\d:]*)"
)


def counts(text: str) -> list[tuple[int, int]] | None:
    """Index and elements of each parameter in the `counts` of a line; None where that is not what
    it holds."""
    pairs = []
    for word in re.split(r"[\s,;]+", text.strip(" \t,;")):
        index, colon, count = word.partition(":")
        if not word:
            continue
        if not (colon and index.isdecimal() and count.isdecimal() and len(word) < 40):
            return None
        pairs.append((int(index), int(count)))
    return pairs


def line(unix_time: float, step: int, changed: Iterable[int]) -> str:
    """The line of a step; `changed`: the elements that changed, by index."""
    counts = [f"{index}:{count}" for index, count in enumerate(changed) if count]
    return " ".join([f"{unix_time:.6f}, {step}:", *counts]) + "\n"
