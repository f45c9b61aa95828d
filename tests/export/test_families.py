"""Families of transformers models: which inputs they are given, what they refuse in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from family_configs import CONFIGS, TOKENS

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from layerline.core.errors import InputError  # noqa: E402
from layerline.core.files import write_json  # noqa: E402
from layerline.export import nested, onnx_export  # noqa: E402
from layerline.export.models import ModelSpec, load_spec, tensors  # noqa: E402
from layerline.export.source import Request, resolve  # noqa: E402


def spec_of(folder: Path, family: str, **more: Any) -> ModelSpec:
    (folder / "config.json").write_text(json.dumps(CONFIGS[family]))
    return resolve(Request(**{"model": str(folder), "seq": 16, **more}))


def shapes(inputs: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    return {k: v.shape for k, v in nested.named(inputs).items()}


@pytest.mark.parametrize(
    ("family", "more", "expected"),
    [
        ("t5", {}, {"input_ids": (1, 16), "decoder_input_ids": (1, 16)}),
        ("t5", {"part": "encoder"}, {"input_ids": (1, 16)}),
        ("t5", {"part": "decoder"},
         {"decoder_input_ids": (1, 16), "encoder_outputs.0": (1, 16, 32)}),
        ("whisper", {}, {"input_features": (1, 8, 40), "decoder_input_ids": (1, 16)}),
        ("whisper", {"part": "decoder"},
         {"decoder_input_ids": (1, 16), "encoder_outputs.0": (1, 20, 32)}),
        ("vit", {"seq": 128, "batch": 2}, {"pixel_values": (2, 3, 32, 32)}),
        ("clip", {}, {"input_ids": (1, 16), "pixel_values": (1, 3, 32, 32)}),
        # Dumoulin, Visin: a convolution gives (n - kernel) / stride + 1: 165 -> 32 -> 15
        ("wav2vec2", {"seq": 15}, {"input_values": (1, (2 * 14 + 3 - 1) * 5 + 10)}),
        ("speech_to_text", {}, {"input_features": (1, 16, 8), "decoder_input_ids": (1, 16)}),
        ("wav2vec2-bert", {}, {"input_features": (1, 16, 16)}),
        ("parakeet_ctc", {}, {"input_features": (1, 16, 16)}),
        ("bert", {"padded": True, "batch": 3},
         {"input_ids": (3, 16), "attention_mask": (3, 16)}),
    ],
)  # fmt: skip
def test_each_family_is_given_its_own_inputs_and_runs_on_them(
    tmp_path: Path, family: str, more: dict[str, Any], expected: dict[str, tuple[int, ...]]
) -> None:
    spec = spec_of(tmp_path, family, **more)
    inputs = spec.inputs()
    assert shapes(inputs) == expected
    outputs = onnx_export.eager_outputs(spec.build(), inputs)
    assert all(np.isfinite(v).all() for v in outputs.values())
    again = spec.inputs()
    for name, value in nested.named(inputs).items():
        np.testing.assert_array_equal(value, nested.named(again)[name])


def test_sound_becomes_as_many_frames_as_were_asked_for(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, "wav2vec2", seq=15)
    logits = onnx_export.eager_outputs(spec.build(), spec.inputs())["logits"]
    assert logits.shape == (1, 15, 20)


def test_a_padded_batch_has_a_whole_sequence_and_shorter_ones(tmp_path: Path) -> None:
    mask = spec_of(tmp_path, "bert", padded=True, batch=8).inputs()["attention_mask"]
    assert mask.dtype == np.int64 and mask[0].all()
    lengths = mask.sum(1)
    assert (lengths >= 8).all() and (lengths < 16).any()
    assert (np.sort(mask, axis=1)[:, ::-1] == mask).all()  # padded behind


def test_both_halves_of_an_encoder_decoder_are_in_the_graph(tmp_path: Path) -> None:
    """Kind: a part of a model that is left out is never the model without a word."""
    spec = spec_of(tmp_path, "t5")
    made = exported(spec)
    modules = {n["module"].split(".")[0] for n in made.nodes["nodes"]}
    assert {"encoder", "decoder", "lm_head"} <= modules


def exported(spec: ModelSpec, precision: str = "fp32") -> onnx_export.Exported:
    eager = onnx_export.eager_outputs(spec.build(), spec.inputs())
    return onnx_export.export(
        spec.build(precision), spec.inputs(), list(eager), name=spec.model, opset=18,
        precision=precision,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("family", ["mixtral", "gpt_oss"])
def test_experts_are_computed_as_can_be_exported(
    tmp_path: Path, family: str, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = spec_of(tmp_path, family)
    assert spec.experts_implementation == "batched_mm"
    assert "experts are computed with batched_mm" in capsys.readouterr().err
    assert any("experts" in (n["module"] or "") for n in exported(spec).nodes["nodes"])


def test_an_experts_implementation_is_named_or_refused(tmp_path: Path) -> None:
    asked = {"experts_implementation": "batched_mm"}
    assert spec_of(tmp_path, "mixtral", settings=asked).experts_implementation == "batched_mm"
    with pytest.raises(InputError, match="choose from batched_mm"):
        spec_of(tmp_path, "mixtral", settings={"experts_implementation": "grouped_mm"})
    with pytest.raises(InputError, match="no choice of experts"):
        spec_of(tmp_path, "llama", settings=asked)


def test_infinity_in_a_configuration_is_kept(tmp_path: Path) -> None:
    """Kind: special floats in a config.json, which JSON has not."""
    spec = spec_of(tmp_path, "mamba2")
    write_json(tmp_path / "model.json", spec.as_dict())
    read = load_spec(tmp_path / "model.json")
    model = read.build()
    assert model.config.time_step_limit[1] == float("inf")  # type: ignore[union-attr,index]
    outputs = onnx_export.eager_outputs(model, read.inputs())
    assert np.isfinite(outputs["logits"]).all()


@pytest.mark.parametrize("family", ["llama", "gpt_oss"])
def test_a_decode_step_gives_the_logits_of_the_whole_sequence(tmp_path: Path, family: str) -> None:
    """The last token's logits of a prefill are those of one step on the cache of what is before."""
    whole = spec_of(tmp_path, family, seq=13)
    step = spec_of(tmp_path, family, seq=1, past=12)
    tokens = torch.from_numpy(whole.inputs()["input_ids"])
    with torch.inference_mode():
        expected = whole.build()(input_ids=tokens).logits[:, -1]
        before = whole.build()(input_ids=tokens[:, :-1], use_cache=True)
        name = next(n for n in ("cache", "past_key_values") if n in before)
        pairs = tuple((layer.keys, layer.values) for layer in before[name].layers)
        given = tensors(step.inputs())
        assert [tuple(t.shape for t in p) for p in given.pop(name)] == [
            tuple(t.shape for t in p) for p in pairs
        ]
        got = step.build()(**{**given, "input_ids": tokens[:, -1:], name: pairs})
    torch.testing.assert_close(got.logits[:, -1], expected, rtol=1e-4, atol=1e-5)
    assert all(isinstance(t, torch.Tensor) for pair in got[name] for t in pair)


def test_making_the_cache_of_a_decode_step_computes_nothing(tmp_path: Path) -> None:
    """Kind: work of ours beside a model's. Layers of a sliding window make a tensor when they are
    made: it was an operator outside all modules."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counted(TorchDispatchMode):
        names: list[str] = []  # noqa: RUF012

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            self.names.append(str(func))
            return func(*args, **(kwargs or {}))

    spec = spec_of(tmp_path, "mistral", seq=1, past=12)
    model, given = spec.build(), tensors(spec.inputs())
    hook = next(iter(model._forward_pre_hooks.values()))
    with Counted():
        hook(model, (), given)
    assert Counted.names == []


@pytest.mark.parametrize("family", ["t5", "whisper", "bart"])
def test_a_decoder_of_two_halves_decodes_a_step_on_what_the_encoder_gave(
    tmp_path: Path, family: str
) -> None:
    """Kind: a cache of two parts; what is of the encoder is read and not given back."""
    whole = spec_of(tmp_path, family, seq=13, part="decoder")
    step = spec_of(tmp_path, family, seq=1, past=12, part="decoder")
    given = tensors(step.inputs())
    state = given["encoder_outputs"]
    tokens = torch.from_numpy(whole.inputs()["decoder_input_ids"])
    with torch.inference_mode():
        model = whole.build()
        expected = model(decoder_input_ids=tokens, encoder_outputs=state).logits[:, -1]
        before = model(decoder_input_ids=tokens[:, :-1], encoder_outputs=state, use_cache=True)
        name = next(n for n in ("cache", "past_key_values") if n in before)
        both = (before[name].self_attention_cache, before[name].cross_attention_cache)
        layers = tuple(
            tuple(t for layer in pair for t in (layer.keys, layer.values))
            for pair in zip(*(c.layers for c in both), strict=True)
        )
        shapes = [[t.shape for t in layer] for layer in layers]
        assert [[t.shape for t in layer] for layer in given[name]] == shapes
        given |= {"decoder_input_ids": tokens[:, -1:], name: layers}
        got = step.build()(**given)
    torch.testing.assert_close(got.logits[:, -1], expected, rtol=1e-4, atol=1e-5)
    assert [len(layer) for layer in got[name]] == [2] * len(layers)
    assert got[name][0][0].shape[2] == 13


@pytest.mark.slow
def test_a_decode_step_is_exported_with_its_cache_as_inputs_and_outputs(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, "llama", seq=1, past=12)
    made = exported(spec, "fp16")
    inputs, outputs = made.nodes["inputs"], made.nodes["outputs"]
    assert len(inputs) == 5 and len(outputs) == 5 and not set(inputs) & set(outputs)
    sizes = made.nodes["tensors"]
    assert sizes[inputs[1]]["shape"] == [1, 2, 12, 8]
    assert sizes[outputs[1]]["shape"] == [1, 2, 13, 8]


@pytest.mark.parametrize(
    ("family", "more", "said"),
    [
        ("vit", {"seq": 64}, "has no sequence"),
        ("vit", {"seq": 128, "padded": True}, "reads no tokens"),
        ("vit", {"seq": 128, "past": 4}, "no decoder with a cache"),
        ("llama", {"part": "encoder"}, "not an encoder and a decoder"),
        ("llama", {"seq": 1, "past": 64}, "--past 63 or less"),
        ("whisper", {"seq": 1, "past": 64, "part": "decoder"}, "--past 63 or less"),
        ("t5", {"seq": 1, "past": 4}, "add --part decoder"),
        ("t5", {"seq": 1, "past": 4, "part": "encoder"}, "no decoder with a cache"),
        ("llama", {"seq": 1, "past": 4, "padded": True}, "of no use"),
        ("mamba2", {"seq": 1, "past": 4}, "leave --phase out"),
    ],
)
def test_what_a_family_cannot_do_is_one_line_with_what_to_do(
    tmp_path: Path, family: str, more: dict[str, Any], said: str
) -> None:
    with pytest.raises(InputError) as caught:
        spec_of(tmp_path, family, **more)
    assert said in caught.value.line() and "\n" not in caught.value.line()
    assert caught.value.fix


@pytest.mark.parametrize(
    ("config", "read"),
    [
        ({"model_type": "decision_transformer"}, "states"),
        ({"model_type": "patchtst", "num_input_channels": 1, "context_length": 16,
          "patch_length": 4}, "past_values"),
        ({"model_type": "moonshine", **TOKENS}, "input_values"),
    ],
)  # fmt: skip
def test_inputs_that_nothing_makes_are_one_line(
    tmp_path: Path, config: dict[str, Any], read: str
) -> None:
    """Kind: a model whose main input has a name, or a configuration a form, not known here."""
    (tmp_path / "config.json").write_text(json.dumps(config))
    model = str(tmp_path)
    try:
        spec = resolve(Request(model=model, seq=16))
    except InputError:
        spec = resolve(Request(model=model))
    with pytest.raises(
        InputError, match=rf"reads {read}, which nothing here makes.*layerline init"
    ):
        spec.inputs()


def test_whatever_a_models_own_code_raises_is_one_line(tmp_path: Path) -> None:
    """Kind: the code of a model fails on its configuration, here by an index beyond a list."""
    config = {"model_type": "cvt", "depth": [1, 1, 1], "drop_path_rate": [0.0]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(
        InputError,
        match=r"CvtForImageClassification cannot be made \(IndexError.*at modeling_cvt.py",
    ):
        resolve(Request(model=str(tmp_path))).build()


@pytest.mark.slow
def test_a_model_whose_own_code_fails_in_half_is_sent_to_fp32(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Kind: code of a model that mixes types. The exporter's tracebacks are not shown."""
    spec = spec_of(tmp_path, "xlstm")
    capfd.readouterr()
    with pytest.raises(InputError, match="cannot export it in fp16") as caught:
        exported(spec, "fp16")
    assert caught.value.fix == "its own code does not compute in fp16: use --precision fp32"
    assert "Traceback" not in capfd.readouterr().err
    assert exported(spec).nodes["nodes"]


def test_complex_numbers_are_refused_with_what_can_be_done(tmp_path: Path) -> None:
    """Kind: what ONNX has no type for (the rotary embedding of Llama 4)."""
    with pytest.raises(InputError, match="complex") as caught:
        exported(spec_of(tmp_path, "llama4_text"))
    assert "own.py with a module that computes with real numbers" in (caught.value.fix or "")
