"""What is known of the model, and of how each side was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Model:
    """What is known of the model: module paths in registration order and their classes."""

    title: str
    paths: Sequence[str] = ()
    classes: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True)
class SideFacts:
    """What is known of how one side was measured; `facts` by the names of `FACTS`."""

    key: str
    label: str
    side: str
    facts: Mapping[str, Any] = field(default_factory=dict)
