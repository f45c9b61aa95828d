"""The export stage: which of its steps are valid, and running those that are not.

Nothing heavy is imported until a step has to run. Steps: ``export/model`` (the specification and
the tokens), ``export/PRECISION`` (ONNX file, nodes, parity), ``export/index`` (nodes.json and
parity.json of all precisions). All share the options that change a result, so that the files of
a run directory always belong to one model.
"""

from __future__ import annotations

import contextlib
import errno
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from ..core.cli.progress import log, progress
from ..core.documents import forms
from ..core.errors import CheckFailed, InputError, LayerlineError, ToolMissing
from ..core.files import machine_lock, read_json, replacing, workspace, write_json
from ..core.machine import versions
from ..core.run import Run, Step
from . import models, nested, onnx_export, own, parity
from .naming import other_names
from .quiet import gist
from .source import Request, resolve

FILES = ("fp32", "bf16", "fp16")  # ONNX precisions, in the order of nodes.json's choice
_LIBRARIES = ("torch", "transformers", "onnx", "onnxscript")


@dataclass(frozen=True)
class Options:
    """How to export. `tolerance` of fp32 parity; `external_above` in bytes of weights."""

    opset: int = 18
    tolerance: float = parity.TOLERANCE
    external_above: int = onnx_export.EXTERNAL_ABOVE
    verbose: bool = False


def earlier(run: Run) -> tuple[Request, Options] | None:
    """How the run was exported; None where it was not. InputError where that is not said."""
    file = run.manifest_path("export/model")
    if not file.exists() and not run.file("export", "model.json").exists():
        return None
    what, fix = "its export does not say how it was made", "export it again, with --model"
    options = (run.manifest("export/model") or {}).get("options") or {}
    try:
        asked = {f.name: options[f.name] for f in fields(Request)}
        how = {n: options[n] for n in ("opset", "tolerance", "external_above")}
    except (KeyError, TypeError):
        raise InputError(what, file=run.path, fix=fix) from None
    return forms.check(asked, Request, file, fix, what), forms.check(how, Options, file, fix, what)


@dataclass
class Stage:
    """The steps of one run directory for one request."""

    run: Run
    request: Request
    options: Options
    _model: Any = field(default=None, init=False)
    _reference: dict[str, Any] | None = field(default=None, init=False)

    def shared(self) -> dict[str, Any]:
        """Everything that changes what is exported."""
        installed = versions()
        kept = {k: v for k, v in asdict(self.options).items() if k != "verbose"}
        asked = {**asdict(self.request), **kept}
        code = own.target(self.request.model)
        if code is not None:
            asked["model"] = str(code)
        elif models.looks_like_path(self.request.model):
            asked["model"] = str(Path(self.request.model).expanduser().resolve())
        return {**asked, "versions": {k: installed.get(k) for k in _LIBRARIES}}

    def sources(self) -> list[Path]:
        """The files of the user's model folder, or of the code that makes the model; none for a
        built-in or hub model."""
        code = own.target(self.request.model)
        if code is not None:
            return self._code(code)
        folder = Path(self.request.model).expanduser()
        if not models.looks_like_path(self.request.model) or not folder.is_dir():
            return []
        return models.folder_files(folder)

    def _code(self, code: own.Target) -> list[Path]:
        """The user's files that ran when the model was made the last time."""
        known = [code.file] if code.file is not None else []
        with contextlib.suppress(InputError):
            spec = models.load_spec(self.file("model.json"))
            if spec.own is not None and spec.location == str(code):
                known = [Path(f) for f in spec.own.files]
        return known

    def file(self, name: str) -> Path:
        """A path in the run's export folder."""
        return self.run.file("export", name)

    def model_step(self) -> Step:
        """The step that writes model.json and inputs.npz."""
        outputs = [self.file("model.json"), self.file("inputs.npz")]
        return Step(self.run, "export/model", self.shared(), self.sources(), outputs)

    def file_step(self, precision: str) -> Step:
        """The step of one ONNX file. External data is an output only where it was written."""
        names = [f"{precision}.onnx", f"{precision}.nodes.json", f"{precision}.parity.json"]
        outputs = [self.file(n) for n in names]
        inputs = [self.file("model.json"), self.file("inputs.npz"), *self.sources()]
        options = {**self.shared(), "precision": precision}
        step = Step(self.run, f"export/{precision}", options, inputs, outputs)
        last = step.manifest()
        data = self.file(f"{precision}.onnx.data")
        if last and f"export/{data.name}" in last.get("outputs", {}):
            step.outputs = [*outputs, data]
        return step

    def index_step(self, precisions: list[str]) -> Step:
        """The step that writes nodes.json and parity.json from those of `precisions`."""
        inputs = [self.file(f"{p}.{kind}.json") for p in precisions for kind in ("nodes", "parity")]
        outputs = [self.file("nodes.json"), self.file("parity.json")]
        return Step(self.run, "export/index", {"precisions": precisions}, inputs, outputs)

    def export(self, precisions: list[str]) -> list[str]:
        """Bring the files of `precisions` (ONNX precisions) up to date; gives those that ran.

        One that fails is raised when the others are done.
        """
        failed: list[LayerlineError] = []
        stale = [p for p in precisions if not self.file_step(p).valid()]
        fresh_model = self.model_step().valid()
        if stale or not fresh_model:
            _require_libraries()
            code = own.target(self.request.model)
            if code is not None and not fresh_model:  # a mistake in it need not wait
                own.look(code, self.request.settings)
            with machine_lock(f"export of {self.request.model}"), _room(self.file("")):
                if not fresh_model:
                    self._write_model()
                    stale = precisions
                for precision in sorted(stale, key=FILES.index):
                    try:
                        self._write_file(precision)
                    except LayerlineError as e:
                        # The model itself does not run; or its graph computes something else,
                        # which only fp32 is held to.
                        wrong = precision == "fp32" and isinstance(e, CheckFailed)
                        if wrong or self._reference is None:
                            raise
                        self._model = None
                        failed.append(e)
        self._write_index()
        for error in failed[1:]:
            log(f"error: {error.line()}")
        if failed:
            raise failed[0]
        return stale

    def _write_model(self) -> None:
        import numpy as np

        spec = resolve(self.request)
        for name in self.run.manifests():
            if name.startswith("export/"):
                self._discard(name)
        step = self.model_step()
        if spec.own is not None:  # the files that the code imported are known now
            step.inputs = [Path(f) for f in spec.own.files]
        with step.recording():
            with progress(f"making {spec.model}"):
                model = spec.build()
            self._model = ("fp32", model)
            write_json(self.file("model.json"), {**spec.as_dict(), **describe(model)})
            with replacing(self.file("inputs.npz")) as temporary:
                np.savez(temporary, **nested.named(spec.inputs()))

    def _discard(self, name: str) -> None:
        """Remove a step's results: they are another model's."""
        manifest = self.run.file("manifests", f"{name}.json")
        outputs = read_json(manifest).get("outputs", {})
        manifest.unlink(missing_ok=True)
        for relative in outputs:
            self.run.file(relative).unlink(missing_ok=True)

    def _built(self, spec: models.ModelSpec, precision: str) -> Any:
        """The model in `precision`: made once, then cast in place from fp32 to the others."""
        have, model = self._model or (None, None)
        if have == precision:
            return model
        self._model = None
        if have != "fp32":
            model = spec.build()
        self._model = (precision, models.cast(model, precision))
        return self._model[1]

    def _eager(self, spec: models.ModelSpec) -> dict[str, Any]:
        if self._reference is None:
            with progress("eager forward, fp32"):
                self._reference = onnx_export.eager_outputs(
                    self._built(spec, "fp32"), spec.inputs()
                )
        return self._reference

    def _write_file(self, precision: str) -> None:
        spec = models.load_spec(self.file("model.json"))
        step = self.file_step(precision)
        with step.recording() as facts, progress(f"export {precision}"):
            clock = _Clock(facts)
            reference = self._eager(spec)
            clock.lap("eager_seconds")
            inputs, axes = traced(spec)
            exported = onnx_export.export(
                self._built(spec, precision),
                inputs,
                list(reference),
                name=spec.model,
                opset=self.options.opset,
                precision=precision,
                open_axes=axes,
                verbose=self.options.verbose,
            )
            clock.lap("export_seconds")
            facts.update(exported.facts)
            with workspace(self.file(precision)) as folder:
                target = folder / f"{precision}.onnx"
                written = onnx_export.save(
                    exported, target, external_above=self.options.external_above
                )
                onnx_export.check_file(target, self.options.opset)
                clock.lap("write_seconds")
                judged = self._judge(spec, precision, target, reference)
                clock.lap("parity_seconds")
                data = self.file(f"{precision}.onnx.data")
                data.unlink(missing_ok=True)
                for path in reversed(written):
                    path.replace(self.file(path.name))
            write_json(self.file(f"{precision}.nodes.json"), exported.nodes)
            write_json(self.file(f"{precision}.parity.json"), judged)
            kept = [p for p in step.outputs if p != data]
            step.outputs = [*kept, data] if data.exists() else kept
            facts["peak_memory_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    def _judge(
        self, spec: models.ModelSpec, precision: str, path: Path, reference: dict[str, Any]
    ) -> dict[str, Any]:
        import onnxruntime as ort
        import torch
        from onnxruntime.capi import onnxruntime_pybind11_state as state

        facts: dict[str, Any] = {
            "reference": f"eager fp32, torch {torch.__version__}, CPU",
            "runtime": f"onnxruntime {ort.__version__}, CPU, optimisations off",
            "random_weights": None if spec.weights == "own" else spec.weights == "random",
            "reason": None,
        }
        try:
            got = parity.run_file(path, nested.named(spec.inputs()))
        except parity.refusals() as e:
            # Of later opsets only (Conv in bf16: 22), which some builders take all the same.
            lacking = isinstance(e, (state.NotImplemented, state.InvalidGraph))
            if precision == "fp32" or not lacking:
                what = f"ONNX Runtime cannot run it ({gist(e)})"
                fix = "try another --opset, or change the module"
                raise CheckFailed(what, file=path.name, fix=fix) from e
            got = None
            facts["reason"] = f"ONNX Runtime's CPU kernels do not cover {precision} ({e})"[:300]
            what = f"{parity.operator(str(e)) or 'it'} in {precision}"
            log(f"{precision}.onnx: not checked, ONNX Runtime on the CPU does not run {what}; "
                "TensorRT may build it, otherwise export another --precision")  # fmt: skip
        judged = parity.entry(
            reference, got, precision=precision, tolerance=self.options.tolerance, facts=facts
        )
        if judged["ok"] is False:
            _require_same_again(spec)
            judged["reason"] = self._doubt(judged, f"{precision}.onnx of {spec.model}", precision)
        if precision == "fp32" and "batch" in spec.dynamic and spec.batch not in (None, 1):
            self._judge_one(spec, path)
        return judged

    def _doubt(self, judged: dict[str, Any], name: str, precision: str) -> str:
        """Say what is wrong with a file of half precision, which other commands find the cause of.
        CheckFailed for one in fp32, and where eager's own outputs are not finite."""
        fault = parity.fault(judged, name)
        if precision == "fp32" or any(
            o["max_abs"] is None and not o["non_finite"] for o in judged["outputs"].values()
        ):
            raise fault
        command = f"layerline accuracy {self.run.path} --precision {precision}"
        text = f"{fault.what}; `{command}` says where, with --plan what must stay in fp32"
        log(f"warning: {text}")
        return text

    def _judge_one(self, spec: models.ModelSpec, path: Path) -> None:
        """CheckFailed where code goes another way for a batch of 1: torch traces with two at least
        and takes what it sees for true of all sizes."""
        given = _sized(spec, batch=1).inputs()
        reference = onnx_export.eager_outputs(spec.build(), given)
        found: list[float | None] = [None]
        with contextlib.suppress(*parity.refusals()):
            got = parity.run_file(path, nested.named(given))
            found = [parity.compare(v, got[k])["max_abs"] for k, v in reference.items()]
        if any(worst is None or worst > self.options.tolerance for worst in found):
            raise CheckFailed(
                f"{path.name} of {spec.model}: computes something else than eager with a batch of "
                "1: the model's code goes another way there",
                fix="export without --dynamic batch, a run for each batch",
            )

    def _write_index(self) -> None:
        valid = [p for p in FILES if self.file_step(p).valid()]
        step = self.index_step(valid)
        if not valid or step.valid():
            return
        with step.recording():
            entries = {p: read_json(self.file(f"{p}.parity.json")) for p in valid}
            write_json(self.file("nodes.json"), read_json(self.file(f"{valid[0]}.nodes.json")))
            write_json(self.file("parity.json"), entries)


def _require_same_again(spec: models.ModelSpec) -> None:
    """Raises InputError where the eager model gives other outputs when it runs again."""
    import numpy as np

    model, inputs = spec.build(), spec.inputs()
    once, again = (onnx_export.eager_outputs(model, inputs) for _ in range(2))
    other = [k for k in once if not np.array_equal(once[k], again[k], equal_nan=True)]
    if other:
        raise InputError(
            f"{spec.model}: its own code gives another {other[0]} each time it runs on the same "
            "inputs (it draws random numbers, or counts), so nothing can be compared with it",
            fix="make what changes an input (layerline init own.py shows how)",
        )


def traced(spec: models.ModelSpec) -> tuple[dict[str, Any], dict[str, dict[int, str]] | None]:
    """The inputs to trace with, and the axes that are left open (None: none).

    A dynamic axis of size one would be taken for a constant.
    """
    if not spec.dynamic:
        return spec.inputs(), None
    sizes: dict[str, Any] = {a: max(getattr(spec, a) or 1, 2) for a in spec.dynamic}
    wide = _sized(spec, **sizes)
    inputs, names = wide.inputs(), {"batch": "batch", "seq": "sequence"}
    others = {names[a]: replace(wide, **{a: size + 1}).inputs() for a, size in sizes.items()}
    return inputs, onnx_export.open_axes(inputs, others)


def _sized(spec: models.ModelSpec, **sizes: Any) -> models.ModelSpec:
    """With inputs of other sizes, which the digest of the user's code is not of."""
    own = None if spec.own is None else replace(spec.own, digest="")
    return replace(spec, **sizes, own=own)


def describe(model: Any) -> dict[str, Any]:
    """Parameter count, module tree and shared parameters of a model, for model.json."""
    return {
        "class": type(model).__name__,
        "attention": getattr(getattr(model, "config", None), "_attn_implementation", None),
        "parameters": sum(p.numel() for p in model.parameters()),
        "shared_parameters": other_names(model.named_parameters(remove_duplicate=False)),
        "modules": [
            {
                "path": path,
                "class": type(module).__name__,
                "parameters": sum(p.numel() for p in module.parameters()),
            }
            for path, module in model.named_modules()
        ],
    }


@dataclass
class _Clock:
    """Seconds since the last lap, into the step's facts."""

    facts: dict[str, Any]
    last: float = field(default_factory=time.perf_counter)

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.facts[name], self.last = round(now - self.last, 3), now


@contextmanager
def _room(folder: Path) -> Iterator[None]:
    """A full disk is one clear line."""
    try:
        yield
    except OSError as e:
        if e.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise InputError(
            "no space left on the disk; nothing half-written was kept",
            file=folder,
            fix="free space or choose another --run",
        ) from e


def _require_libraries() -> None:
    missing = [n for n in _LIBRARIES if versions().get(n) is None]
    if not {"onnxruntime", "onnxruntime-gpu"} & set(versions()):
        missing.append("onnxruntime")
    if missing:
        raise ToolMissing(
            f"the export needs {', '.join(missing)}", fix="pip install 'layerline[model,cpu]'"
        )
