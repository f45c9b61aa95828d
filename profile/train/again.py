"""A training run again, with one thing changed, for a few steps: what a remedy does."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...core.run import open_run
from ...workloads.request import Request
from .command import perform
from .process import Plan

STEPS = 12


def train_again(folder: Path, asked: Mapping[str, Any], environment: Mapping[str, str]) -> None:
    """Train in a run of its own at `folder`, with `environment` set, and record memory. Errors as
    of `perform`."""
    run = open_run(folder, create=True)
    options = {"environment": dict(environment)} if environment else {}
    with _set(environment):
        perform(run, Request(**asked), Plan(steps=STEPS, profile=("memory",), options=options))


@contextmanager
def _set(environment: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
