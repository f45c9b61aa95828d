"""A tiny run of half precision that overflows where it is told to: in a norm, or in a mask.

Of what ONNX Runtime has no half kernels for on a CPU, it computes chains in float, which would hide
an overflow; it has some for Min and Max, so these stand where a tensor has to be half.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

WIDTH, TOKENS, WORDS = 8, 4, 16
LEAST = -3.4e38


def _weights(scale: float) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    return {
        "embed.weight": rng.normal(size=(WORDS, WIDTH)) * scale,
        "layer.norm.weight": rng.normal(size=WIDTH) * 0.1 + 1,
        "layer.attn.weight": rng.normal(size=(WIDTH, WIDTH)) / 4,
        "head.weight": rng.normal(size=(WIDTH, WORDS)),
        "epsilon": np.array(1e-6),
        "two": np.array(2.0),
        "least": np.array(LEAST),
        "zero": np.array(0.0),
        "nought": np.array(0.0),
    }


# name, operator, module, inputs, outputs
NODES = (
    ("embed/Gather", "Gather", "embed", ("embed.weight", "ids"), ("e",)),
    ("/Where", "Where", "", ("seen", "zero", "least"), ("mask0",)),
    ("/Cast", "Cast", "", ("mask0",), ("mask1",)),
    ("/Min", "Min", "", ("mask1", "nought"), ("mask",)),
    ("layer.norm/Cast", "Cast", "layer.norm", ("e",), ("e32",)),
    ("layer.norm/Pow", "Pow", "layer.norm", ("e32", "two"), ("square0",)),
    ("layer.norm/Cast_1", "Cast", "layer.norm", ("square0",), ("square1",)),
    ("layer.norm/Max", "Max", "layer.norm", ("square1", "nought"), ("square",)),
    ("layer.norm/ReduceMean", "ReduceMean", "layer.norm", ("square", "axes"), ("mean",)),
    ("layer.norm/Add", "Add", "layer.norm", ("mean", "epsilon"), ("above",)),
    ("layer.norm/Sqrt", "Sqrt", "layer.norm", ("above",), ("root",)),
    ("layer.norm/Div", "Div", "layer.norm", ("e", "root"), ("n0",)),
    ("layer.norm/Mul", "Mul", "layer.norm", ("n0", "layer.norm.weight"), ("n",)),
    ("layer.attn/MatMul", "MatMul", "layer.attn", ("n", "layer.attn.weight"), ("q",)),
    ("layer.attn/Transpose", "Transpose", "layer.attn", ("n",), ("k",)),
    ("layer.attn/MatMul_1", "MatMul", "layer.attn", ("q", "k"), ("scores",)),
    ("layer.attn/Add", "Add", "layer.attn", ("scores", "mask"), ("masked",)),
    ("layer.attn/Softmax", "Softmax", "layer.attn", ("masked",), ("p",)),
    ("layer.attn/MatMul_2", "MatMul", "layer.attn", ("p", "n"), ("a",)),
    ("layer/Add", "Add", "layer", ("a", "n"), ("r",)),
    ("head/MatMul", "MatMul", "head", ("r", "head.weight"), ("logits",)),
)
SHAPES = {
    "e": (1, TOKENS, WIDTH), "mask0": (1, TOKENS, TOKENS), "mask": (1, TOKENS, TOKENS),
    "mask1": (1, TOKENS, TOKENS), "square1": (1, TOKENS, WIDTH),
    "e32": (1, TOKENS, WIDTH), "square0": (1, TOKENS, WIDTH), "square": (1, TOKENS, WIDTH),
    "mean": (1, TOKENS, 1),
    "above": (1, TOKENS, 1), "root": (1, TOKENS, 1), "n0": (1, TOKENS, WIDTH),
    "n": (1, TOKENS, WIDTH), "q": (1, TOKENS, WIDTH), "k": (1, WIDTH, TOKENS),
    "scores": (1, TOKENS, TOKENS), "masked": (1, TOKENS, TOKENS), "p": (1, TOKENS, TOKENS),
    "a": (1, TOKENS, WIDTH), "r": (1, TOKENS, WIDTH), "logits": (1, TOKENS, WORDS),
}  # fmt: skip


def inputs(hidden_row: bool) -> dict[str, Any]:
    """Tokens, and what each may see; with `hidden_row` the first sees nothing at all."""
    seen = np.tril(np.ones((1, TOKENS, TOKENS), dtype=bool))
    if hidden_row:
        seen[0, 0] = False
    return {"ids": np.arange(TOKENS, dtype=np.int64)[None], "seen": seen}


def reference(scale: float, *, hidden_row: bool) -> Any:
    """The logits in float64, written out."""
    w, given = _weights(scale), inputs(hidden_row)
    e = w["embed.weight"][given["ids"]]
    n = e / np.sqrt((e**2).mean(-1, keepdims=True) + 1e-6) * w["layer.norm.weight"]
    scores = n @ w["layer.attn.weight"] @ n.transpose(0, 2, 1)
    masked = scores + np.where(given["seen"], 0, LEAST)
    p = np.exp(masked - masked.max(-1, keepdims=True))
    return (p / p.sum(-1, keepdims=True) @ n + n) @ w["head.weight"]


def write_run(path: Path, *, scale: float = 1.0, hidden_row: bool = False) -> Path:
    """fp32.onnx, fp16.onnx, nodes.json and inputs.npz; above a `scale` of 256 squares overflow."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    export = path / "export"
    export.mkdir(parents=True)
    for precision in ("fp32", "fp16"):
        half = precision == "fp16"
        kind, dtype = (TensorProto.FLOAT16, np.float16) if half else (TensorProto.FLOAT, np.float32)
        more: dict[str, dict[str, Any]] = {
            "Transpose": {"perm": [0, 2, 1]}, "Cast": {"to": kind}, "Softmax": {"axis": -1},
        }  # fmt: skip
        # Squares and mask are made in float and rounded.
        floats = {"least", "zero", "two"}
        in_float = {"e32", "square0", "mask0"}
        with np.errstate(over="ignore"):
            constants = {
                k: v.astype(np.float32 if k in floats else dtype)
                for k, v in _weights(scale).items()
            }
        graph = helper.make_graph(
            [
                helper.make_node(
                    op,
                    list(i),
                    list(o),
                    name=name,
                    **({"to": TensorProto.FLOAT} if o == ("e32",) else more.get(op, {})),
                )
                for name, op, _module, i, o in NODES
            ],
            "planted",
            [
                helper.make_tensor_value_info("ids", TensorProto.INT64, [1, TOKENS]),
                helper.make_tensor_value_info("seen", TensorProto.BOOL, [1, TOKENS, TOKENS]),
            ],
            [helper.make_tensor_value_info("logits", kind, [1, TOKENS, WORDS])],
            [
                *(numpy_helper.from_array(v, k) for k, v in constants.items()),
                numpy_helper.from_array(np.array([-1]), "axes"),
            ],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
        onnx.checker.check_model(model, full_check=True)
        onnx.save(model, str(export / f"{precision}.onnx"))
        tensors = {k: {"dtype": v.dtype.name, "shape": list(v.shape)} for k, v in constants.items()}
        tensors |= {"ids": {"dtype": "int64", "shape": [1, TOKENS]}}
        tensors |= {"seen": {"dtype": "bool", "shape": [1, TOKENS, TOKENS]}}
        tensors |= {"axes": {"dtype": "int64", "shape": [1]}}
        tensors |= {
            t: {"dtype": "float32" if t in in_float else np.dtype(dtype).name, "shape": list(s)}
            for t, s in SHAPES.items()
        }
        document = {
            "schema_version": 1,
            "inputs": ["ids", "seen"],
            "outputs": ["logits"],
            "initializers": [*constants, "axes"],
            "tensors": tensors,
            "nodes": [
                {"name": n, "op": op, "module": m, "inputs": list(i), "outputs": list(o)}
                for n, op, m, i, o in NODES
            ],
        }
        (export / f"{precision}.nodes.json").write_text(json.dumps(document))
        if not half:
            (export / "nodes.json").write_text(json.dumps(document))
    np.savez(export / "inputs.npz", **inputs(hidden_row))
    return path
