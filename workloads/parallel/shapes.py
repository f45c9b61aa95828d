"""Sizes of the models that several ranks train."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Shape:
    layers: int
    hidden: int
    heads: int
    sequence: int
    vocabulary: int


GPT = {
    "tiny": Shape(4, 64, 4, 64, 512),
    "345m": Shape(24, 1024, 16, 1024, 50304),  # GPT-2's vocabulary, rounded up to 128
}
GPT_MODEL = "345m"

# Of meta-llama/Llama-2-*; tiny has the same parts.
LLAMA: dict[str, dict[str, int]] = {
    "tiny": {
        "hidden_size": 64, "intermediate_size": 176, "num_hidden_layers": 4,
        "num_attention_heads": 4, "num_key_value_heads": 2,
        "vocab_size": 512, "max_position_embeddings": 64,
    },
    "7b": {
        "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 32,
        "vocab_size": 32000, "max_position_embeddings": 4096,
    },
    "13b": {
        "hidden_size": 5120, "intermediate_size": 13824, "num_hidden_layers": 40,
        "num_attention_heads": 40, "num_key_value_heads": 40,
        "vocab_size": 32000, "max_position_embeddings": 4096,
    },
    "70b": {
        "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80,
        "num_attention_heads": 64, "num_key_value_heads": 8,
        "vocab_size": 32000, "max_position_embeddings": 4096,
    },
}  # fmt: skip
LLAMA_MODEL = "7b"
TINY = "tiny"  # where there is no GPU
