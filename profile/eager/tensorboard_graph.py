"""The graph of a model for TensorBoard, as PyTorch itself traces it (`SummaryWriter.add_graph`).

Names there are PyTorch's (``GPT2LMHeadModel/GPT2Model[transformer]/GPT2Block[0]``): each class
with the module's own name, and containers such as ``ModuleList`` around parameters only.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from ...core.errors import ToolMissing
from ...export.quiet import quiet


def write(model: torch.nn.Module, inputs: Mapping[str, torch.Tensor], folder: Path) -> None:
    """Trace one forward of `model` and write it to a file of events in `folder`.

    ToolMissing without TensorBoard. A trace takes tensors in their order and gives tuples, so what
    `inputs` names must be the first parameters of the model's forward.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as e:
        raise ToolMissing(
            f"a graph for TensorBoard needs tensorboard ({e})",
            fix="pip install 'layerline[tensorboard]'",
        ) from None
    hook = model.register_forward_hook(_as_tuple)
    try:
        with quiet(), warnings.catch_warnings():
            warnings.simplefilter("ignore", torch.jit.TracerWarning)
            warnings.simplefilter("ignore", DeprecationWarning)  # torch.jit.trace itself
            warnings.simplefilter("ignore", FutureWarning)  # of the properties that it looks at
            with SummaryWriter(str(folder)) as writer:
                writer.add_graph(model, tuple(inputs.values()), use_strict_trace=False)
    finally:
        hook.remove()


def _as_tuple(_module: Any, _args: Any, output: Any) -> Any:
    """Outputs of transformers as a tuple: a trace knows no other containers."""
    return output.to_tuple() if hasattr(output, "to_tuple") else output
