"""Views do not make a layer that of their module.

A view costs nothing. Beside work that other evidence than names found, a reshape that the layer
names is only where the engine cut the graph: the layer belongs to the modules that work in it.
"""

from __future__ import annotations

from .claims import Claims
from .flow import Flow
from .operator_kinds import VIEW


def release(flow: Flow, claims: Claims) -> None:
    """Take from layers the views of modules that do no work in them."""
    for p, own in enumerate(claims.of_layer):
        working = {i: rule for i, rule in own.items() if not flow.is_movement(i)}
        if all(rule == "name" for rule in working.values()):
            continue
        modules = {flow.nodes[i].module for i in working}
        views = (i for i in own if flow.nodes[i].op in VIEW)
        claims.release(p, [i for i in views if flow.nodes[i].module not in modules])
