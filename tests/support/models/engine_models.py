"""A tiny exported model for the tests of engines: embedding, two linears, norm, softmax, head."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

VOCABULARY, WIDTH, TOKENS = 32, 16, 6

# name, operator, module, inputs, outputs
NODES = (
    ("emb/Gather", "Gather", "emb", ("emb.weight", "ids"), ("e",)),
    ("ln/LayerNormalization", "LayerNormalization", "ln", ("e", "ln.weight", "ln.bias"), ("n",)),
    ("fc/MatMul", "MatMul", "fc", ("n", "fc.weight"), ("f0",)),
    ("fc/Add", "Add", "fc", ("f0", "fc.bias"), ("f",)),
    ("act/Relu", "Relu", "act", ("f",), ("a",)),
    ("attn/Softmax", "Softmax", "attn", ("a",), ("s",)),
    ("/Add", "Add", "", ("s", "e"), ("r",)),
    ("head/MatMul", "MatMul", "head", ("r", "head.weight"), ("logits",)),
)


def weights(dtype: Any) -> dict[str, Any]:
    """The constants, from a fixed seed."""
    rng = np.random.default_rng(0)
    shapes = {
        "emb.weight": (VOCABULARY, WIDTH),
        "ln.weight": (WIDTH,),
        "ln.bias": (WIDTH,),
        "fc.weight": (WIDTH, WIDTH),
        "fc.bias": (WIDTH,),
        "head.weight": (WIDTH, VOCABULARY),
    }
    return {name: rng.normal(size=shape).astype(dtype) for name, shape in shapes.items()}


def reference(w: dict[str, Any], ids: Any) -> Any:
    """The model in float64, written out: what every engine should come near to."""
    e = w["emb.weight"].astype(np.float64)[ids]
    centred = e - e.mean(-1, keepdims=True)
    n = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    n = n * w["ln.weight"] + w["ln.bias"]
    a = np.maximum(n @ w["fc.weight"] + w["fc.bias"], 0)
    s = np.exp(a - a.max(-1, keepdims=True))
    return (s / s.sum(-1, keepdims=True) + e) @ w["head.weight"]


def write_run(path: Path, precisions: tuple[str, ...] = ("fp32", "fp16")) -> Path:
    """A run directory as the export stage leaves it."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    export = path / "export"
    export.mkdir(parents=True)
    for precision in precisions:
        half = precision == "fp16"
        constants = weights(np.float16 if half else np.float32)
        kind = TensorProto.FLOAT16 if half else TensorProto.FLOAT
        graph = helper.make_graph(
            [
                helper.make_node(op, list(i), list(o), name=name)
                for name, op, _module, i, o in NODES
            ],
            "tiny",
            [helper.make_tensor_value_info("ids", TensorProto.INT64, [1, TOKENS])],
            [helper.make_tensor_value_info("logits", kind, [1, TOKENS, VOCABULARY])],
            [numpy_helper.from_array(v, k) for k, v in constants.items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
        onnx.checker.check_model(model)
        onnx.save(model, str(export / f"{precision}.onnx"))
    document = {
        "schema_version": 1,
        "inputs": ["ids"],
        "outputs": ["logits"],
        "initializers": list(weights(np.float32)),
        "nodes": [
            {"name": n, "op": op, "module": m, "inputs": list(i), "outputs": list(o)}
            for n, op, m, i, o in NODES
        ],
    }
    (export / "nodes.json").write_text(json.dumps(document))
    np.savez(export / "inputs.npz", ids=np.arange(TOKENS, dtype=np.int64)[None])
    return path
