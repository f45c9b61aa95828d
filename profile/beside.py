"""Work that is no measurement and is done beside the next one: what nsys writes and exports.

It takes a core and some memory. Only captures under nsys are taken beside it, and they time what
the GPU does; latencies, by the host's clock or from an idle stream, have the machine to themselves.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor


class Beside:
    """A few threads. The block waits for all work, whatever happens in it."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(max_workers=4)
        self._given: list[Future[None]] = []

    def __enter__(self) -> Beside:
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def do(self, work: Callable[[], None]) -> None:
        """Begin some work."""
        self._given.append(self._pool.submit(work))

    def wait(self) -> None:
        """Wait for all that was begun; then raise the first error."""
        given, self._given = self._given, []
        for one in given:
            with contextlib.suppress(Exception):
                one.result()
        for one in given:
            one.result()
