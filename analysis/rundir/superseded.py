"""Captures of what a run made anew since they were taken."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...core.run import Run


def superseded(run: Run) -> list[str]:
    """In words, measurements that took a file that a step of the run has left otherwise since, an
    engine that was built again, say: their times are not those of what lies there now."""
    manifests = run.manifests()
    left = {
        path: (step, recorded.get("sha256"))
        for step, manifest in manifests.items()
        for path, recorded in _files(manifest, "outputs")
    }
    found: dict[tuple[str, str], list[str]] = {}
    for step, manifest in manifests.items():
        if not step.startswith("profile/"):
            continue
        for path, recorded in _files(manifest, "inputs"):
            by, now = left.get(path, ("", None))
            took = recorded.get("sha256")
            if now is not None and took is not None and now != took:
                found.setdefault((path, by), []).append(step)
                break
    return [
        f"{_first(steps)} measured another {path} than {by} has left since"
        for (path, by), steps in found.items()
    ]


def _first(steps: list[str]) -> str:
    more = len(steps) - 1
    return f"{steps[0]} and {more} more" if more else steps[0]


def _files(manifest: Mapping[str, Any], which: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for path, recorded in (manifest.get(which) or {}).items():
        if recorded:
            yield path, recorded
