"""Code of a library's model that decides by values, or does otherwise while it is traced."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from torch import nn  # noqa: E402

from layerline.core.errors import InputError  # noqa: E402
from layerline.export import models, nested, onnx_export, parity  # noqa: E402
from layerline.export.tracing import Decisions  # noqa: E402


class Net(nn.Module):
    """Like a model of transformers, which the user cannot change."""

    def __init__(self) -> None:
        super().__init__()
        self.config = SimpleNamespace(_attn_implementation="sdpa")
        self.up, self.down = nn.Linear(3, 4), nn.Linear(4, 3)


class ByValue(Net):
    def forward(self, x: Any) -> Any:
        y = self.up(x)
        if (x > 0).any():
            y = self.down(y)
        return y


class ByItem(Net):
    def forward(self, x: Any) -> Any:
        y = self.up(x)
        return y * 2 if x.flatten()[0].item() > 0 or 7.0 in x else self.down(y)


class Traced(Net):
    """Has a mask while nobody traces it only (Switch Transformers)."""

    def forward(self, x: Any, mask: Any = None) -> Any:
        if mask is None and not torch.compiler.is_compiling():
            mask = torch.ones(x.shape[0])
        return self.down(self.up(x)) * mask[:, None]


class CastsItself(Net):
    def forward(self, x: Any) -> Any:
        if (x > 0).any():
            self.up = self.up.to(x.dtype)
        return self.up(x)


def exported(model: nn.Module, x: Any, **more: Any) -> onnx_export.Exported:
    return onnx_export.export(
        model.eval(), {"x": x}, ["output"], name="net", opset=18, **more
    )  # fmt: skip


@pytest.mark.parametrize("kind", [ByValue, ByItem, Traced, CastsItself])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_librarys_code_is_exported_as_its_example_inputs_decide(
    tmp_path: Path, kind: type[Net], sign: int
) -> None:
    torch.manual_seed(0)
    model, x = kind(), np.full((2, 3), sign, dtype=np.float32)
    expected = model(torch.from_numpy(x)).detach().numpy()
    made = exported(model, x)
    onnx_export.save(made, tmp_path / "net.onnx")
    got = parity.run_file(tmp_path / "net.onnx", nested.named({"x": x}))
    np.testing.assert_allclose(got["output"], expected, rtol=1e-5)


def test_a_strided_view_of_a_transposed_tensor_is_exported_right(tmp_path: Path) -> None:
    """Kind: torch's exporter reads the strides as of a contiguous tensor (Longformer's windows)."""

    class Windows(nn.Module):
        def forward(self, x: Any) -> Any:
            return x.transpose(0, 1).as_strided((3, 2, 2), (1, 3, 3)) * 2

    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    onnx_export.save(exported(Windows(), x), tmp_path / "net.onnx")
    got = parity.run_file(tmp_path / "net.onnx", nested.named({"x": x}))
    # windows of two rows of x, one row apart, of each column
    expected = [[[2 * x[i + j, c] for j in range(2)] for i in range(2)] for c in range(3)]
    np.testing.assert_array_equal(got["output"], expected)


def test_a_strided_view_with_an_offset_by_the_function_is_exported_right(tmp_path: Path) -> None:
    class Window(nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.as_strided(x.transpose(0, 1), (3, 2), (1, 3), 3) + 0

    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    onnx_export.save(exported(Window(), x), tmp_path / "net.onnx")
    got = parity.run_file(tmp_path / "net.onnx", nested.named({"x": x}))
    # rows 1 and 2 of x, column by column
    np.testing.assert_array_equal(got["output"], [[3, 6], [4, 7], [5, 8]])


def test_it_is_said_where_the_code_decided(capsys: pytest.CaptureFixture[str]) -> None:
    line = ByValue.forward.__code__.co_firstlineno + 2
    exported(ByValue(), np.ones((2, 3), dtype=np.float32))
    assert f"example inputs decide what its code does by values (test_tracing.py:{line})" in (
        capsys.readouterr().err
    )


def test_the_users_own_code_is_refused_with_its_line(capfd: pytest.CaptureFixture[str]) -> None:
    """Kind: torch prints the graph up to the error, page by page."""
    model = ByValue()
    del model.config
    line = ByValue.forward.__code__.co_firstlineno + 2
    with pytest.raises(InputError, match=rf"at test_tracing.py:{line}\)") as caught:
        exported(model, np.ones((2, 3), dtype=np.float32))
    assert "change that in the module" in (caught.value.fix or "")
    assert "def forward" not in capfd.readouterr().err


def test_with_an_open_axis_a_decision_by_value_is_refused() -> None:
    """What one size decides is not what another does."""
    with pytest.raises(InputError, match="data-dependent"):
        exported(ByValue(), np.ones((2, 3), dtype=np.float32), open_axes={"x": {0: "batch"}})


def test_what_is_replaced_for_decisions_is_put_back() -> None:
    before = (torch.Tensor.item, torch.Tensor.__bool__, torch.compiler.is_compiling, nn.Module.to)
    x = torch.ones(2, 3)
    with Decisions.of(ByValue(), {"x": x}).replayed():
        assert bool(torch.zeros(1)) is False  # another place than was asked
    after = (torch.Tensor.item, torch.Tensor.__bool__, torch.compiler.is_compiling, nn.Module.to)
    assert after == before


def test_computed_buffers_get_the_type_that_their_class_gives_them() -> None:
    """Kind: a causal mask in fp32 in a model in fp16, which does not run then (OpenAI GPT); rotary
    frequencies, which the class makes in fp32 itself, stay."""
    from transformers import PretrainedConfig, PreTrainedModel

    class Masked(PreTrainedModel):
        config_class = PretrainedConfig

        def __init__(self, config: Any) -> None:
            super().__init__(config)
            self.linear = nn.Linear(2, 2)
            self.register_buffer("mask", torch.ones(2, 2).tril(), persistent=False)
            rotary = torch.ones(2, dtype=torch.float32)
            self.register_buffer("frequencies", rotary, persistent=False)
            self.post_init()

        def _init_weights(self, module: Any) -> None:
            pass

    model = models.cast(Masked(PretrainedConfig()), "fp16")
    types = {name: buffer.dtype for name, buffer in model.named_buffers()}
    assert types == {"mask": torch.float16, "frequencies": torch.float32}
    assert torch.equal(model.mask, torch.tensor([[1, 0], [1, 1]], dtype=torch.float16))
