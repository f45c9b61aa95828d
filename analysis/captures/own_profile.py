"""What a run says about an ONNX Runtime profile of its own that lies in its captures folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ...core.capture_names import CaptureName
from ...core.tables import with_columns
from ...engines.layers import load as load_layers
from ..attribution.onnxruntime import join
from ..rundir.files import needed
from .files import profile_form

_SUFFIX = ".profile.json"


def warmup_runs(profile: Path) -> int | None:
    """How many of the profile's first runs were warm-up, by the meta.json beside it; None where
    there is none, or it does not say."""
    path, own = _meta(profile), CaptureName.parse(profile)
    form = profile_form(None if own is None else own.backend)
    meta = None if path is None else needed(path, form)
    return None if meta is None else meta.facts.warmup_runs


def layer_list(profile: Path, nodes: Path | None) -> Path | None:
    """The layers.json of the engine that a run's profile is of: the run resolved with all that the
    build knew, fused names of ONNX Runtime's own included. Null where `nodes` is not the run's
    own (then it decides), or there is no run around."""
    if _meta(profile) is None or profile.parent.name != "captures":
        return None
    run = profile.parent.parent
    if nodes is not None and nodes.resolve().parent != (run / "export").resolve():
        return None
    path = run / "engines" / f"{profile.name.removesuffix(_SUFFIX)}.layers.json"
    return path if path.is_file() else None


def resolved(ops: pa.Table, listed: Path) -> pa.Table:
    """`ops` with the layers of a layers.json, as the report has them."""
    document: dict[str, Any] = load_layers(listed)
    # A kernel is of the layer of its node.
    by_node = with_columns(ops, {"name": pc.coalesce(ops["layer"], ops["name"])})
    joined = join(by_node, document["layers"], document.get("precision"))
    return with_columns(joined, {"name": ops["name"]})


def _meta(profile: Path) -> Path | None:
    if not profile.name.endswith(_SUFFIX):
        return None
    path = profile.with_name(f"{profile.name.removesuffix('.json')}.meta.json")
    return path if path.is_file() else None
