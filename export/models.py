"""Which model, with which weights, on which inputs: the part of a run that every stage shares.

A `ModelSpec` is written to ``export/model.json``; `load_spec` reads it back. `build` makes the
same eager model in any process (same seed, same weights, bit for bit), and `inputs` the same
inputs. Module paths used everywhere are those of the built model's ``named_modules()``.
"""

from __future__ import annotations

import copy
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.documents import forms
from ..core.errors import InputError
from ..core.files import read_json
from ..core.module_paths import child
from . import cache, examples, nested, own
from .overrides import ATTENTION_KEY, EXPERTS_KEY
from .own import Made, Own
from .quiet import FAULTS, gist, quiet, where

if TYPE_CHECKING:
    import torch
    from torch import nn

SCHEMA_VERSION = 1

# Engine precision to the precision of the ONNX file it is built from. TF32 is fp32 in the file.
ONNX_PRECISIONS = {"fp32": "fp32", "tf32": "fp32", "fp16": "fp16", "bf16": "bf16"}
_DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}


def onnx_precision(precision: str) -> str:
    """The ONNX file's precision for an engine's. InputError for an unknown one."""
    if precision not in ONNX_PRECISIONS:
        raise InputError(
            f"unknown precision {precision}", fix=f"choose from {', '.join(ONNX_PRECISIONS)}"
        )
    return ONNX_PRECISIONS[precision]


@dataclass(frozen=True)
class ModelSpec:
    """A model, its weights and its input. `source` is builtin, folder, hub or own.

    `location` is a folder's absolute path, a hub id or the user's function, `weights` random,
    loaded or own, `config` the complete configuration with the overrides in it (special floats as
    transformers writes them), `attn_implementation` None while the library chooses,
    `experts_implementation` None where there are no experts. `batch` and `seq` are None where the
    model takes none. `part` of an encoder-decoder: whole, encoder or decoder. `padded`: sequences
    of differing lengths with their mask. `past`: tokens in the cache of one decode step; None: no
    cache. `own`: what is known of the user's code.
    """

    model: str
    source: str
    location: str | None
    revision: str | None
    weights: str
    task: str
    model_class: str
    config: dict[str, Any]
    overrides: dict[str, Any]
    attn_implementation: str | None
    seed: int
    batch: int | None
    seq: int | None
    dynamic: tuple[str, ...] = ()
    experts_implementation: str | None = None
    part: str = "whole"
    padded: bool = False
    past: int | None = None
    own: Own | None = None

    def build(
        self, precision: str = "fp32", training: bool = False, pristine: bool = False
    ) -> nn.Module:
        """The eager model on the CPU, in eval mode unless `training`, without a cache.

        Weights are made or loaded in fp32 and then cast, as `cast` says. Random ones are as
        transformers initialises them where they are to be `pristine`, else as `_unfold` says.
        Raises InputError for a configuration that the model refuses or weights that do not fit.
        """
        if self.own is not None:
            model = self.made(anew=True).model
            return cast(model.train(training), precision)
        import torch
        import transformers

        model_class = getattr(transformers, self.model_class)
        config = examples.configuration(self.config)
        config.use_cache = self.past is not None
        chosen = self._chosen()
        with quiet(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            try:
                if self.weights == "random":
                    model = model_class._from_config(config, **chosen)
                    if not pristine:
                        _unfold(model)
                else:
                    model = model_class.from_pretrained(
                        self.location, revision=self.revision or "main", config=config, **chosen
                    )
                if self.part == "encoder":
                    model = model.get_encoder()
            except FAULTS as e:
                if isinstance(e, RuntimeError) and "memory" in str(e):
                    raise MemoryError(str(e)) from e
                raise InputError(
                    f"{self.model}: {self.model_class} cannot be made ({gist(e)}{where(e)})",
                    fix="check the configuration and --set",
                ) from e
        self._take_encoded(model)
        if self.past is not None:
            cache.attach(model, self.past)
        model.requires_grad_(training)
        return cast(model.train(training), precision)

    def _chosen(self) -> dict[str, Any]:
        """What is chosen when a transformers model is made."""
        import torch

        implementations = {
            ATTENTION_KEY: self.attn_implementation,
            EXPERTS_KEY: self.experts_implementation,
        }
        given = {k: v for k, v in implementations.items() if v is not None}
        return {"dtype": torch.float32, **given}

    def _take_encoded(self, model: nn.Module) -> None:
        """Let a decoder be given what an encoder left."""
        if self.part == "decoder":
            model.register_forward_pre_hook(_encoded, with_kwargs=True)

    def cache_shapes(self) -> cache.Shapes:
        """The shapes of each layer's keys and values before a decode step. InputError for a model
        that keeps others."""
        import torch
        import transformers

        config = examples.configuration(self.config)
        before = replace(self, seq=self.past, past=None).inputs()
        # The others look into the mask, which holds nothing there; the cache is the same.
        chosen = {**self._chosen(), ATTENTION_KEY: "eager"}
        with quiet(), torch.device("meta"):
            model = getattr(transformers, self.model_class)._from_config(config, **chosen)
        self._take_encoded(model)
        return cache.shapes(model.eval(), tensors(before, device="meta"))

    def inputs(self) -> dict[str, Any]:
        """Keyword arguments of the model: numpy arrays, floating ones in fp32, and constants.

        Of a transformers model seeded tokens, pixels or features, as `examples` says.
        """
        if self.own is not None:
            return self.made().inputs
        return examples.inputs(self)

    def made(self, *, anew: bool = False) -> Made:
        """What the user's function makes. InputError where that is not what was exported."""
        assert self.own is not None and self.location is not None, "of a model of the user's"
        where = own.target(self.location, self.own.folder)
        assert where is not None, "resolved when it was exported"
        texts = {k: str(v) for k, v in self.overrides.items()}
        shapes = {k: getattr(self, k) for k in self.own.takes}
        made = own.made(where, texts, shapes, self.seed, anew=anew)
        if self.own.digest not in ("", made.own.digest):
            raise InputError(
                f"{self.location}: made other weights or inputs than when it was exported",
                fix="seed what it draws from, or, where you changed it, use another --run",
            )
        return made

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"schema_version": SCHEMA_VERSION, **asdict(self), "dynamic": list(self.dynamic)}


def _encoded(_model: nn.Module, args: Any, kwargs: dict[str, Any]) -> Any:
    """Give an encoder's output as the library does: not every decoder takes a tuple."""
    from transformers.modeling_outputs import BaseModelOutput

    (state,) = kwargs["encoder_outputs"]
    return args, {**kwargs, "encoder_outputs": BaseModelOutput(last_hidden_state=state)}


def _unfold(model: nn.Module) -> None:
    """Move vectors (biases, factors of norms) a little off their initial zeros and ones.

    Exporters and engines leave out an addition of zeros and a product with ones, and store equal
    vectors once; eager PyTorch computes them all, and no trained model has them.
    """
    import torch

    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter), alpha=0.02)


def load_spec(path: Path) -> ModelSpec:
    """Read ``export/model.json``. Raises InputError for a missing or foreign file."""
    document = read_json(path, fix="export again")
    if not isinstance(document, dict) or document.get("schema_version") != SCHEMA_VERSION:
        raise InputError("is not a model.json of this version", file=path, fix="export again")
    return forms.check(document, ModelSpec, path, "export again")


def cast(model: nn.Module, precision: str) -> nn.Module:
    """Cast to the file's precision in place, as ``from_pretrained(dtype=…)`` does.

    Parameters and saved buffers are cast, and computed ones that the class makes in the precision
    asked for (masks). Others (rotary frequencies) stay in fp32, and so do modules that
    transformers keeps in fp32 (``_keep_in_fp32_modules`` in fp16, ``_keep_in_fp32_modules_strict``
    in both): casting those, as ``model.half()`` would, loses accuracy that no deployed model loses.
    """
    import torch

    precision = onnx_precision(precision)
    if precision == "fp32":
        return model
    kept = set(getattr(model, "_keep_in_fp32_modules_strict", None) or ())
    if precision == "fp16":
        kept |= set(getattr(model, "_keep_in_fp32_modules", None) or ())
    dtype = getattr(torch, _DTYPES[precision])
    wanted = set(model.state_dict(keep_vars=True)) | _made_in(model, dtype)
    with torch.no_grad():
        for path, module in model.named_modules():
            if kept & set(path.split(".")):
                continue
            for parameter in module._parameters.values():
                if parameter is not None and parameter.is_floating_point():
                    parameter.data = parameter.data.to(dtype)
            for name, buffer in module._buffers.items():
                floating = buffer is not None and buffer.is_floating_point()
                if floating and child(path, name) in wanted:
                    module._buffers[name] = buffer.to(dtype)
    if hasattr(model, "config"):
        model.config.dtype = dtype
    return model


def _made_in(model: nn.Module, dtype: torch.dtype) -> set[str]:
    """The buffers that a class of transformers makes in `dtype` when it is made in it; none of a
    class that is not made from a configuration alone."""
    import torch

    make = getattr(type(model), "_from_config", None)
    if make is None:
        return set()
    try:
        with quiet(), torch.random.fork_rng(devices=[]), torch.device("meta"):
            made = make(copy.deepcopy(model.config), dtype=dtype)
    except FAULTS:
        return set()
    return {name for name, buffer in made.named_buffers() if buffer.dtype == dtype}


def tensors(inputs: dict[str, Any], precision: str = "fp32", device: Any = None) -> dict[str, Any]:
    """Keyword arguments as new tensors, floating ones in the precision of the weights."""
    import torch

    dtype = getattr(torch, _DTYPES[onnx_precision(precision)])

    def tensor(array: Any) -> torch.Tensor:
        value = torch.tensor(array, device=device)
        return value.to(dtype) if value.is_floating_point() else value

    return dict(nested.mapped(inputs, tensor))


def folder_files(folder: Path) -> list[Path]:
    """The files of a model folder that decide what is exported: configuration and weights."""
    suffixes = {".json", ".safetensors", ".bin"}
    return sorted(p.resolve() for p in folder.iterdir() if p.is_file() and p.suffix in suffixes)


def looks_like_path(model: str) -> bool:
    """Whether the user means a folder: it exists, or it is written like a path."""
    return model.startswith((".", "/", "~")) or model.endswith(os.sep) or Path(model).is_dir()
