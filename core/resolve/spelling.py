"""Rule 1, `name`: what tools make of a node's name, and the way back.

Where a spelling was seen is noted beside it. A decoration is taken off only where the name with
it is no node's, one at a time, so a node that really ends in ``_reshape`` keeps its name.
"""

from __future__ import annotations

import re
from functools import cache

from ..nodes import NodeGraph, sanitised
from .model import Network, NetworkLayer
from .operator_kinds import words

# TensorRT layers join by " + " and " || ", Myelin by "+", metadata by U+001E and U+001F. Where
# Myelin takes a layer that TensorRT had joined, its " + " has become " _ ".
_JOIN = re.compile(r"\s*(?:\|\||\+|\x1e|\x1f)\s*| _ ")
_METADATA = re.compile(r"\[ONNX Layer: (.*?)\](?=$|[\x1e\x1f\s,;\[])")
_FOREIGN = re.compile(r"ForeignNode\[(.+?)\.\.\.(.+)\]")
_UNNAMED = re.compile(r"\(Unnamed Layer[*_] (\d+)\)(?: \[([^\]]*)\])?")
_REFORMAT = re.compile(r"Reformatting CopyNode for (Input|Output) Tensor (\d+) to (.+)", re.DOTALL)

_PREFIXES = tuple(
    re.compile(p)
    for p in (
        r"shuffle_(?:input|output)(?:_\d+)?_",  # Myelin: a reshape around a matrix product
        r"fused ",  # ONNX Runtime: activation fused into a Gemm or Conv
        r"PWN\(",  # TensorRT: pointwise fusion; the bracket is dropped with `_unbalanced`
        r"(?:copied_)?(?:un)?squeeze_(?:node_)?after_",  # TensorRT: 1-d convolutions
        r"__myl_",
        r"\{",
    )
)
_SUFFIXES = tuple(
    re.compile(p + r"\Z")
    for p in (
        r"_matrix_multiply",  # Myelin
        r"_reshape",
        r"_slice",
        r"_helper_\d+",  # what this project names further network layers of a node
        r"_clone_\d+",
        r" \[profile \d+\]",  # TensorRT, several optimisation profiles
        r"_myl\d+_\d+",  # TensorRT 10: place in the Myelin graph
        r"__my[el]\w*?\d+",
        r"[/_](?:kernel_time|fence_before|fence_after)",  # ONNX Runtime profile
        r"_token_\d+",  # ONNX Runtime: made unique
        r"/?(?:MatMulScaleFusion|MatMulAddFusion|MatMulTransposeFusion|\w+Fusion)/?",
        r"_firstCast",  # TensorRT: parts of a normalisation
        r"_U\d+_\w+",
        r" copy",  # TensorRT: concatenation by copy
        r"_copy_(?:in|out)put",
        r"_output_\d+",
        r"\}",
        r"\)",
        r"(?<=/)(\w+)_\d+",  # TensorRT's parser: the second layer of a node is X/Split_6
    )
)


def parts(name: str) -> tuple[str, ...]:
    """The names joined in a layer's name; bracketed ranges (ForeignNode) stay whole."""
    if _FOREIGN.search(name):
        return (name,)
    texts: list[str] = []
    for text in _JOIN.split(name):
        if text.startswith("PWN("):
            texts.extend(text.split(", "))
        else:
            texts.append(text)
    return tuple(p for p in texts if p)


def metadata_names(metadata: str) -> tuple[str, ...]:
    """The ONNX names in TensorRT's Metadata, each once, in the order written."""
    return tuple(dict.fromkeys(_METADATA.findall(metadata)))


def foreign_range(name: str) -> tuple[str, str] | None:
    """The two ends written in ``ForeignNode[a...b]``."""
    match = _FOREIGN.search(name)
    return (match[1], match[2]) if match else None


def is_region(name: str) -> bool:
    """Whether a layer's name is a ForeignNode's own, and not that of a reformat for one."""
    return foreign_range(name) is not None and reformat_of(name) is None


def unnamed_layer(part: str) -> tuple[int, str | None] | None:
    """(index, kind) of ``(Unnamed Layer* N) [Kind]``; Myelin writes ``_`` for ``*``."""
    match = _UNNAMED.search(part)
    return (int(match[1]), match[2]) if match else None


def reformat_of(name: str) -> tuple[str, int, str] | None:
    """("Input" or "Output", tensor number, layer) of a TensorRT reformatting layer."""
    match = _REFORMAT.match(name)
    return (match[1], int(match[2]), match[3]) if match else None


@cache
def base(part: str) -> str:
    """An engine's own word without its running numbers: ``fc__mye10995`` is ``fc``."""
    text = re.sub(r"^__myl_", "", part.strip("{} "))
    while True:
        short = re.sub(r"(?:__my[el]\w*?\d+|_myl\d+_\d+|_clone_\d+| \[profile \d+\])\Z", "", text)
        if short == text:
            return text
        text = short


_CASTS = ("InsertedPrecisionFreeCast_", "InsertedCast_")  # ONNX Runtime: the tensor follows
_MOVES = re.compile(
    r"(?:slice|reformat|cast|copy|copyNode|move|transpose|tran|reshape|concat|split|pad|shuffle"
    r"|Memcpy.*"
    r"|Reorder(?:In|Out)put.*|ONNXTRT_(?:castHelper|Broadcast|Shape\w*|\w*[sS]queeze\w*))"
    r"(?:_?\d+)?",
    re.IGNORECASE,
)
_MOVING_TOKENS = words("Cast Move Tran Resh Slic Conc Copy Repl Rfmt Reshape")
_MOVING_OPS = words(
    "cast copy reformat memcpyfromhost memcpytohost reorderinput reorderoutput slice shuffle "
    "transpose reshape move nop"
)


def is_movement(name: str, op: str | None = None) -> bool:
    """Whether a layer that is no node by name only moves data, by its name and operator."""
    if name.startswith(_CASTS) and op is None:
        return blocked_output(name) is None
    if reformat_of(name) is not None or (op is not None and op.lower() in _MOVING_OPS):
        return True
    spoken = [base(p) for p in parts(name)]
    return bool(spoken) and all(_moves(w) for w in spoken)


def _moves(word: str) -> bool:
    if _MOVES.fullmatch(word):
        return True
    # TensorRT 10 and newer: __myl_MoveReshTran_myl0_1, four letters for each operator
    tokens = re.findall(r"[A-Z][a-z]+", word)
    return bool(tokens) and "".join(tokens) == word and all(t in _MOVING_TOKENS for t in tokens)


class Speller:
    """Finds a graph's nodes by any spelling that tools give their names."""

    def __init__(self, graph: NodeGraph, network: Network | None = None) -> None:
        self._exact = graph.by_name
        self._network = _network_names(graph, network)
        self._sanitised: dict[str, list[str]] = {}
        for node in graph.nodes:
            self._sanitised.setdefault(sanitised(node.name), []).append(node.name)
        self._cache: dict[str, tuple[str, ...]] = {}

    def find(self, text: str) -> tuple[str, ...]:
        """The nodes that `text` may name, in graph order; more than one only if the spelling
        makes their names equal."""
        nodes = self._cache.get(text)
        if nodes is None:
            nodes = self._cache[text] = self._find(text)
        return nodes

    def _find(self, text: str) -> tuple[str, ...]:
        tried = {text}
        queue = [text]
        for candidate in queue:
            if candidate in self._network:
                return (self._network[candidate],)
            nodes = self._sanitised.get(sanitised(candidate), ())
            if candidate in self._exact and (len(nodes) == 1 or sanitised(candidate) != candidate):
                return (candidate,)  # else Myelin may have spelled another node's name so
            if nodes:
                return tuple(nodes)
            if len(queue) > 64:
                break
            for shorter in _shorter(candidate):
                if shorter and shorter not in tried:
                    tried.add(shorter)
                    queue.append(shorter)
        return ()


def _network_names(graph: NodeGraph, network: Network | None) -> dict[str, str]:
    """Network layer name, as written and as Myelin spells it -> node, where they differ.

    TensorRT's parser may give a node's second layer the name of another node (``Mul_2``); only
    the network knows.
    """
    names: dict[str, str] = {}
    for layer in network.layers.values() if network is not None else ():
        node = network_node(layer, graph)
        if node is not None and layer.name and unnamed_layer(layer.name) is None:
            for text in (layer.name, sanitised(layer.name)):
                names.setdefault(text, node)
    return names


def network_node(layer: NetworkLayer, graph: NodeGraph) -> str | None:
    """The node a network layer stands for: the one written there, else by its outputs."""
    if layer.node is not None and layer.node in graph.by_name:
        return layer.node
    writers = {graph.producer[t].name for t in layer.outputs if t in graph.producer}
    return writers.pop() if len(writers) == 1 else None


def _shorter(text: str) -> list[str]:
    shorter = []
    for pattern in _PREFIXES:
        match = pattern.match(text)
        if match:
            shorter.append(text[match.end() :])
    for pattern in _SUFFIXES:
        match = pattern.search(text)
        if match and not (match[0] == ")" and text.count("(") >= text.count(")")):
            kept = match.start() if match.lastindex is None else match.end(1)
            shorter.append(text[:kept])
    return shorter


def blocked_output(name: str) -> str | None:
    """The tensor that a layer in ONNX Runtime's blocked layout stands for: it names such a node
    after the output of the nodes that it replaces, ``TENSOR_nchwc``."""
    match = re.fullmatch(r"(.+)_nchwc(?:_token_\d+)?", name)
    return match[1] if match else None


def tensor_spellings(tensor: str) -> tuple[str, ...]:
    """What a tensor may be called in the model, the written name first."""
    return (tensor, *(tensor[len(p) :] for p in _CASTS if tensor.startswith(p)))
