"""Small models, and what inductor makes of them: compiled to code, which is not built."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from torch import nn

from layerline.core import nodes
from layerline.core.files import read_json
from layerline.core.resolve import Resolution
from layerline.engines import inductor_build, inductor_provenance
from layerline.engines.layers import EngineLayer
from layerline.export.models import cast
from layerline.export.naming import ModuleTree

TOKENS = 32
VOCABULARY = 512


@dataclass(frozen=True)
class Compiled:
    """A model compiled: its layers, what each is, the captured graph, the code, and by the name
    that a parameter has in the code the modules that have it."""

    layers: list[EngineLayer]
    resolutions: list[Resolution]
    graph: nodes.NodeGraph
    code: str
    parameters: dict[str, set[str]]

    def modules(self) -> list[tuple[str, set[str]]]:
        """Of each layer the name without its place, and its modules."""
        return [(r.name.rpartition(":")[0], set(r.modules)) for r in self.resolutions]

    def calls(self) -> list[tuple[str, str]]:
        """Of each layer its name, and the text of its call in the code."""
        parts = re.split(r"// \[Provenance debug handles\] (\S+)\n", self.code)[1:]
        return list(zip(parts[::2], map(_call, parts[::2], parts[1::2]), strict=True))


def _call(layer: str, text: str) -> str:
    name = layer.rpartition(":")[0]
    lines = [x for x in text.splitlines() if f"{name}(" in x and "RAII" not in x]
    assert lines, f"no call of {name} below its comment"
    return lines[0]


def compiled(
    model: nn.Module,
    given: dict[str, Any],
    folder: Path,
    precision: str = "fp32",
    mode: str = "default",
    profiled: bool = False,
) -> Compiled:
    """Capture and compile, without a C++ compiler."""
    model = cast(model.eval().requires_grad_(False), precision)
    tree = ModuleTree.of(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        flat = inductor_build.Flat(model, given, lambda names: None)
        program = inductor_build.captured("model", flat, given, None)
        written = inductor_build.graph(program, tree, "model")
        with torch._inductor.config.patch({"aot_inductor.package_cpp_only": True}):
            code = inductor_build.packaged(
                program, folder / "m.pt2", folder / "trace", mode, profiled
            )
    text = code.read_text()
    graph = inductor_provenance.Graph(
        nodes.parse(written, "nodes.json"), written["torch_names"], written["given"]
    )
    mappings = read_json(code.with_name(inductor_build.MAPPINGS))
    kernels = inductor_build.PLACE.findall(text)
    layers, resolutions = inductor_provenance.listed(mappings, graph, kernels)
    parameters: dict[str, set[str]] = {}
    owners: dict[int, set[str]] = {}
    for path, parameter in model.named_parameters(remove_duplicate=False):
        owners.setdefault(id(parameter), set()).add(path.rpartition(".")[0])
    for path, parameter in model.named_parameters(remove_duplicate=False):
        parameters["model_" + path.replace(".", "_")] = owners[id(parameter)]
    return Compiled(layers, resolutions, graph.nodes, text, parameters)


def tokens() -> dict[str, Any]:
    """Input ids."""
    generator = torch.Generator().manual_seed(0)
    return {"input_ids": torch.randint(0, VOCABULARY, (1, TOKENS), generator=generator)}


def gpt2() -> nn.Module:
    """GPT-2 of two layers."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(
        n_layer=2, n_embd=64, n_head=4, vocab_size=VOCABULARY, n_positions=64, use_cache=False
    )
    return GPT2LMHeadModel(config)


def bert() -> nn.Module:
    """BERT of two layers."""
    from transformers import BertConfig, BertForMaskedLM

    torch.manual_seed(0)
    return BertForMaskedLM(
        BertConfig(
            num_hidden_layers=2,
            hidden_size=64,
            num_attention_heads=4,
            intermediate_size=128,
            vocab_size=VOCABULARY,
        )
    )


def _gated(kind: str, **more: Any) -> nn.Module:
    import transformers

    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(
        num_hidden_layers=2,
        hidden_size=64,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=128,
        vocab_size=VOCABULARY,
        use_cache=False,
        **more,
    )
    model: nn.Module = getattr(transformers, f"{kind}ForCausalLM")(config)
    return model


def llama() -> nn.Module:
    """Llama of two layers."""
    return _gated("Llama")


def qwen3() -> nn.Module:
    """Qwen3 of two layers."""
    return _gated("Qwen3", head_dim=16)


class Loop(nn.Module):
    """A list of modules that a loop runs, its slice first."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(16, 16) for _ in range(3)])
        self.norm = nn.LayerNorm(16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers[1:]:
            x = F.gelu(layer(x))
        return self.norm(self.layers[0](x))


class Shared(nn.Module):
    """One weight in two modules, and one module under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(16, 16), nn.Linear(16, 16)
        self.b.weight = self.a.weight
        self.again = self.a
        self.act = nn.GELU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.act(self.a(x))) + self.again(x)


class Twice(nn.Module):
    """Modules that are called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.act, self.out = nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.act(self.fc(self.act(self.fc(x)))))


class Breaks(nn.Module):
    """A call that torch.compile leaves to Python."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.fc(x)
        print("between")  # noqa: T201 (the break)
        return y.relu()


class Branches(nn.Module):
    """A branch by a value, which no graph can hold."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.fc(x)
        if y.sum() > 0:
            y = y + 1
        return y


class Counts(nn.Module):
    """A number of Python that changes with every call."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.calls = nn.Linear(16, 16), 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.fc(x) * self.calls


class Image(nn.Module):
    """A convolution, whose input and weight inductor lays out anew, and few classes, whose bias is
    a constant in the code."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn, self.act = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()
        self.fc = nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.act(self.bn(self.conv(x))).mean((2, 3)))


class Rms(nn.Module):
    """A norm that computes in fp32, below a mask of whole numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.weight = nn.Linear(16, 16), nn.Parameter(torch.ones(16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        at = torch.arange(16)
        y = self.fc(x).masked_fill(at > at.flip(0), 0).float()
        return (y * y.square().mean(-1, keepdim=True).rsqrt()).to(x.dtype) * self.weight


class Recurrent(nn.Module):
    """An LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lstm(x)[0]


def image() -> dict[str, Any]:
    """The input of `Image`."""
    return {"x": torch.linspace(-1, 1, 384).reshape(2, 3, 8, 8)}


def row() -> dict[str, Any]:
    """The input of the small modules here."""
    return {"x": torch.linspace(-1, 1, 64).reshape(4, 16)}
