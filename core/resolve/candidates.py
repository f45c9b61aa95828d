"""The nodes that a layer without a name can be: unclaimed, alive, and not movement."""

from __future__ import annotations

from collections.abc import Callable

from . import ops
from .claims import Claims
from .flow import NEVER, Flow


def units(
    flow: Flow, claims: Claims, after: list[int], wanted: Callable[[int], bool]
) -> list[tuple[int, ...]]:
    """Unclaimed nodes at work of which `wanted` is true, each as a candidate of its own."""
    return [
        (i,)
        for i in range(len(flow.nodes))
        if flow.alive[i]
        and not claims.claimed(i)
        and wanted(i)
        and (flow.inputs_known or after[i] != NEVER or flow.nodes[i].op in ops.HEAVY)
    ]


def working_units(flow: Flow, claims: Claims, after: list[int]) -> list[tuple[int, ...]]:
    """Unclaimed working nodes. A matrix product and the bias added to it are one candidate."""
    found = units(flow, claims, after, lambda i: not flow.is_movement(i))
    place = {u[0]: k for k, u in enumerate(found)}
    gone: set[int] = set()
    for k, unit in enumerate(found):
        i = unit[0]
        if flow.nodes[i].op not in ops.MATRIX | ops.CONVOLUTION or len(flow.consumers[i]) != 1:
            continue
        follower = flow.consumers[i][0]
        if (
            flow.nodes[follower].op == "Add"
            and follower in place
            and flow.producers[follower] == (i,)
            and flow.nodes[follower].module == flow.nodes[i].module
        ):
            found[k] = (i, follower)
            gone.add(place[follower])
    return [u for k, u in enumerate(found) if k not in gone]
