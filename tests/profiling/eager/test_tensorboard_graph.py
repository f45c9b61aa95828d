"""PyTorch's own graph for TensorBoard, of a decoder, an encoder and a Llama."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers

from layerline.core.errors import ToolMissing
from layerline.profile.eager import tensorboard_graph

SMALL = {"num_hidden_layers": 1, "hidden_size": 16, "num_attention_heads": 2, "vocab_size": 32}
MODELS = {
    "GPT2LMHeadModel": transformers.GPT2Config(
        n_layer=1, n_embd=16, n_head=2, vocab_size=32, bos_token_id=1, eos_token_id=1
    ),
    "BertForMaskedLM": transformers.BertConfig(intermediate_size=32, **SMALL),
    "LlamaForCausalLM": transformers.LlamaConfig(intermediate_size=32, **SMALL),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_model_is_traced_with_its_modules(name: str, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
    from tensorboard.compat.proto.graph_pb2 import GraphDef

    config = MODELS[name]
    config.use_cache = False
    model = getattr(transformers, name)._from_config(config).eval()
    tensorboard_graph.write(model, {"input_ids": torch.ones(1, 4, dtype=torch.long)}, tmp_path)
    (path,) = tmp_path.iterdir()
    graphs = [e.graph_def for e in EventFileLoader(str(path)).Load() if e.HasField("graph_def")]
    names = {n.name for n in GraphDef.FromString(graphs[0]).node}
    leaves = [n for n, m in model.named_modules() if isinstance(m, torch.nn.Linear)]
    assert any(n.startswith(f"{name}/") for n in names)
    for leaf in leaves:
        assert any(f"[{leaf.rpartition('.')[2]}]/" in n for n in names), leaf
    assert not model._forward_hooks


def test_without_tensorboard_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch.utils.tensorboard", None)
    with pytest.raises(ToolMissing, match="tensorboard"):
        tensorboard_graph.write(torch.nn.Linear(1, 1), {"x": torch.ones(1, 1)}, tmp_path)
