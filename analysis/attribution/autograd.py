"""Who an operator of the eager model belongs to: the rules, on columns of one trace.

An operator is inside module ranges, inside nodes of the backward graph, both, or neither; the
innermost of the two decides (see docs/eager.md):

* a module range: the module (rule "range"). Inside a backward node it is recomputation.
* a backward node: the module of the last forward operator that started with the node's sequence
  number on the node's forward thread (rule "sequence"). AccumulateGrad, and the engine's sums of
  gradients that meet, are rows of their own.
* neither: the phase's own row (loss, optimizer, data, …).

A graph of ``torch.compile`` counts as a module: what is inside of it cannot be told apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ...core.own_ranges import MODULE, PHASE
from ...core.tables import PHASES
from ...core.torch_ranges import EVALUATE, SUMS
from ..readers.torch.events import OP, RANGE, UNKNOWN, Events, Ints
from ..readers.torch.nesting import Flags, Nesting, windows

# The operator that `torch.compile` puts around each call of a graph, with the graph's number.
COMPILED = "Torch-Compiled Region: "
# Before that, the check that the graph is the right one for these inputs, by the host.
LOOKUP = "TorchDynamo Cache Lookup"
ACCUMULATE = "torch::autograd::AccumulateGrad"
# One operator may make several nodes (an in-place operator on a view makes three); beyond this
# distance the operator that made the node was not traced.
MOST_APART = 16

# Rows of their own, where no module is charged. The order is that of the codes below.
ROWS = (
    "gradient accumulation",
    "gradient sums",
    "loss",
    "optimizer",
    "data",
    "recomputation",
    "backward start",
    "outside modules",
    "backward without forward",
    "guards of compiled graphs",
)
(
    ACCUMULATION, SUM, LOSS, OPTIMIZER, DATA, RECOMPUTATION, START, OUTSIDE, ASTRAY, GUARDS,
) = range(len(ROWS))  # fmt: skip
_PHASE_ROW = {"loss": LOSS, "optimizer": OPTIMIZER, "data": DATA, "backward": START}
RANGE_RULE, SEQUENCE_RULE, UNRESOLVED = range(3)
RULES = ("range", "sequence", "unresolved")


@dataclass(frozen=True)
class Credit:
    """For every event of the trace: `module`, code of its range's name in `Events.names` (-1
    where a row or nothing is charged); `row`, index into `ROWS` (-1 where a module is charged);
    `phase`, index into `tables.PHASES`; `iteration`; `rule`, index into `RULES`; `forward`, the
    forward operator whose module a backward operator got."""

    module: Ints
    row: Ints
    phase: Ints
    iteration: Ints
    rule: Ints
    forward: Ints


def named(events: Events, prefix: str, *kinds: int) -> Flags:
    """Which events have a name with this prefix and one of these kinds."""
    return _matching(events, lambda name: name.startswith(prefix), *kinds)


def _matching(events: Events, test: Callable[[str], bool], *kinds: int) -> Flags:
    names = np.array([test(n) for n in events.names], dtype=bool)
    flags: Flags = names[events.name] & np.isin(events.kind, kinds)
    return flags


def backward_nodes(events: Events) -> Flags:
    """Operators that are a node of the backward graph: the engine's ``evaluate_function``, and
    what carries a sequence number with the thread of its forward (0 in forward operators)."""
    numbered = (events.sequence >= 0) & (events.forward_thread > 0) & (events.kind == OP)
    flags: Flags = numbered | named(events, EVALUATE, OP)
    return flags


def _numbered(events: Events, nodes: Flags) -> Flags:
    """Operators of forward with a sequence number: `nodes` have the forward's thread beside it."""
    flags: Flags = (events.kind == OP) & ~nodes & (events.sequence >= 0)
    return flags


def path_of(name: str) -> str:
    """The module of a range's name; of a compiled graph its number in words."""
    if name.startswith(COMPILED):
        return f"compiled graph {name.removeprefix(COMPILED)}"
    return name.removeprefix(MODULE)


def recomputing(events: Events) -> Flags:
    """Ranges of the phase in which a checkpointed forward runs again."""
    return named(events, f"{PHASE}recompute", RANGE)


def forward_of(events: Events, nodes: Flags) -> Ints:
    """For each numbered backward node, the last forward operator that started before it with its
    sequence number on its forward thread; -1 where the trace has none.

    A number that no operator started with was taken inside the last operator with a smaller one
    (in-place operators on views make more nodes than one).
    """
    forward = np.full(len(events), UNKNOWN, dtype=np.int64)
    back = np.flatnonzero(nodes & (events.sequence >= 0))
    ahead = np.flatnonzero(_numbered(events, nodes))
    places = events.process.astype(np.int64) << 32 | events.thread
    for key, place in _forward_threads(events, back, ahead, places).items():
        own = back[(events.forward_thread[back] == key[1]) & (events.process[back] == key[0])]
        ops = ahead[places[ahead] == place]
        # Of equal starts the one that is nested deeper, which the profiler numbered later, is last.
        ops = ops[np.lexsort((events.index[ops], events.start[ops], events.sequence[ops]))]
        forward[own] = _last_before(events, own, ops)
    return forward


def _last_before(events: Events, back: Ints, ahead: Ints) -> Ints:
    """`forward_of` for one pair of threads; `ahead` is sorted by number and start."""
    numbers, starts = events.sequence[ahead], events.start[ahead]
    wanted, begun = events.sequence[back], events.start[back]
    at = np.searchsorted(numbers, wanted, side="right") - 1
    rest = np.flatnonzero(at >= 0)
    while len(rest := rest[starts[at[rest]] > begun[rest]]):  # a later iteration that counted anew
        at[rest] -= 1
        rest = rest[at[rest] >= 0]
    near = np.flatnonzero(at >= 0)
    near = near[wanted[near] - numbers[at[near]] <= MOST_APART]
    found = np.full(len(back), UNKNOWN, dtype=np.int64)
    found[near] = ahead[at[near]]
    return found


def _forward_threads(
    events: Events, back: Ints, ahead: Ints, places: Ints
) -> dict[tuple[int, int], int]:
    """(process, forward thread's number) -> process and thread of its forward operators.

    The profiler numbers threads by itself and does not say which is which: the thread that has
    most of the sequence numbers is meant. Ties go to the thread of the earliest operator.
    """
    by_start = ahead[np.argsort(events.start[ahead], kind="stable")]
    on = {
        p: set(events.sequence[ahead[places[ahead] == p]].tolist())
        for p in dict.fromkeys(places[by_start].tolist())
    }
    wanted: dict[tuple[int, int], set[int]] = {}
    columns = events.process, events.forward_thread, events.sequence
    rows = zip(*(c[back].tolist() for c in columns), strict=True)
    for process, thread, number in rows:
        wanted.setdefault((process, thread), set()).add(number)
    threads = {}
    for key, numbers in wanted.items():
        own = [place for place in on if place >> 32 == key[0]]
        if own:
            threads[key] = max(own, key=lambda place: len(numbers & on[place]))
    return threads


def credit(events: Events, nesting: Nesting) -> Credit:
    """Apply the rules to every operator of the trace (and to the runtime calls inside them)."""
    n = len(events)
    depth = np.full(n + 1, -1, dtype=np.int64)  # place on the thread: the inner event is later
    depth[nesting.order] = np.arange(len(nesting.order))
    nodes = backward_nodes(events)
    charged = named(events, MODULE, RANGE) | named(events, COMPILED, OP)
    module_at = nesting.innermost(charged)
    node_at = nesting.innermost(nodes)
    in_module = depth[module_at] > depth[node_at]
    in_node = depth[node_at] > depth[module_at]
    # A forward operator inside a backward node, but in no module's range, is recomputed by a
    # function that is no module.
    repeats = in_node & _numbered(events, nodes)
    again = in_node & (depth[nesting.innermost(repeats)] > depth[node_at])
    again |= in_node & (depth[nesting.innermost(recomputing(events))] > depth[node_at])
    in_node &= ~again
    marked, iteration = windows(events, nesting)
    phase = _phases(events, nesting, nodes, marked)

    module = np.where(in_module, events.name[module_at], UNKNOWN).astype(np.int64)
    phase_rows = np.array([_PHASE_ROW.get(p, OUTSIDE) for p in PHASES])
    row = np.where(in_module, UNKNOWN, phase_rows[phase])
    row[(row == OUTSIDE) & named(events, LOOKUP, OP)] = GUARDS
    row[again] = RECOMPUTATION
    rule = np.where(row == OUTSIDE, UNRESOLVED, RANGE_RULE)

    # Backward: as the forward operator was credited; nested operators as their node.
    forward = np.where(in_node, forward_of(events, nodes)[node_at], UNKNOWN)
    known = forward >= 0
    module[known], row[known] = module[forward[known]], row[forward[known]]
    row[in_node & ~known] = ASTRAY
    rule[in_node] = np.where(np.isin(row[in_node], (OUTSIDE, ASTRAY)), UNRESOLVED, SEQUENCE_RULE)
    accumulation = _matching(events, lambda n: n.removeprefix(EVALUATE) == ACCUMULATE, OP)
    for code, at in ((ACCUMULATION, accumulation), (SUM, _sums(events, nesting))):
        inner = nesting.innermost(at)
        own = in_node & (inner >= 0) & (depth[inner] >= depth[node_at])
        module[own], forward[own] = UNKNOWN, UNKNOWN
        row[own], rule[own] = code, RANGE_RULE

    phase[in_node] = PHASES.index("backward")
    phase[again | (in_module & (node_at >= 0))] = PHASES.index("recompute")
    return Credit(module, row, phase, iteration, rule, forward)


def _sums(events: Events, nesting: Nesting) -> Flags:
    """Additions that the engine itself makes: right under ``evaluate_function``, beside the node.

    There gradients of a value that was used more than once meet: a residual connection, a weight
    that two modules share.
    """
    engine, around = named(events, EVALUATE, OP), nesting.parent
    return _matching(events, SUMS.__contains__, OP) & (around >= 0) & engine[around]


def _phases(events: Events, nesting: Nesting, nodes: Flags, marked: Ints) -> Ints:
    """Phase (index into `tables.PHASES`) of every host event, of which `marked` are known.

    A trace without phases still has optimizer ranges of torch, and operators with sequence numbers
    (forward).
    """
    phase = marked.copy()
    if not named(events, PHASE, RANGE).any():
        stepping = named(events, "Optimizer.", RANGE, OP)
        phase[nesting.innermost(stepping) >= 0] = PHASES.index("optimizer")
        ahead = (phase == UNKNOWN) & (nesting.innermost(_numbered(events, nodes)) >= 0)
        phase[ahead] = PHASES.index("forward")
    phase[phase == UNKNOWN] = PHASES.index("other")
    return phase
