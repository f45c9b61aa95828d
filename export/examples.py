"""What a transformers model is run on: seeded tokens, pixels, audio, features, a cache.

========================== ==================================================================
input                      shape, and which configuration says it
========================== ==================================================================
input_ids                  [batch, seq], over the vocabulary without the padding token
decoder_input_ids          [batch, seq], of the decoder of an encoder-decoder
attention_mask             [batch, seq], where sequences of differing lengths are padded
pixel_values               [batch, channels, height, width] (num_channels, image_size or 224);
                           of video [batch, num_frames, …]
input_features             Whisper: [batch, num_mel_bins, 2 * max_source_positions]; otherwise
                           [batch, seq, features], of the encoder's configuration where it has one
input_values               samples of sound that become seq frames (conv_kernel, conv_stride);
                           of a spectrogram [batch, max_length, num_mel_bins]
encoder_outputs            [batch, seq, hidden], of a decoder alone; of one decode step as long as
                           the cache
cache                      of one decode step (`export.cache`): keys and values of each layer
========================== ==================================================================
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Protocol

from ..core.errors import InputError
from . import cache

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]


class Spec(Protocol):
    """What of a `models.ModelSpec` decides its inputs."""

    @property
    def model(self) -> str: ...
    @property
    def model_class(self) -> str: ...
    @property
    def config(self) -> dict[str, Any]: ...
    @property
    def part(self) -> str: ...
    @property
    def padded(self) -> bool: ...
    @property
    def past(self) -> int | None: ...
    @property
    def batch(self) -> int | None: ...
    @property
    def seq(self) -> int | None: ...
    @property
    def seed(self) -> int: ...
    def cache_shapes(self) -> cache.Shapes: ...


TOKENS, PIXELS, FEATURES, SOUND = "input_ids", "pixel_values", "input_features", "input_values"
_OWN = "write own.py with a function that makes it and its inputs: layerline init own.py"
_IMAGE = 224  # of models whose configuration does not say: they take any size


def configuration(values: dict[str, Any]) -> Any:
    """The configuration object of `ModelSpec.config`, on which it may be changed."""
    from transformers import PretrainedConfig
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    values = PretrainedConfig._decode_special_floats(dict(values))
    return CONFIG_MAPPING[values["model_type"]].from_dict(values)


def text_of(config: Any) -> Any:
    """The configuration of the part that reads text; the configuration itself where it has one
    part only."""
    return getattr(config, "text_config", None) or config


def taken(model_class: Any, config: Any, part: str = "whole") -> tuple[str, ...]:
    """The names of the inputs that a transformers class is run on, of those that `inputs` makes."""
    from transformers.models.auto import modeling_auto as auto

    parameters = inspect.signature(model_class.forward).parameters
    main = getattr(model_class, "main_input_name", TOKENS)
    names = [main] if main in parameters else []
    both = auto.MODEL_FOR_ZERO_SHOT_IMAGE_CLASSIFICATION_MAPPING_NAMES
    if config.model_type in both and {TOKENS, PIXELS} <= set(parameters):
        names = [TOKENS, PIXELS]
    if "decoder_input_ids" in parameters and getattr(config, "is_encoder_decoder", False):
        if part == "encoder":
            return tuple(names)
        return ("decoder_input_ids", "encoder_outputs") if part == "decoder" else (
            *names, "decoder_input_ids")  # fmt: skip
    return tuple(names)


def has_sequence(names: tuple[str, ...], config: Any) -> bool:
    """Whether --seq says anything about the inputs of these names."""
    if {TOKENS, "decoder_input_ids"} & {*names}:
        return True
    if SOUND in names:
        return hasattr(config, "conv_stride")
    return FEATURES in names and not _whole_spectrogram(config)


def _whole_spectrogram(config: Any) -> bool:
    """Whether a model of sound reads spectrograms of one length, as Whisper does."""
    return hasattr(config, "num_mel_bins") and hasattr(config, "max_source_positions")


def inputs(spec: Spec) -> dict[str, Any]:
    """The inputs of a spec: int64 tokens, fp32 everything else. InputError for one that nothing
    here makes."""
    import transformers

    config = configuration(spec.config)
    names = taken(getattr(transformers, spec.model_class), config, spec.part)
    if not names:
        raise InputError(
            f"{spec.model}: {spec.model_class} reads neither tokens, pixels nor sound",
            fix=_OWN,
        )
    maker = _Maker(spec, config)
    found: dict[str, Any] = {}
    for name in names:
        try:
            found[name] = getattr(maker, name)()
        except AttributeError as e:  # of the maker, or of a configuration of another form
            raise InputError(
                f"{spec.model}: {spec.model_class} reads {name}, which nothing here makes for it",
                fix=_OWN,
            ) from e
    if spec.padded:
        found["attention_mask"] = maker.attention_mask()
    if spec.past is not None:
        cached = cache.name_of(getattr(transformers, spec.model_class))
        found[cached or cache.NAMES[0]] = maker.cache()
    return found


class _Maker:
    """Makes each input once, in a fixed order of draws."""

    def __init__(self, spec: Spec, config: Any) -> None:
        import numpy as np

        self.spec, self.config = spec, config
        self.batch, self.seq = spec.batch or 1, spec.seq or 1
        self.generator = np.random.default_rng(spec.seed)

    def input_ids(self, length: int | None = None) -> Array:
        import numpy as np

        text = text_of(self.config)
        vocabulary = int(text.vocab_size)
        tokens = self.generator.integers(
            0, vocabulary, (self.batch, length or self.seq), dtype=np.int64
        )
        padding = getattr(text, "pad_token_id", None)
        if isinstance(padding, int) and vocabulary > 1:
            # positions of RoBERTa's kind are counted over what is not padding
            tokens[tokens == padding] = (padding + 1) % vocabulary
        return tokens

    decoder_input_ids = input_ids

    def attention_mask(self) -> Array:
        """Lengths from half of the sequence on, the first one whole."""
        import numpy as np

        lengths = self.generator.integers(self.seq // 2 or 1, self.seq + 1, self.batch)
        lengths[0] = self.seq
        return (np.arange(self.seq) < lengths[:, None]).astype(np.int64)

    def _normal(self, *shape: int) -> Array:
        import numpy as np

        return self.generator.standard_normal(shape, dtype=np.float32)

    def pixel_values(self) -> Array:
        vision = getattr(self.config, "vision_config", None) or self.config
        size = getattr(vision, "image_size", None) or _IMAGE
        if isinstance(size, dict):
            size = (size.get("height", _IMAGE), size.get("width", _IMAGE))
        height, width = size if isinstance(size, list | tuple) else (size, size)
        frames = getattr(vision, "num_frames", None)
        extra = (frames,) if isinstance(frames, int) else ()
        channels = getattr(vision, "num_channels", 3)
        return self._normal(self.batch, *extra, channels, height, width)

    def input_features(self) -> Array:
        config = getattr(self.config, "encoder_config", None) or self.config
        if _whole_spectrogram(config):
            return self._normal(self.batch, config.num_mel_bins, 2 * config.max_source_positions)
        names = ("feature_projection_input_dim", "input_feat_per_channel", "num_mel_bins")
        width = next((int(getattr(config, n)) for n in names if hasattr(config, n)), 80)
        return self._normal(self.batch, self.seq, width)

    def input_values(self) -> Array:
        kernels = getattr(self.config, "conv_kernel", None)
        if kernels is None:
            return self._normal(self.batch, self.config.max_length, self.config.num_mel_bins)
        samples = self.seq
        for kernel, stride in zip(
            reversed(kernels), reversed(self.config.conv_stride), strict=True
        ):
            samples = (samples - 1) * stride + kernel
        return self._normal(self.batch, samples)

    def cache(self) -> tuple[tuple[Array, ...], ...]:
        return tuple(
            tuple(self._normal(*shape) for shape in pair) for pair in self.spec.cache_shapes()
        )

    def encoder_outputs(self) -> tuple[Array]:
        encoder = getattr(self.config, "encoder", None) or self.config
        width = encoder.d_model if hasattr(encoder, "d_model") else encoder.hidden_size
        length = getattr(self.config, "max_source_positions", None) or self.spec.past or self.seq
        return (self._normal(self.batch, length, width),)
