"""The export stage as a whole: files that hold, names that hold, runs that go on."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from layerline.core import files
from layerline.core import nodes as node_files
from layerline.core.cli.command import cli
from layerline.core.errors import CheckFailed, InputError
from layerline.core.nodes import NodeGraph, sanitised
from layerline.core.run import Run
from layerline.export import models, onnx_export, parity, stage
from layerline.export.models import load_spec
from layerline.export.source import Request, resolve
from layerline.export.stage import earlier

pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")

# The tiny equivalent of the reference case: upcast attention, scaled by layer, another vocabulary.
REFERENCE = (
    *("--model", "tiny", "--seq", "16", "--precision", "fp32,fp16"),
    *("--set", "scale_attn_by_inverse_layer_idx=true", "--set", "reorder_and_upcast_attn=true"),
    *("--set", "vocab_size=256"),
)


def export(run: Path, *arguments: str) -> None:
    CliRunner().invoke(cli, ["-q", "export", "--run", str(run), *arguments], catch_exceptions=False)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "reference"
    export(path, *REFERENCE)
    return path


def contents(folder: Path) -> dict[str, tuple[int, int]]:
    return {p.name: (p.stat().st_mtime_ns, p.stat().st_size) for p in folder.iterdir()}


def check_names(graph: NodeGraph, file: Any, modules: dict[str, str]) -> None:
    """Nodes of the file and of nodes.json are the same, each of a module that exists."""
    assert [n.name for n in file.graph.node] == [n.name for n in graph.nodes]
    assert len({sanitised(n.name) for n in graph.nodes}) == len(graph.nodes)
    for node, written in zip(graph.nodes, file.graph.node, strict=True):
        assert node.module is not None
        assert node.name.startswith(f"{node.module}/{written.op_type}")
        assert node.module_class == modules[node.module]
        assert (list(node.inputs), list(node.outputs)) == (
            list(written.input),
            list(written.output),
        )
    known = {*graph.inputs, *graph.initializers, *graph.producer}
    assert {t for n in graph.nodes for t in n.inputs if t} <= known


def test_a_run_that_has_an_export_keeps_its_model_where_none_is_named(tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text(
        "import torch\ndef build(batch=2):\n"
        "    return torch.nn.Sequential(torch.nn.Linear(4, 3)), torch.ones(batch, 4)\n"
    )
    path = tmp_path / "run"
    export(path, "--model", f"{own}:build", "--precision", "fp32", "--batch", "3", "--seed", "5")
    before = contents(path / "export")
    export(path, "--precision", "fp16")
    after = contents(path / "export")
    kept = ("model.json", "inputs.npz", "fp32.onnx")
    assert [after[name] for name in kept] == [before[name] for name in kept]
    assert "fp16.onnx" in after
    export(path, "--precision", "fp32", "--batch", "1")
    of = load_spec(path / "export/model.json")
    assert (of.location, of.batch, of.seed) == (f"{own}:build", 1, 5)
    export(path, "--model", "tiny", "--precision", "fp32", "--seq", "4")
    of = load_spec(path / "export/model.json")
    assert (of.model, of.batch, of.seed) == ("tiny", 1, 0)


def test_a_decode_run_keeps_its_cache_and_prefill_has_a_sequence_again(tmp_path: Path) -> None:
    path, small = tmp_path / "run", ("--precision", "fp32")

    def sizes(*options: str) -> tuple[int | None, int | None]:
        export(path, *options, *small)
        of = load_spec(path / "export/model.json")
        return of.seq, of.past

    assert sizes("--model", "tiny", "--phase", "decode", "--past", "16") == (1, 16)
    assert sizes("--phase", "decode") == (1, 16)
    assert sizes("--past", "8") == (1, 8)
    assert sizes("--phase", "prefill") == (128, None)


@pytest.mark.parametrize(
    "damage",
    [
        lambda d: None,
        lambda d: {**d, "options": []},
        lambda d: {**d, "options": {**d["options"], "settings": 5}},
        lambda d: {**d, "options": {**d["options"], "batch": "two"}},
        lambda d: {**d, "options": {**d["options"], "model": 7}},
    ],
)
def test_an_export_that_does_not_say_its_model_is_not_taken_for_the_usual_one(
    tmp_path: Path, damage: Any
) -> None:
    path = tmp_path / "run"
    export(path, "--model", "tiny", "--precision", "fp32", "--seq", "4")
    file = path / "manifests/export/model.json"
    changed = damage(json.loads(file.read_text()))
    file.write_text("{bad" if changed is None else json.dumps(changed))
    with pytest.raises(InputError, match="does not say how it was made") as caught:
        earlier(Run(path))
    assert caught.value.fix == "export it again, with --model"
    file.unlink()
    with pytest.raises(InputError, match="does not say how it was made"):
        earlier(Run(path))


def test_every_node_is_named_after_a_module_of_the_built_model(run: Path) -> None:
    model = load_spec(run / "export/model.json").build()
    modules = {path: type(m).__name__ for path, m in model.named_modules()}
    for precision in ("fp32", "fp16"):
        graph = node_files.load(run / f"export/{precision}.nodes.json")
        check_names(graph, onnx.load(run / f"export/{precision}.onnx"), modules)
    # what a reader of the source would expect, worked out from transformers' GPT-2
    by_name = node_files.load(run / "export/nodes.json").by_name
    for layer in (0, 1):
        block = f"transformer.h.{layer}"
        for name in (
            *(f"{block}.ln_1/LayerNormalization", f"{block}.ln_2/LayerNormalization"),
            *(f"{block}.attn.c_attn/Gemm", f"{block}.attn.c_proj/Gemm", f"{block}.attn/Softmax"),
            *(f"{block}.attn/Split", f"{block}.mlp.c_fc/Gemm", f"{block}.mlp.act/Tanh"),
            *(f"{block}/Add", f"{block}/Add_1"),
        ):
            assert name in by_name
    assert by_name["lm_head/MatMul"].outputs == ("logits",)
    assert (run / "export/nodes.json").read_bytes() == (run / "export/fp32.nodes.json").read_bytes()


def test_every_tensor_of_a_file_has_its_type_and_shape(run: Path) -> None:
    """Batch 1, 16 tokens, 64 wide, two heads; the shapes of the weights are the file's own."""
    for precision, dtype in (("fp32", "float32"), ("fp16", "float16")):
        document = json.loads((run / f"export/{precision}.nodes.json").read_text())
        graph, tensors = node_files.parse(document), document["tensors"]
        assert {*graph.inputs, *graph.initializers, *graph.producer} == set(tensors)
        weights = onnx.load(run / f"export/{precision}.onnx").graph.initializer
        assert {w.name: list(w.dims) for w in weights} == {
            w.name: tensors[w.name]["shape"] for w in weights
        }
        assert tensors["input_ids"] == {"dtype": "int64", "shape": [1, 16]}
        assert tensors["logits"] == {"dtype": dtype, "shape": [1, 16, 256]}
        norm = graph.by_name["transformer.h.0.ln_2/LayerNormalization"]
        assert tensors[norm.outputs[0]] == {"dtype": dtype, "shape": [1, 16, 64]}


def test_model_json_lists_the_modules_and_parameters_of_the_model(run: Path) -> None:
    found = json.loads((run / "export/model.json").read_text())
    model = load_spec(run / "export/model.json").build()
    assert [m["path"] for m in found["modules"]] == [p for p, _ in model.named_modules()]
    # 256 tokens and 128 positions of 64; per block 12 h^2 + 13 h; the last norm
    assert found["parameters"] == (256 + 128) * 64 + 2 * (12 * 64 * 64 + 13 * 64) + 128
    assert found["shared_parameters"] == {"transformer.wte.weight": ["lm_head.weight"]}
    assert (found["weights"], found["attention"]) == ("random", "eager")
    assert found["overrides"]["vocab_size"] == 256
    with np.load(run / "export/inputs.npz") as saved:
        np.testing.assert_array_equal(
            saved["input_ids"], load_spec(run / "export/model.json").inputs()["input_ids"]
        )


def test_parity_is_measured_for_each_precision_against_eager_fp32(run: Path) -> None:
    found = json.loads((run / "export/parity.json").read_text())
    assert found["fp32"]["ok"] is True
    assert found["fp32"]["max_abs"] <= 1e-4
    assert found["fp32"]["n"] == 16 * 256
    assert found["fp32"]["random_weights"] is True
    assert found["fp16"]["enforced"] is False
    # fp16 keeps eleven bits: it must differ, but not by much
    assert 1e-6 < found["fp16"]["max_abs"] < 1e-2


def test_the_fp16_file_carries_its_precision_in_its_types(run: Path) -> None:
    kinds = {i.data_type for i in onnx.load(run / "export/fp16.onnx").graph.initializer}
    floats = kinds - {onnx.TensorProto.INT64, onnx.TensorProto.BOOL}
    assert onnx.TensorProto.FLOAT16 in floats
    weights = [i for i in onnx.load(run / "export/fp16.onnx").graph.initializer if "." in i.name]
    assert {i.data_type for i in weights} == {onnx.TensorProto.FLOAT16}
    fp32 = onnx.load(run / "export/fp32.onnx").graph.initializer
    assert onnx.TensorProto.FLOAT16 not in {i.data_type for i in fp32}


def test_the_file_reveals_no_path_of_this_machine(run: Path) -> None:
    content = (run / "export/fp32.onnx").read_bytes()
    for text in (b"site-packages", b"pkg.torch", os.fsencode(Path.home())):
        assert text not in content


def test_what_is_valid_is_kept_and_torch_is_not_even_imported(run: Path) -> None:
    before = contents(run / "export")
    code = (
        "import sys; from layerline.core.cli.command import cli\n"
        "cli.main(sys.argv[1:], standalone_mode=False)\n"
        "loaded = {'torch', 'transformers', 'onnx', 'onnxruntime', 'numpy'} & set(sys.modules)\n"
        "sys.exit(f'imported {loaded}' if loaded else 0)"
    )
    command = [sys.executable, "-c", code, "export", "--run", str(run), *REFERENCE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "up to date" in done.stderr
    assert contents(run / "export") == before


def test_only_what_is_missing_is_made_again(run: Path) -> None:
    before = contents(run / "export")
    (run / "export/fp16.onnx").unlink()  # as after a kill: no complete fp16 step
    export(run, *REFERENCE)
    after = contents(run / "export")
    assert after.keys() == before.keys()
    assert after["fp32.onnx"] == before["fp32.onnx"]
    assert after["fp16.onnx"] != before["fp16.onnx"]


def tiny_request(**changes: Any) -> Any:
    return resolve(Request(**{"model": "tiny", "seq": 8, **changes}))


Saver = Callable[..., tuple[Path, Any, dict[str, Any]]]


@pytest.fixture
def exported(tmp_path: Path) -> Saver:
    """Export a specification into a file that was checked; gives it, its nodes, and parity."""

    def make(
        spec: Any, precision: str = "fp32", opset: int = 18, **options: Any
    ) -> tuple[Path, Any, dict[str, Any]]:
        model = spec.build()
        reference = onnx_export.eager_outputs(model, spec.inputs())
        inputs, axes = stage.traced(spec)
        found = onnx_export.export(
            models.cast(model, precision),
            inputs,
            list(reference),
            name=spec.model,
            opset=opset,
            open_axes=axes,
        )
        path = tmp_path / f"{precision}.{opset}.onnx"
        onnx_export.save(found, path, **options)
        onnx_export.check_file(path, opset)
        modules = {p: type(m).__name__ for p, m in model.named_modules()}
        check_names(node_files.parse(found.nodes), onnx.load(path), modules)
        got = parity.run_file(path, spec.inputs())
        figures = parity.compare(next(iter(reference.values())), next(iter(got.values())))
        return path, found, figures

    return make


@pytest.mark.parametrize(("opset", "precision"), [(17, "fp32"), (17, "fp16"), (20, "fp32")])
def test_other_opsets_are_written_as_asked_and_compute_the_same(
    exported: Saver, opset: int, precision: str
) -> None:
    _path, found, figures = exported(tiny_request(), precision, opset)
    assert figures["max_abs"] <= (1e-4 if precision == "fp32" else 1e-2)
    if opset == 17:
        assert found.facts["lowered_nodes"] == 2  # the Split of each block


FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {"num_key_value_heads": 2},
    "bert": {},
    "opt": {"ffn_dim": 64, "word_embed_proj_dim": 32},
}


@pytest.mark.parametrize("family", FAMILIES)
def test_families_nobody_tuned_for_export_with_all_their_nodes_named(
    tmp_path: Path, exported: Saver, family: str
) -> None:
    from transformers import AutoConfig

    sizes = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2}
    sizes |= {"num_attention_heads": 4, "max_position_embeddings": 64, "intermediate_size": 64}
    AutoConfig.for_model(family, **sizes, **FAMILIES[family]).save_pretrained(tmp_path / family)
    spec = resolve(Request(model=str(tmp_path / family), seq=8))
    opset = 17 if family == "llama" else 18  # its norms are reductions, which 17 writes differently
    _path, found, figures = exported(spec, opset=opset)
    assert figures["max_abs"] <= 1e-4
    modules = {n["module"] for n in found.nodes["nodes"]}
    assert any(m.endswith((".0.self_attn", "attention.self")) for m in modules)


def test_open_axes_take_other_batches_and_lengths(exported: Saver) -> None:
    spec = tiny_request(dynamic=("batch", "seq"))
    path, _found, figures = exported(spec)
    assert figures["max_abs"] <= 1e-4
    tokens = np.random.default_rng(3).integers(0, 512, (3, 21))
    reference = onnx_export.eager_outputs(spec.build(), {"input_ids": tokens})
    got = parity.run_file(path, {"input_ids": tokens})
    assert parity.compare(reference["logits"], got["logits"])["max_abs"] <= 1e-4


def test_large_weights_go_beside_the_file_under_the_name_they_keep(
    exported: Saver, tmp_path: Path
) -> None:
    path, _found, figures = exported(tiny_request(), external_above=1000)
    assert figures["max_abs"] <= 1e-4
    data = path.with_name(f"{path.name}.data")
    assert data.stat().st_size > 100_000 > path.stat().st_size
    located = {
        entry.value
        for i in onnx.load(path, load_external_data=False).graph.initializer
        for entry in i.external_data
        if entry.key == "location"
    }
    assert located == {data.name}


def test_a_full_disk_is_one_line_and_leaves_nothing_to_believe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_exported: Any, path: Path, **_options: Any) -> list[Path]:
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(onnx_export, "save", full)
    with pytest.raises(InputError, match="no space left"):
        export(tmp_path / "run", "--model", "tiny", "--seq", "4", "--precision", "fp32")
    assert not list((tmp_path / "run").rglob("*.onnx"))
    assert not list((tmp_path / "run").rglob("*.partial*"))
    assert not (tmp_path / "run/manifests/export/fp32.json").exists()


def test_a_file_beyond_the_tolerance_is_not_kept(tmp_path: Path, run: Path) -> None:
    with pytest.raises(CheckFailed, match="differs from eager fp32") as caught:
        export(tmp_path / "run", *REFERENCE, "--tolerance", "0", "--precision", "fp32")
    assert caught.value.exit_code == 1
    assert not list((tmp_path / "run").rglob("*.onnx"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--opset", "15"), "opset 15 is not offered"),
        (("--precision", "fp8"), "unknown precision fp8"),
        (("--dynamic", "heads"), "no such axis"),
        (("--set", "n_layer"), "not key=value"),
    ],
)
def test_bad_usage_is_refused_before_anything_is_made(
    tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        export(tmp_path / "run", *arguments)
    assert not (tmp_path / "run/export").exists()


def test_another_model_in_the_same_run_leaves_no_file_of_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from layerline.export import stage

    def dummy(self: Any, precision: str) -> None:
        step = self.file_step(precision)
        with step.recording():
            for path in step.outputs:
                files.write_json(path, {"seq": self.request.seq})

    monkeypatch.setattr(stage.Stage, "_write_file", dummy)
    export(tmp_path, "--model", "tiny", "--seq", "4")
    assert (tmp_path / "export/fp16.onnx").exists()
    export(tmp_path, "--model", "tiny", "--seq", "8", "--precision", "fp32")
    assert not (tmp_path / "export/fp16.onnx").exists()
    assert json.loads((tmp_path / "export/fp32.onnx").read_text()) == {"seq": 8}
    assert list(json.loads((tmp_path / "export/parity.json").read_text())) == ["fp32"]
