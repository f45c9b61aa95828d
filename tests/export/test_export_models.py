"""Model specifications: the same model everywhere, or one line that says what to do."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from layerline.core.errors import InputError
from layerline.core.files import write_json
from layerline.export import models, source
from layerline.export.models import ModelSpec, load_spec, onnx_precision
from layerline.export.source import Request, builtin_names, resolve

pytest.importorskip("torch")


def tiny(**changes: Any) -> ModelSpec:
    return resolve(Request(**{"model": "gpt2-tiny", "seq": 8, **changes}))


def digest(spec: ModelSpec) -> str:
    found = hashlib.sha256()
    for name, value in spec.build().state_dict().items():
        found.update(name.encode() + value.numpy().tobytes())
    return found.hexdigest()


def test_the_same_seed_gives_the_same_weights_in_another_process(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    spec = tiny()
    write_json(path, spec.as_dict())
    assert load_spec(path) == spec
    code = (
        "import sys, hashlib; from pathlib import Path; from layerline.export.models import *\n"
        "h = hashlib.sha256()\n"
        "for k, v in load_spec(Path(sys.argv[1])).build().state_dict().items():\n"
        "    h.update(k.encode() + v.numpy().tobytes())\n"
        "sys.stdout.write(h.hexdigest())"
    )
    other = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
    )
    assert other.stdout == digest(spec)
    assert digest(replace(spec, seed=1)) != other.stdout


def test_no_vector_of_random_weights_can_be_left_out_or_stored_once() -> None:
    vectors = [p.detach() for p in tiny().build().parameters() if p.dim() == 1]
    assert len(vectors) == 2 * 8 + 2  # per block two norms of two and four biases; a last norm
    assert all(len(v.unique()) > len(v) // 2 for v in vectors)
    assert len({tuple(v.tolist()) for v in vectors}) == len(vectors)


def test_building_leaves_the_callers_random_state_alone() -> None:
    import torch

    before = torch.random.get_rng_state()
    tiny().build()
    assert torch.equal(before, torch.random.get_rng_state())


def test_tokens_are_seeded_within_the_vocabulary_and_never_padding() -> None:
    spec = replace(tiny(seq=128, batch=3), config={**tiny().config, "pad_token_id": 7})
    tokens = spec.inputs()["input_ids"]
    assert tokens.shape == (3, 128)
    assert tokens.dtype == np.int64
    assert tokens.min() >= 0
    assert tokens.max() < 512
    assert not (tokens == 7).any()
    np.testing.assert_array_equal(tokens, spec.inputs()["input_ids"])
    assert (tokens != replace(spec, seed=1).inputs()["input_ids"]).any()


def test_training_mode_has_dropout_and_gradients_and_no_cache() -> None:
    model = tiny().build(training=True)
    assert model.training
    assert all(p.requires_grad for p in model.parameters())
    assert model.config.use_cache is False  # type: ignore[union-attr]
    assert not tiny().build().training


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("gpt2", 124_439_808), ("gpt2-medium", 354_823_168), ("gpt2-large", 774_030_080)],
)
def test_the_familys_sizes_are_the_published_ones(name: str, parameters: int) -> None:
    # embeddings, 12 h^2 + 13 h per block, and the last norm; the head shares the embedding
    config = resolve(Request(model=name)).config
    hidden, layers = config["n_embd"], config["n_layer"]
    blocks = layers * (12 * hidden**2 + 13 * hidden)
    total = (config["vocab_size"] + config["n_positions"]) * hidden + blocks + 2 * hidden
    assert total == parameters


def test_the_reference_case_reads_its_settings() -> None:
    settings = {
        "scale_attn_by_inverse_layer_idx": "true",
        "reorder_and_upcast_attn": "true",
        "vocab_size": "32768",
    }
    spec = resolve(Request(model="gpt2-large", seq=1024, settings=settings))
    assert spec.config["scale_attn_by_inverse_layer_idx"] is True
    assert spec.config["vocab_size"] == 32768
    # no other implementation of attention reads reorder_and_upcast_attn
    assert spec.attn_implementation == "eager"


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (Request(model="gpt2-tiny", seq=129), "129 tokens, the model has 128 positions"),
        (Request(model="gpt2-tiny", settings={"n_layr": "2"}), "did you mean n_layer"),
        (Request(model="gpt2-tiny", settings={"use_cache": "true"}), "cache is not exported"),
        (Request(model="gpt2-tiny", settings={"attn_implementation": "flash"}), "eager, sdpa"),
        (Request(model="./nowhere"), "no such model folder"),
        (Request(model="gpt2-tiny", revision="main"), "--revision is for models from the hub"),
    ],
)
def test_what_cannot_be_used_is_one_line_with_what_to_do(request_: Request, said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        resolve(request_)
    assert "\n" not in caught.value.line()
    assert caught.value.fix


def test_a_configuration_the_model_refuses_is_one_line() -> None:
    with pytest.raises(InputError, match="cannot be made"):
        tiny(settings={"n_embd": "65"}).build()


def test_a_hub_model_without_network_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "_reachable", lambda: False)
    with pytest.raises(InputError, match=r"hub cannot be reached.*gpt2"):
        resolve(Request(model="nobody/gpt2-nothing"))


def test_a_folder_with_weights_loads_them_and_one_without_says_random(tmp_path: Path) -> None:
    spec = tiny(seed=5)
    spec.build().save_pretrained(tmp_path / "full")  # type: ignore[operator]
    full = resolve(Request(model=str(tmp_path / "full"), seq=8, seed=9))
    assert full.weights == "loaded"
    assert digest(full) == digest(spec)  # the folder's weights, not those of seed 9
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "config.json").write_text((tmp_path / "full/config.json").read_text())
    bare = resolve(Request(model=str(tmp_path / "bare"), seq=8, seed=5))
    assert bare.weights == "random"
    assert digest(bare) == digest(spec)


def test_weights_that_do_not_fit_the_overrides_are_refused(tmp_path: Path) -> None:
    tiny().build().save_pretrained(tmp_path)  # type: ignore[operator]
    spec = resolve(Request(model=str(tmp_path), seq=8, settings={"vocab_size": "100"}))
    with pytest.raises(InputError, match="cannot be made"):
        spec.build()


@pytest.mark.parametrize(
    ("config", "model_class", "task"),
    [
        ({"model_type": "bert"}, "BertForMaskedLM", "masked-lm"),
        ({"model_type": "bert", "architectures": ["BertModel"]}, "BertModel", "encoder"),
        ({"model_type": "bert", "is_decoder": True}, "BertLMHeadModel", "causal-lm"),
        ({"model_type": "llama"}, "LlamaForCausalLM", "causal-lm"),
        ({"model_type": "t5"}, "T5ForConditionalGeneration", "encoder-decoder"),
        ({"model_type": "t5", "architectures": ["T5EncoderModel"]}, "T5EncoderModel", "encoder"),
        ({"model_type": "whisper"}, "WhisperForConditionalGeneration", "encoder-decoder"),
        ({"model_type": "wav2vec2"}, "Wav2Vec2ForCTC", "speech"),
    ],
)
def test_the_class_is_chosen_by_the_configuration(
    tmp_path: Path, config: dict[str, Any], model_class: str, task: str
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    spec = resolve(Request(model=str(tmp_path), seq=8))
    assert (spec.model_class, spec.task) == (model_class, task)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not JSON"),
        ("[]", "is not a model configuration"),
        ('{"a": 1}', "model_type None"),
        ('{"model_type": "resnet"}', "has no sequence"),
    ],
)
def test_a_folder_that_holds_no_model_of_this_sequence_is_refused(
    tmp_path: Path, text: str, said: str
) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(InputError, match=said):
        resolve(Request(model=str(tmp_path), seq=8))


def test_casting_leaves_computed_rotary_frequencies_in_fp32(tmp_path: Path) -> None:
    import torch

    config = {"model_type": "llama", "hidden_size": 16, "num_hidden_layers": 1}
    config |= {"num_attention_heads": 2, "intermediate_size": 16, "vocab_size": 32}
    (tmp_path / "config.json").write_text(json.dumps(config))
    model = resolve(Request(model=str(tmp_path), seq=8)).build("fp16")
    assert {p.dtype for p in model.parameters()} == {torch.float16}
    frequencies = [b for n, b in model.named_buffers() if n.endswith("inv_freq")]
    assert frequencies
    assert {b.dtype for b in frequencies} == {torch.float32}


def test_tf32_uses_the_fp32_file_and_an_unknown_precision_is_refused() -> None:
    assert [onnx_precision(p) for p in ("fp32", "tf32", "fp16", "bf16")] == [
        "fp32",
        "fp32",
        "fp16",
        "bf16",
    ]
    with pytest.raises(InputError, match="unknown precision int8"):
        onnx_precision("int8")


def test_a_foreign_model_json_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_text('{"schema_version": 99}')
    with pytest.raises(InputError, match=r"not a model\.json"):
        models.load_spec(path)
    path.write_text('{"schema_version": 1, "model": "x"}')
    with pytest.raises(InputError, match="source is missing"):
        models.load_spec(path)


def test_the_small_model_has_one_name_and_is_known_by_its_other_one() -> None:
    assert "tiny" in builtin_names() and "gpt2-tiny" not in builtin_names()
    short, long = (resolve(Request(model=name, seq=8)) for name in ("tiny", "gpt2-tiny"))
    assert short.config == long.config and short.source == long.source == "builtin"
