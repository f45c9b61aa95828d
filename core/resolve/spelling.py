"""Rule 1, `name`: what tools make of a node's name, and the way back.

Where a spelling was seen is noted beside it. A decoration is taken off only where the name with
it is no node's, one at a time, so a node that really ends in ``_reshape`` keeps its name.
"""

from __future__ import annotations

import re
from functools import cache, cached_property

from ..nodes import Node, NodeGraph, sanitised
from .model import Network, NetworkLayer
from .operator_kinds import CONVOLUTION, words

# TensorRT layers join by " + " and " || ", Myelin by "+", metadata by U+001E and U+001F. Where
# Myelin takes a layer that TensorRT had joined, its " + " has become " _ ".
_JOIN = re.compile(r"\s*(?:\|\||\+|\x1e|\x1f)\s*| _ ")
_METADATA = re.compile(r"\[ONNX Layer: (.*?)\](?=$|[\x1e\x1f\s,;\[])")
_ENQUEUE = re.compile(r"ExecutionContext::(enqueue|execute)")
_FOREIGN = re.compile(r"ForeignNode\[(.+?)\.\.\.(.+)\]")
_DLA = re.compile(r"\{([^{}]+)\}")
_TO_DLA = re.compile(r".+ (?:(?:to|from) nvm|copy finish|finish)")
_UNNAMED = re.compile(r"\(Unnamed Layer[*_] (\d+)\)(?: \[([^\]]*)\])?")
_REFORMAT = re.compile(r"Reformatting CopyNode for (Input|Output) Tensor (\d+) to (.+)", re.DOTALL)

_PREFIXES = tuple(
    re.compile(p)
    for p in (
        r"shuffle_(?:input|output)(?:_\d+)?_",  # Myelin: a reshape around a matrix product
        r"fused ",  # ONNX Runtime: activation fused into a Gemm or Conv
        r"PWN\(",  # TensorRT: pointwise fusion; its closing bracket is a suffix
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
        r"_quant",  # ONNX Runtime's quantiser: the node with operands of 8 bits
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
    if dla := _DLA.fullmatch(name):  # a region that a DLA runs lists its layers
        return tuple(p for p in dla[1].split(",") if p)
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


def is_enqueue(name: str) -> bool:
    """Whether it is TensorRT's own range around an inference, and no layer's."""
    return _ENQUEUE.match(name) is not None


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
# ONNX Runtime's quantiser: the tensor stands before.
_QUANTISES = re.compile(r"(.+)_(?:Q|Deq)uantizeLinear(?:_Output)?(?:_token_\d+)?", re.DOTALL)
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
    "transpose reshape squeeze unsqueeze move nop quantizelinear dequantizelinear"
)


def is_movement(name: str, op: str | None = None) -> bool:
    """Whether a layer that is no node by name only moves data, by its name and operator."""
    if name.startswith(_CASTS) and op is None:
        return blocked_output(name) is None
    if _QUANTISES.fullmatch(name) and "+" not in name:
        return True
    if (
        reformat_of(name) is not None
        or _TO_DLA.fullmatch(name)
        or (op is not None and op.lower() in _MOVING_OPS)
    ):
        return True
    spoken = [base(p) for p in parts(name)]
    return bool(spoken) and all(_moves(w) for w in spoken)


def _moves(word: str) -> bool:
    if _MOVES.fullmatch(word):
        return True
    # TensorRT 10 and newer: __myl_MoveReshTran_myl0_1, four letters for each operator
    tokens = re.findall(r"[A-Z][a-z]+", word)
    return bool(tokens) and "".join(tokens) == word and all(t in _MOVING_TOKENS for t in tokens)


# Activations that ONNX Runtime applies in a convolution in its blocked layout.
_APPLIED = words("Relu LeakyRelu Clip Sigmoid Tanh HardSigmoid")


class Speller:
    """Finds a graph's nodes by any spelling that tools give their names."""

    def __init__(self, graph: NodeGraph, network: Network | None = None) -> None:
        self._graph = graph
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
            if made := self._blocked(candidate) or self._numbered(candidate):
                return made
            if len(queue) > 64:
                break
            for shorter in _shorter(candidate):
                if shorter and shorter not in tried:
                    tried.add(shorter)
                    queue.append(shorter)
        return ()

    def _blocked(self, text: str) -> tuple[str, ...]:
        """The node that ONNX Runtime replaced by one in its blocked layout: it names that after
        the tensor it writes, behind the activation that it applies."""
        tensor = blocked_output(text)
        node = self._graph.producer.get(tensor) if tensor is not None else None
        while node is not None and node.op in _APPLIED:
            inner = [self._graph.producer[t] for t in node.inputs if t in self._graph.producer]
            if len(inner) != 1 or inner[0].op not in CONVOLUTION:
                break
            node = inner[0]
        return () if node is None else (node.name,)

    def _numbered(self, text: str) -> tuple[str, ...]:
        """The node without a name that ONNX Runtime calls ``MatMul_4``: operator and place in the
        file, constants left out (``Node::Index``; ``node_of_OUTPUT`` is what nodes.json calls it).
        Nodes of branches are numbered by themselves: then the place is not known."""
        match = re.fullmatch(r"([A-Z]\w*?)_(\d{1,9})", text)
        if match is None or int(match[2]) >= len(self._places):
            return ()
        node = self._places[int(match[2])]
        unnamed = node.op == match[1] and node.name.startswith("node_of_")
        return (node.name,) if unnamed else ()

    @cached_property
    def _places(self) -> list[Node]:
        if any(n.op in ("If", "Loop", "Scan") for n in self._graph.nodes):
            return []
        return [n for n in self._graph.nodes if n.op != "Constant"]


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


def moved_tensor(name: str) -> str | None:
    """The tensor that a layer casts or quantises, where its name says so."""
    return next(iter(tensor_spellings(name)[1:]), None)


def tensor_spellings(tensor: str) -> tuple[str, ...]:
    """What a tensor may be called in the model, the written name first."""
    quantised = _QUANTISES.fullmatch(tensor)
    made = (quantised[1],) if quantised else ()
    return (tensor, *made, *(tensor[len(p) :] for p in _CASTS if tensor.startswith(p)))
