"""Engine layer names to ONNX nodes to modules, by six rules; see `resolver`."""

from .model import (
    RULES,
    Kernel,
    Network,
    NetworkLayer,
    NodeStatus,
    RawLayer,
    Resolution,
    load_network,
    parse_network,
)
from .resolver import resolve
from .status import node_status

__all__ = [
    "RULES",
    "Kernel",
    "Network",
    "NetworkLayer",
    "NodeStatus",
    "RawLayer",
    "Resolution",
    "load_network",
    "node_status",
    "parse_network",
    "resolve",
]
