"""Rule 3 where the name of a layer's kernel lists what it computes.

Myelin names the kernels that it writes itself after their operations, three letters each:
``__myl_bb0_17_AddCasMeaSubMulMeaAddSqrDivMulCasMulAdd``. Seen in captures of TensorRT 8.6. A token
that no node of the layer explains counts only where exactly one unclaimed node of that operator
lies beside the layer's nodes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from .claims import Claims
from .flow import Flow
from .model import Kernel, RawLayer
from .operator_kinds import CONVOLUTION, MATRIX, NORMALISATION, words

MYELIN = re.compile(r"__myl_bb\d+_\d+_([A-Za-z]+)\Z")
# What reduces over an axis; an engine may run it in parts and needs a cleared sum then.
REDUCTIONS: Mapping[str, frozenset[str]] = {
    "Mea": frozenset({"ReduceMean"}),
    "Sum": frozenset({"ReduceSum"}),
    "Max": frozenset({"ReduceMax", "Max"}),
    "Min": frozenset({"ReduceMin", "Min"}),
    "Pro": frozenset({"ReduceProd"}),
}
# What a product's kernel applies to what it writes, without being named a fused one.
APPLIED = words("Add Relu LeakyRelu Clip Gelu")
# The tokens by which an operator is listed, any one of them: a quotient by a constant is a product.
_LISTED: Mapping[str, frozenset[str]] = {
    **{op: words("Mea") for op in NORMALISATION},
    **{op: frozenset({token}) for token, ops in REDUCTIONS.items() for op in ops},
    "Add": words("Add Sub"),
    "And": words("And"),
    "Div": words("Div Mul"),
    "Equal": words("Eql"),
    "Erf": words("Erf"),
    "Exp": words("Exp"),
    "Gather": words("Gat"),
    "IsNaN": words("Eql Not"),
    "Mul": words("Mul Div"),
    "Neg": words("Neg Sub Mul"),
    "Not": words("Not"),
    "Pow": words("Mul Pow"),
    "Reciprocal": words("Div"),
    "Softmax": words("Exp"),
    "Sqrt": words("Sqr"),
    "Sub": words("Sub Add"),
    "Tanh": words("Tan"),
    "Where": words("Sel"),
}
_SOFTMAX = words("Max Exp Sum")
_MOVING = words("Mov Cas Res Tra Sli Con Rep Cop")


def tokens(kernel: Kernel) -> tuple[str, ...]:
    """The operations in a kernel's name, in its order; none where it is not Myelin's own.

    >>> tokens(Kernel("__myl_bb0_3_MulCasMea"))
    ('Mul', 'Cas', 'Mea')
    """
    match = MYELIN.fullmatch(kernel.name)
    return tuple(re.findall(r"[A-Z][a-z]+", match[1])) if match else ()


def allows(kernels: Sequence[Kernel], op: str) -> bool:
    """Whether the kernels can have run an operator, by their names: a veto. A product's kernel
    applies little unless it is a fused one, and Myelin's own list all that they compute."""
    listed = [tokens(k) for k in kernels]
    products = [k.name for k in kernels if is_product(k)]
    if not kernels or not all(t or is_product(k) for t, k in zip(listed, kernels, strict=True)):
        return True
    if op in MATRIX | CONVOLUTION:
        return bool(products)
    if any(re.search(r"_fused\d*\Z|_gelu_", name) for name in products):
        return True
    if op in APPLIED and products:
        return True
    said = {t for each in listed for t in each}
    return not said.isdisjoint(_LISTED[op]) if op in _LISTED else not said <= _MOVING


def is_product(kernel: Kernel) -> bool:
    """Whether the kernel is one of TensorRT's products."""
    return "_gemm_" in kernel.name


def works(kernels: Sequence[Kernel]) -> bool:
    """Whether the names of all kernels say that they compute something."""
    return bool(kernels) and all(is_product(k) or computes([k]) for k in kernels)


def only_moves(kernels: Sequence[Kernel]) -> bool:
    """Whether the names of all kernels list operations, and only such as move or convert data."""
    return bool(kernels) and all(set(tokens(k)) <= _MOVING and tokens(k) for k in kernels)


def computes(kernels: Sequence[Kernel]) -> list[str]:
    """The operations in the kernels' names that do more than to move data."""
    return [t for k in kernels for t in tokens(k) if t not in _MOVING]


def explained(layers: Sequence[RawLayer], flow: Flow, claims: Claims) -> None:
    """Claim the reductions that a layer's kernel lists and none of the layer's nodes is."""
    for p, layer in enumerate(layers):
        own = {flow.nodes[i].op for i in claims.of_layer[p]}
        if len(layer.kernels) != 1 or not own or own & NORMALISATION:
            continue
        listed = Counter(t for t in tokens(layer.kernels[0]) if t in REDUCTIONS)
        if set(tokens(layer.kernels[0])) >= _SOFTMAX:
            listed -= Counter({"Max": 1, "Sum": 1})
        for token, count in listed.items():
            known = sum(flow.nodes[i].op in REDUCTIONS[token] for i in claims.of_layer[p])
            near = claims.beside(p, REDUCTIONS[token]) if known == count - 1 else []
            if len(near) == 1:
                name = flow.nodes[near[0]].name
                why = f"its kernel's name says {token}: only {name} lies beside what it names"
                claims.add(p, near, "boundary", why)
