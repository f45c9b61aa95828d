"""Rule 3 where Myelin joins words of its own to the names of nodes.

``model_layers_0/Add+sr_pow`` is the residual and the square of the norm that follows, which are two
modules. A softmax that it takes apart is spelled by its steps
(``maxred+sub+exp__mye164443+sum+sr_div``). Seen in captures of TensorRT 8.6. Such a word is no
name: it counts only where exactly one unclaimed node of its operators lies beside what the layer
names, and not where it is known to be a step of something else: between two parts of one node (a
normalisation taken apart) or in a softmax.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from .claims import Claims
from .flow import Flow
from .kernel_tokens import allows
from .model import RawLayer
from .spelling import Speller, base, parts, unnamed_layer

_SOFTMAX = frozenset({"maxred", "exp", "sum"})
_OPERATORS: Mapping[str, frozenset[str]] = {
    "sr_pow": frozenset({"Pow"}),
    "sr_div": frozenset({"Div", "Reciprocal"}),
    "erf": frozenset({"Erf"}),
    "tanh": frozenset({"Tanh"}),
    "mean": frozenset({"ReduceMean"}),
    "sigmoid": frozenset({"Sigmoid"}),
}


def spelled_out(layers: Sequence[RawLayer], flow: Flow, claims: Claims) -> None:
    """Claim the softmax of layers whose own words are its steps."""
    for p, layer in enumerate(layers):
        if claims.of_layer[p] and {base(w) for w in parts(layer.name)} >= _SOFTMAX:
            softmaxes = claims.beside(p, frozenset({"Softmax"}))
            if len(softmaxes) == 1:
                why = f"its own words take {flow.nodes[softmaxes[0]].name} apart"
                claims.add(p, softmaxes, "boundary", why)


def spoken(layers: Sequence[RawLayer], flow: Flow, speller: Speller, claims: Claims) -> None:
    """Claim for layers that are known in part what their other words say."""
    for p, layer in enumerate(layers):
        if not claims.of_layer[p]:
            continue
        said = [base(word) for word in parts(layer.name)]
        if not _SOFTMAX.isdisjoint(said) or not any(word in _OPERATORS for word in said):
            continue
        steps = _steps_of_one_node(parts(layer.name), speller)
        free = [word for k, word in enumerate(said) if word in _OPERATORS and k not in steps]
        for word in dict.fromkeys(free):
            kinds = _OPERATORS[word]
            own = claims.of_layer[p].items()
            known = sum(flow.nodes[i].op in kinds and rule != "name" for i, rule in own)
            near = claims.beside(p, kinds) if free.count(word) == known + 1 else []
            near = [i for i in near if allows(layer.kernels, flow.nodes[i].op)]
            if len(near) == 1:
                name = flow.nodes[near[0]].name
                why = f"{word} in its name is {name}, the only one beside what it names"
                claims.add(p, near, "boundary", why)


def _steps_of_one_node(texts: Sequence[str], speller: Speller) -> set[int]:
    """The places of words between two parts of one and the same node."""
    known: dict[int, object] = {}
    for k, text in enumerate(texts):
        nodes, unnamed = speller.find(text), unnamed_layer(text)
        if len(nodes) == 1:
            known[k] = nodes[0]
        elif unnamed is not None:
            known[k] = unnamed[0]
    between = (range(a + 1, b) for a, b in pairwise(known) if known[a] == known[b])
    return {k for places in between for k in places}
