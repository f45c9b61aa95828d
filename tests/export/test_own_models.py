"""The user's own code: what it may return, that it is the same everywhere, and its mistakes."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from paths import ROOT

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from layerline.core import files  # noqa: E402
from layerline.core.errors import CheckFailed, InputError  # noqa: E402
from layerline.core.run import open_run  # noqa: E402
from layerline.export import nested, onnx_export, own  # noqa: E402
from layerline.export.command import export  # noqa: E402
from layerline.export.init import init  # noqa: E402
from layerline.export.models import load_spec, tensors  # noqa: E402
from layerline.export.source import Request, resolve  # noqa: E402
from layerline.export.stage import Options, Stage, traced  # noqa: E402
from layerline.workloads.request import defaults  # noqa: E402

NETS = ROOT / "tests" / "support" / "models" / "own_nets.py"
HEAD = "import torch\nfrom torch import nn\n"


def code(folder: Path, text: str, name: str = "own.py") -> str:
    """A file with a function `build`, as --model names it."""
    (folder / name).write_text(HEAD + text)
    return f"{folder / name}:build"


def wanted(model: str, **more: Any) -> Request:
    return Request(model=model, **more)


LINEAR = "def build():\n    return nn.Linear(3, 2), {}\n"


@pytest.mark.parametrize(
    ("inputs", "names"),
    [
        ("torch.ones(1, 3)", ["input"]),  # a tensor alone
        ("(torch.ones(1, 3),)", ["input"]),  # positional
        ("{'input': torch.ones(1, 3)}", ["input"]),  # by name
    ],
)
def test_inputs_are_a_tensor_a_tuple_or_a_dict(
    tmp_path: Path, inputs: str, names: list[str]
) -> None:
    spec = resolve(wanted(code(tmp_path, LINEAR.format(inputs))))
    assert list(spec.inputs()) == names
    assert spec.batch is None and spec.seq is None
    assert spec.model_class == "Linear" and spec.weights == "own"
    output = onnx_export.eager_outputs(spec.build(), spec.inputs())
    assert output["output"].shape == (1, 2)


NESTED = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
    def forward(self, x, pair, options, k=2, flag=True, none=None, mask=None):
        a, b = pair
        y = self.fc(x) + a * k + options["q"]
        y = y + b if flag else y
        return {"x": y.masked_fill(~mask, 0.0), "parts": (a + 1, [b * 2])}
def build():
    t = torch.rand(2, 4)
    return Net(), {"x": t, "pair": (t + 1, t + 2), "options": {"q": t + 3}, "k": 3, "flag": True,
                   "none": None, "mask": torch.tensor([[True], [False]])}
"""


@pytest.mark.slow
def test_nested_inputs_and_outputs_have_the_same_names_everywhere(tmp_path: Path) -> None:
    """Kind: tuples, dicts and constants, an output called as an input, fp16 inputs."""
    spec = resolve(wanted(code(tmp_path, NESTED)))
    inputs = spec.inputs()
    assert list(nested.named(inputs)) == ["x", "pair.0", "pair.1", "options.q", "mask"]
    eager = onnx_export.eager_outputs(spec.build(), inputs)
    assert list(eager) == ["x.out", "parts.0", "parts.1.0"]
    made = onnx_export.export(
        spec.build("fp16"), inputs, list(eager), name="net", opset=18, precision="fp16"
    )
    assert made.nodes["inputs"] == ["x", "pair.0", "pair.1", "options.q", "mask"]
    assert made.nodes["outputs"] == list(eager)
    types = {v.name: v.dtype.numpy().name for v in made.model.graph.inputs}
    assert types["x"] == types["options.q"] == "float16" and types["mask"] == "bool"
    assert {n["module"] for n in made.nodes["nodes"]} == {"", "fc"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def build():\n    return nn.Linear(1, 1)\n", "returned Linear"),
        ("def build():\n    return 1, 2\n", "int is no nn.Module"),
        ("def build():\n    return nn.Linear(1, 1), {}\n", "no tensor in the inputs"),
        ("def build():\n    return nn.Linear(1, 1), torch.ones(1), 3\n", "the loss is int"),
        ("def build():\n    return nn.Linear(1, 1), (torch.ones(1),) * 2\n", "2 inputs do not fit"),
        ("def build(size):\n    pass\n", "takes size, which nothing gives"),
        ("def build():\n    return {}['x']\n", "KeyError: 'x', line 4 of own.py"),
        ("import nowhere_at_all\n", "No module named 'nowhere_at_all', line 3 of own.py"),
        ("def build(:\n", "SyntaxError"),
        ("import sys\nsys.exit(3)\n", "SystemExit: 3, line 4 of own.py"),
        ("def other():\n    pass\n", "no function build; name one of other"),
        (
            "class N(nn.Module):\n    def forward(self, *x):\n        return x\n"
            "def build():\n    return N(), torch.ones(1)\n",
            "inputs without names",
        ),
    ],
)
def test_a_mistake_in_the_code_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        resolve(wanted(code(tmp_path, text)))
    assert said in caught.value.line()
    assert "\n" not in caught.value.line() and caught.value.fix


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("nowhere.py:build", "layerline init nowhere.py"),
        ("no_such_package.models:build", "No module named 'no_such_package'"),
        ("own.py:two words", "names no function"),
    ],
)
def test_code_that_is_not_there_is_one_line(model: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        resolve(wanted(model))
    assert said in caught.value.line()


MISTAKES = [
    ("gone.py", {}, "gone.py: no such file; layerline init gone.py writes one"),
    ("own.py:bild", {}, "there is no function bild; name one of build"),
    ("own.py", {"layers": "1"}, "build() has no such parameter with a default; it has width, name"),
    ("own.py", {"widht": "1"}, "did you mean width?"),
    ("own.py", {"width": "many"}, "--set width=many: not a whole number; build() has 8"),
    ("own.py", {"attn_implementation": "eager"}, "build() has no such parameter"),
    ("wrong.py", {}, "wrong.py:build: SyntaxError: "),
]


@pytest.mark.parametrize(("model", "settings", "said"), MISTAKES)
def test_a_mistake_that_can_be_seen_needs_neither_the_machine_nor_a_run_of_the_code(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    model: str,
    settings: dict[str, str],
    said: str,
) -> None:
    code(tmp_path, "1 / 0\ndef build(batch=2, width=8, name=str(1)):\n    pass\n")
    code(tmp_path, "def build(:\n", "wrong.py")
    monkeypatch.setattr(files, "LOCK_PATH", tmp_path / "nowhere" / "lock")  # cannot be taken
    run = open_run(tmp_path / "run", create=True)
    request = wanted(f"{tmp_path}/{model}", settings=settings)
    for do in (Stage(run, request, Options()).export, lambda _: resolve(request)):
        with pytest.raises(InputError) as caught:
            do(["fp32"])
        assert said in caught.value.line()
    assert "executed" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    [
        "def made(width=8):\n    return nn.Linear(width, 2), torch.ones(1, width)\nbuild = made\n",
        "def through(f):\n    return lambda **k: (nn.Linear(9, 2), torch.ones(1, 9))\n"
        "@through\ndef build():\n    pass\n",
        "def build(width=int('8')):\n    return nn.Linear(width, 2), torch.ones(1, width)\n",
        "def build(*, width=None):\n    return nn.Linear(width, 2), torch.ones(1, width)\n",
    ],
)
def test_what_cannot_be_seen_without_running_it_is_no_mistake(tmp_path: Path, text: str) -> None:
    target = own.target(code(tmp_path, text))
    assert target is not None
    own.look(target, {"width": "9"})


def test_batch_seq_and_settings_reach_the_function(tmp_path: Path) -> None:
    text = (
        "def build(batch, seq=4, width=8, bias=True):\n"
        "    return nn.Linear(width, 2, bias=bias), torch.ones(batch, seq, width)\n"
    )
    model = code(tmp_path, text)
    spec = resolve(wanted(model, batch=3, seq=5, settings={"width": "16", "bias": "no"}))
    assert spec.inputs()["input"].shape == (3, 5, 16)
    assert (spec.batch, spec.seq) == (3, 5)
    assert [n for n, _ in spec.build().named_parameters()] == ["weight"]
    with pytest.raises(InputError, match="did you mean width"):
        resolve(wanted(model, settings={"widht": "16"}))


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("def build(batch=2, seq=64):\n    pass\n", {"batch": 2, "seq": 64}),
        ("def build(width=3, *, seq=7, batch):\n    pass\n", {"seq": 7}),
        ("def build(batch=None, seq=int(3)):\n    pass\n", {}),  # not written as numbers
        ("def build(width=3):\n    pass\n", {}),
        ("def build(:\n", {}),
    ],
)
def test_batch_and_seq_are_the_functions_own_where_nobody_gives_them(
    tmp_path: Path, text: str, sizes: dict[str, int]
) -> None:
    target = own.target(code(tmp_path, text))
    assert target is not None and own.usual(target) == sizes
    module = own.target("own:build", tmp_path)
    assert module is not None and own.usual(module) == sizes
    found = defaults(str(target), None, "cpu")
    assert (found.batch, found.seq) == (sizes.get("batch", 1), sizes.get("seq", 128))


@pytest.mark.parametrize(
    ("options", "sizes"), [((), (2, 64)), (("--batch", "1"), (1, 64)), (("--seq", "9"), (2, 9))]
)
def test_an_export_without_batch_and_seq_keeps_the_functions_own(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    sizes: tuple[int, int],
) -> None:
    asked: list[Request] = []
    monkeypatch.setattr(Stage, "export", lambda self, _: asked.append(self.request))
    model = code(tmp_path, "def build(batch=2, seq=64):\n    pass\n")
    more = ["--model", model, "--backend", "onnxruntime", *options]
    CliRunner().invoke(export, [str(tmp_path / "run"), *more], catch_exceptions=False)
    (request,) = asked
    assert (request.batch, request.seq) == sizes


def test_a_batch_that_the_function_does_not_take_is_refused(tmp_path: Path) -> None:
    model = code(tmp_path, LINEAR.format("torch.ones(1, 3)"))
    with pytest.raises(InputError, match="takes no batch"):
        resolve(wanted(model, batch=4))
    with pytest.raises(InputError, match="takes no seq"):
        resolve(wanted(model, seq=4))


def test_weights_are_the_same_in_another_process_and_others_are_refused(tmp_path: Path) -> None:
    model = code(tmp_path, "def build():\n    return nn.Linear(3, 2), torch.randn(1, 3)\n")
    spec = resolve(wanted(model))
    path = tmp_path / "model.json"
    path.write_text(json.dumps(spec.as_dict()))
    assert load_spec(path) == spec
    program = (
        "import sys; from pathlib import Path; from layerline.export.models import load_spec\n"
        "sys.stdout.write(repr(load_spec(Path(sys.argv[1])).build().weight.tolist()))"
    )
    other = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True
    )
    assert other.stdout == repr(spec.build().weight.tolist())  # type: ignore[operator,union-attr]
    (tmp_path / "own.py").write_text(HEAD + LINEAR.format("torch.ones(1, 3)"))
    with pytest.raises(InputError, match="made other weights"):
        spec.build()


def test_code_that_draws_from_no_seed_is_found_when_it_is_exported(tmp_path: Path) -> None:
    text = (
        "import os\ndef build():\n    model = nn.Linear(1, 1)\n"
        "    nn.init.constant_(model.weight, int.from_bytes(os.urandom(3), 'big'))\n"
        "    return model, torch.ones(1, 1)\n"
    )
    spec = resolve(wanted(code(tmp_path, text)))
    with pytest.raises(InputError, match="seed what it draws from"):
        spec.build()


def test_what_is_drawn_by_numpy_and_python_is_seeded_and_left_as_it_was(tmp_path: Path) -> None:
    text = (
        "import random, numpy\ndef build():\n    model = nn.Linear(1, 1)\n"
        "    nn.init.constant_(model.weight, random.random() + numpy.random.rand())\n"
        "    return model, torch.ones(1, 1)\n"
    )
    import random

    before = random.getstate(), torch.random.get_rng_state()
    spec = resolve(wanted(code(tmp_path, text)))
    spec.build()  # refused where it were others
    assert random.getstate() == before[0]
    assert torch.equal(torch.random.get_rng_state(), before[1])
    other = replace(resolve(wanted(spec.model, seed=1)), seed=1)
    assert not torch.equal(other.build().weight, spec.build().weight)  # type: ignore[arg-type]


def test_a_lazy_module_a_half_one_and_a_compiled_one_are_taken(tmp_path: Path) -> None:
    text = (
        "import warnings\ndef build():\n    model = nn.Sequential(nn.LazyLinear(4), nn.ReLU())\n"
        "    with warnings.catch_warnings():\n        warnings.simplefilter('ignore')\n"
        "        return torch.compile(model), torch.ones(1, 3).half()\n"
    )
    spec = resolve(wanted(code(tmp_path, text)))
    weights = {n: tuple(p.shape) for n, p in spec.build().named_parameters()}
    assert weights == {"0.weight": (4, 3), "0.bias": (4,)}
    assert spec.inputs()["input"].dtype == np.float32
    text = LINEAR.format("torch.ones(1, 3)").replace("(3, 2)", "(3, 2).bfloat16()")
    half = resolve(wanted(code(tmp_path, text, "half.py")))
    assert half.build().weight.dtype == torch.float32  # type: ignore[union-attr]


def test_what_is_frozen_stays_frozen_where_it_is_trained(tmp_path: Path) -> None:
    text = (
        "def build():\n    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))\n"
        "    model[0].requires_grad_(False)\n    return model, torch.ones(1, 2), torch.sum\n"
    )
    model = resolve(wanted(code(tmp_path, text))).build(training=True)
    trained = {n for n, p in model.named_parameters() if p.requires_grad}
    assert trained == {"1.weight", "1.bias"}


def test_files_beside_it_are_imported_and_make_the_export_stale(tmp_path: Path) -> None:
    (tmp_path / "beside_own.py").write_text(
        "from torch import nn\ndef net():\n    return nn.Linear(3, 2)\n"
    )
    model = code(
        tmp_path, "import beside_own\ndef build():\n    return beside_own.net(), torch.ones(1, 3)\n"
    )
    run = open_run(tmp_path / "run", create=True)

    def stage() -> Stage:
        return Stage(run, wanted(model), Options(18, 1e-3, 2_000_000_000, False))

    assert stage().export(["fp32"]) == ["fp32"]
    assert stage().export(["fp32"]) == []
    described = json.loads((tmp_path / "run/export/model.json").read_text())
    names = {Path(f).name for f in described["own"]["files"]}
    assert names == {"own.py", "beside_own.py"}
    with (tmp_path / "beside_own.py").open("a") as f:
        f.write("# changed\n")
    assert not stage().model_step().valid()
    sys.modules.pop("beside_own")


def test_a_function_of_a_package_is_found_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_package").mkdir()
    (tmp_path / "own_package" / "__init__.py").write_text("")
    code(tmp_path / "own_package", LINEAR.format("torch.ones(1, 3)"), "nets.py")
    monkeypatch.chdir(tmp_path)
    spec = resolve(wanted("own_package.nets:build"))
    assert spec.own is not None and spec.own.folder == str(tmp_path)
    monkeypatch.chdir("/")
    assert spec.build().weight.shape == (2, 3)  # type: ignore[union-attr]


def test_the_code_is_told_to_be_executed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    resolve(wanted(code(tmp_path, LINEAR.format("torch.ones(1, 3)"))))
    assert "own.py:build: this is your code, and it is executed" in capsys.readouterr().err


def test_open_axes_are_those_that_batch_and_seq_change(tmp_path: Path) -> None:
    text = (
        "def build(batch, seq):\n    return nn.Bilinear(3, 4, 2), {'input1': "
        "torch.ones(batch, seq, 3), 'input2': torch.ones(batch, seq, 4)}\n"
    )
    spec = resolve(wanted(code(tmp_path, text), seq=1, dynamic=("batch", "seq")))
    inputs, axes = traced(spec)
    assert inputs["input1"].shape == (2, 2, 3)  # an axis of one would be a constant
    assert axes == {f"input{i}": {0: "batch", 1: "sequence"} for i in (1, 2)}
    assert nested.named(tensors(spec.inputs()))["input1"].shape == (1, 1, 3)


def test_code_that_goes_another_way_for_a_batch_of_one_is_refused(tmp_path: Path) -> None:
    """Kind: torch traces an open axis with two, and takes a branch on its size for true of all."""
    text = (
        "class Net(nn.Module):\n    def forward(self, x):\n"
        "        return x * ({many} if x.shape[0] > 1 else {one})\n"
        "def build(batch=2):\n    return Net(), torch.ones(batch, 3)\n"
    )
    # The third file fails in ONNX Runtime: it has no second row to read.
    for many, one, fails in (("2", "5", True), ("2", "2", False), ("x[1]", "1", True)):
        model = code(tmp_path, text.format(many=many, one=one), f"own{many}{one}.py")
        more = ["--model", model, "--precision", "fp32", "--dynamic", "batch"]
        done = CliRunner().invoke(export, [str(tmp_path / f"run{many}{one}"), *more])
        assert isinstance(done.exception, CheckFailed) is fails
        if fails:
            assert "something else than eager with a batch of 1" in str(done.exception)


def test_init_writes_a_file_that_can_be_exported(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    result = CliRunner().invoke(init, [str(path)])
    assert result.exit_code == 0
    assert f"--model {path}:build" in result.output
    spec = resolve(wanted(str(path), batch=3, settings={"width": "8"}))  # build is understood
    assert spec.own is not None and spec.own.loss and spec.own.takes == ("batch",)
    assert onnx_export.eager_outputs(spec.build(), spec.inputs())["output"].shape == (3, 10)
    loss = own.loss_of(spec.made(), torch.device("cpu"))
    assert loss is not None and loss(torch.zeros(3, 10)).item() == pytest.approx(np.log(10))
    again = CliRunner().invoke(init, [str(path)])
    assert isinstance(again.exception, InputError)


def test_a_convolution_with_a_norm_folded_in_is_the_convolutions(tmp_path: Path) -> None:
    """Kind: the exporter gives the product that is left the scope of what it folded into it."""
    text = (
        "def build():\n    norm = nn.BatchNorm2d(4)\n    norm.running_mean.fill_(0.5)\n"
        "    model = nn.Sequential(nn.Conv2d(3, 4, 1, bias=False), norm, nn.ReLU())\n"
        "    return model, torch.ones(1, 3, 4, 4)\n"
    )
    spec = resolve(wanted(code(tmp_path, text)))
    made = onnx_export.export(spec.build(), spec.inputs(), ["output"], name="n", opset=18)
    assert [(n["op"], n["module"]) for n in made.nodes["nodes"]] == [("Conv", "0"), ("Relu", "2")]


CONVOLUTION = "def build():\n    return nn.Conv2d(3, 4, 1), torch.ones(1, 3, 4, 4)\n"


def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str) -> Stage:
    monkeypatch.setattr(files, "LOCK_PATH", tmp_path / "lock")
    return Stage(open_run(tmp_path / "run", create=True), wanted(model), Options())


def test_a_file_that_onnx_runtime_refuses_is_kept_and_said_to_be_unchecked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Kind: a convolution in bf16, which ONNX has from opset 22 on."""
    asked = stage(tmp_path, monkeypatch, code(tmp_path, CONVOLUTION))
    assert asked.export(["fp32", "bf16"]) == ["fp32", "bf16"]
    said = capsys.readouterr().err
    assert "bf16.onnx: not checked, ONNX Runtime on the CPU does not run Conv in bf16" in said
    judged = json.loads((tmp_path / "run/export/parity.json").read_text())
    assert judged["fp32"]["ok"] is True
    assert (judged["bf16"]["ok"], judged["bf16"]["max_abs"]) == (None, None)
    assert judged["fp32"]["random_weights"] is None  # the function's own


def test_a_precision_that_fails_leaves_the_others_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = stage(tmp_path, monkeypatch, code(tmp_path, LINEAR.format("torch.ones(1, 3)")))
    exporting = onnx_export.export

    def refusing(*given: Any, precision: str, **more: Any) -> Any:
        if precision == "bf16":
            raise InputError("not in bf16")
        return exporting(*given, precision=precision, **more)

    monkeypatch.setattr(onnx_export, "export", refusing)
    with pytest.raises(InputError, match="not in bf16"):
        asked.export(["fp32", "bf16", "fp16"])
    written = json.loads((tmp_path / "run/export/parity.json").read_text())
    assert list(written) == ["fp32", "fp16"]
    assert (tmp_path / "run/export/nodes.json").is_file()


@pytest.mark.parametrize(
    ("x", "result", "said"),
    [
        ([0, 1, 1, 1], "(-y).exp()", "1 of 4 values of output are NaN or infinite in ONNX Runtime"),
        ([1, 1, 1, 1], "1 / y", "computes something else than eager fp32: it differs by 1e-06"),
    ],
    ids=["not finite", "another function"],
)
def test_a_half_file_that_is_wrong_is_written_with_a_word_of_what_finds_the_cause(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    x: list[int],
    result: str,
    said: str,
) -> None:
    """Kind: 1e6 is infinite in half; nought times it is NaN, its reciprocal 0."""
    text = (
        "class Net(nn.Module):\n    def forward(self, x):\n        y = x * 1e6\n"
        f"        return {result}\n"
        f"def build():\n    return Net(), torch.tensor([{x}], dtype=torch.float32)\n"
    )
    asked = stage(tmp_path, monkeypatch, code(tmp_path, text))
    assert asked.export(["fp32", "fp16"]) == ["fp32", "fp16"]
    out = capsys.readouterr().err
    (line,) = [w for w in out.splitlines() if w.startswith("warning: ")]
    assert said in line
    assert f"`layerline accuracy {tmp_path / 'run'} --precision fp16` says where" in line
    assert "with --plan what must stay in fp32" in line
    export_ = tmp_path / "run/export"
    judged = json.loads((export_ / "parity.json").read_text())
    assert (judged["fp16"]["ok"], judged["fp32"]["ok"]) == (False, True)
    assert f"warning: {judged['fp16']['reason']}" == line
    assert (export_ / "fp16.onnx").is_file() and (export_ / "fp32.onnx").is_file()
    assert asked.export(["fp32", "fp16"]) == []  # and it is valid


def test_an_fp32_file_that_is_not_finite_where_eager_is_stays_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = stage(tmp_path, monkeypatch, code(tmp_path, LINEAR.format("torch.ones(1, 3)")))
    monkeypatch.setattr(
        "layerline.export.parity.run_file",
        lambda *_: {"output": np.full((1, 2), np.nan, np.float32)},
    )
    with pytest.raises(CheckFailed, match="2 of 2 values of output are NaN") as caught:
        asked.export(["fp32", "fp16"])
    assert "--precision" not in (caught.value.fix or "")
    assert not list((tmp_path / "run").rglob("*.onnx"))


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_file_that_onnx_runtime_does_not_load_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    """Kind: an EmbeddingBag, whose loop torch 2.13 writes with types that do not fit."""

    from onnxruntime.capi.onnxruntime_pybind11_state import Fail

    def refuse(path: Path, _inputs: object) -> None:
        raise Fail(f"[ONNXRuntimeError] : 1 : FAIL : Load model from {path} failed:(Loop) mismatch")

    monkeypatch.setattr("layerline.export.parity.run_file", refuse)
    asked = stage(tmp_path, monkeypatch, code(tmp_path, LINEAR.format("torch.ones(1, 3)")))
    with pytest.raises(CheckFailed, match=r"Runtime cannot run it .*\(Loop\) mismatch") as caught:
        asked.export([precision])
    assert caught.value.fix == "try another --opset, or change the module"
    assert not list((tmp_path / "run").rglob("*.onnx"))


def test_a_model_whose_own_outputs_are_not_finite_is_refused_in_half_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No engine of it can be held against anything."""
    text = "def build():\n    return nn.ReLU(), torch.full((1, 2), float('nan'))\n"
    with pytest.raises(CheckFailed, match="eager fp32 model itself gives NaN or infinity"):
        stage(tmp_path, monkeypatch, code(tmp_path, text)).export(["fp16"])


def test_a_mask_of_large_numbers_is_exported_in_fp16_without_a_warning(tmp_path: Path) -> None:
    text = (
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.fc = nn.Linear(4, 4)\n    def forward(self, x, mask):\n"
        "        return self.fc(x).masked_fill(mask == 0, -1e9).softmax(-1)\n"
        "def build():\n    return Net(), (torch.ones(1, 4), torch.tensor([[1, 1, 0, 1]]))\n"
    )
    spec = resolve(wanted(code(tmp_path, text)))
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        onnx_export.export(
            spec.build("fp16"), spec.inputs(), ["output"], name="n", opset=18, precision="fp16"
        )
    assert [str(w.message) for w in found if "overflow" in str(w.message)] == []


@pytest.mark.parametrize(
    ("error", "fix"),
    [
        ("no such operator", "change the module; --verbose shows all that torch says, and where"),
        (
            "Could not guard on data-dependent expression",
            "what it computes hangs on values of its inputs: change that in the module",
        ),
    ],
)
def test_own_code_that_cannot_be_exported_is_told_to_be_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: str, fix: str
) -> None:
    """Not another model, nor a setting of transformers."""
    spec = resolve(wanted(code(tmp_path, LINEAR.format("torch.ones(1, 3)"))))

    def refusing(*_: Any, **__: Any) -> None:
        raise RuntimeError(error)

    monkeypatch.setattr(torch.onnx, "export", refusing)
    with pytest.raises(InputError, match="torch cannot export it in fp32") as caught:
        onnx_export.export(spec.build(), spec.inputs(), ["output"], name="n", opset=18)
    assert caught.value.fix == fix


def test_a_model_that_draws_random_numbers_is_not_said_to_be_inexact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kind: outputs that are others each time (the mask of ViT-MAE); no --tolerance helps."""
    text = (
        "class Draws(nn.Module):\n    def forward(self, x):\n"
        "        return x + torch.rand(x.shape)\n\n"
        "def build():\n    return Draws(), torch.ones(2, 3)\n"
    )
    with pytest.raises(InputError, match=r"another output each time it runs.*random") as caught:
        stage(tmp_path, monkeypatch, code(tmp_path, text)).export(["fp32"])
    assert "make what changes an input" in (caught.value.fix or "")
