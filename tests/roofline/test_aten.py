"""The least work of torch's operators, against counts by hand."""

from __future__ import annotations

import warnings

import inductor_models
import pytest
from torch import nn

from layerline.analysis.model.layer import Floor
from layerline.analysis.roofline.aten import in_words_of_onnx
from layerline.analysis.roofline.floor import floor, shapes_of
from layerline.core import nodes
from layerline.engines import inductor_build
from layerline.export.naming import ModuleTree

T, D, H = inductor_models.TOKENS, 64, 256  # tokens, width, width of the MLP


def least(model: nn.Module, names: list[str]) -> Floor | None:
    """The floor of nodes of a model, as torch captures it."""
    model = model.eval().requires_grad_(False)
    flat = inductor_build.Flat(model, inductor_models.tokens(), lambda _: None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = inductor_build.captured("model", flat, inductor_models.tokens(), None)
    written = inductor_build.graph(program, ModuleTree.of(model), "model")
    graph = in_words_of_onnx(nodes.parse(written, "nodes.json"))
    return floor(names, graph, shapes_of(written))


@pytest.mark.parametrize(
    ("names", "flop", "bytes_"),
    [
        # Product and bias; both matrices, the bias, the output.
        (
            ["transformer.h.0.mlp.c_fc/addmm"],
            2 * T * D * H + T * H,
            4 * (T * D + D * H + H + T * H),
        ),
        # The bias is none here: GPT-2's head has no bias.
        (["lm_head/linear"], 2 * T * D * 512, 4 * (T * D + D * 512 + T * 512)),
        # Residual add and norm together: the sum is read again later, so it is written.
        (
            ["transformer.h.1/add", "transformer.h.1.ln_2/layer_norm"],
            T * D + 8 * T * D,
            4 * (2 * T * D + 2 * D + 2 * T * D),
        ),
    ],
)
def test_the_least_work_of_a_layer(names: list[str], flop: int, bytes_: int) -> None:
    found = least(inductor_models.gpt2(), names)
    assert found is not None
    assert (found.flop, found.bytes) == (flop, bytes_)


def test_an_operator_that_is_not_known_leaves_the_work_unknown() -> None:
    found = least(inductor_models.gpt2(), ["transformer/diff"])
    assert found is not None and found.flop is None
