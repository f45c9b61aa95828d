"""What became of every ONNX node: executed, fused, folded or missing."""

from __future__ import annotations

from collections.abc import Sequence

from ..nodes import NodeGraph
from .flow import NEVER, Flow
from .model import RULES, NodeStatus, Resolution


def node_status(resolutions: Sequence[Resolution], graph: NodeGraph) -> dict[str, NodeStatus]:
    """Node name -> status, for every node of the graph, in graph order.

    `resolutions` are one iteration in execution order, as `resolve` gives them. Of several
    layers that run a node (recomputation) the one of the most direct rule is named. A movement
    layer that is carried does not count as running its producer.
    """
    flow = Flow(graph)
    first: list[int | None] = [None] * len(flow.nodes)
    last: list[int | None] = [None] * len(flow.nodes)
    claimed_by: list[tuple[int, int] | None] = [None] * len(flow.nodes)
    for p, r in enumerate(resolutions):
        if r.rule == "carrier":
            continue
        for name, rule in zip(r.nodes, r.node_rules or [r.rule] * len(r.nodes), strict=True):
            i = flow.number[name]
            first[i] = p if first[i] is None else first[i]
            last[i] = p
            claim = (RULES.index(rule), p)
            claimed_by[i] = min(claimed_by[i] or claim, claim)
    after, before = flow.windows(first, last, len(resolutions))
    return {
        node.name: _status(i, flow, resolutions, claimed_by[i], after[i], before[i])
        for i, node in enumerate(flow.nodes)
    }


def _status(
    i: int,
    flow: Flow,
    resolutions: Sequence[Resolution],
    claimed_by: tuple[int, int] | None,
    after: int,
    before: int,
) -> NodeStatus:
    if claimed_by is not None:
        rule, r = RULES[claimed_by[0]], resolutions[claimed_by[1]]
        others = [n for n in r.nodes if n != flow.nodes[i].name]
        alone = not flow.is_movement(i) and all(flow.is_movement(flow.number[n]) for n in others)
        if not others or alone:
            return NodeStatus("executed", r.name, r.occurrence, rule, r.why)
        why = f"runs together with {len(others)} other node{'s' if len(others) > 1 else ''}"
        return NodeStatus("fused", r.name, r.occurrence, rule, why)
    if flow.constant[i]:
        return NodeStatus("folded", None, None, None, "fed by constants alone")
    if flow.shape_made[i]:
        return NodeStatus("folded", None, None, None, "computes shapes only")
    if not flow.inputs_known and after == NEVER:
        return NodeStatus("folded", None, None, None, "nothing that runs feeds it")
    if flow.is_movement(i) and (after != NEVER or before < len(resolutions)):
        r = resolutions[after if after != NEVER else before]
        where = "before it" if after != NEVER else "after it"
        why = f"moves data without a layer of its own; the layer {where} takes it over"
        return NodeStatus("fused", r.name, r.occurrence, None, why)
    return NodeStatus("missing", None, None, None, "it should run, and no layer is known to run it")
