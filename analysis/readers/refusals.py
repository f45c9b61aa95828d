"""Files that no reader takes: a line that names the kind of file and says what to do instead.

By content, as the readers do. These are files that people who profile models take for captures.
"""

from __future__ import annotations

import json
import re

from ...core.errors import InputError
from .base import Head

_ENGINE = (
    "is a TensorRT engine, which only the TensorRT that built it can load",
    "read its layer information (trtexec --exportLayerInfo) instead",
)
# Beginning of the file: what it is, what to do. Sources: the formats' own documentation.
_MAGIC: tuple[tuple[bytes, str, str], ...] = (
    (b"ftrt", *_ENGINE),
    (
        b"PK\x03\x04",
        "is a zip archive (a torch.save or .pt2 file, or a packed capture)",
        "unpack it",
    ),
    (b"SQLite format 3", "is a compressed SQLite file", "decompress it"),
    (b"NVR\x00", "is a compressed Nsight Compute report", "decompress it"),
    (b"\x7fELF", "is a program or a library", "name a capture"),
    (b"%PDF", "is a PDF", "name a capture"),
    (b"\x89PNG", "is a picture", "name a capture"),
    (b"ARROW1", "is one Arrow file", "name the directory that `nsys export` wrote it into"),
    (b"PAR1", "is one Parquet file", "name the directory that `nsys export` wrote it into"),
    (b"\x89HDF", "is an HDF5 file", "export with `nsys export --type sqlite`"),
)
_NSYS = b"QDSTRM", b"NSYS", b"DBG\x00", b"Nsight Systems"
_ONNX_FIELDS = b"\x12\x1a\x22\x28\x32\x3a\x42\x72"


def explain(head: Head, kinds: str) -> InputError:
    """The error for a file of no known kind; `kinds` lists the known ones."""
    known = f"known kinds are {kinds}"
    kind = _directory(head) if head.is_dir else _binary(head) or _text(head)
    what, fix = kind or ("is of no known kind", "")
    return InputError(what, file=head.path, fix=fix or known)


def _directory(head: Head) -> tuple[str, str]:
    if "run.json" in head.entries or "manifests" in head.entries:
        return "is a run directory", "make its report with `layerline report`"
    if not head.entries:
        return "is an empty directory", "was the capture cut short?"
    return "is a directory of no known kind", "name a file in it"


def _binary(head: Head) -> tuple[str, str] | None:
    data = head.data
    for magic, what, fix in _MAGIC:
        if data.startswith(magic):
            return what, fix
    if data[257:262] == b"ustar":
        return "is a tar archive", "unpack it"
    if b"\x00" not in data[:4096] and head.text[:1].isprintable():
        return None
    name = head.path.name.lower()
    if name.endswith((".nsys-rep", ".qdrep", ".qdstrm")) or any(m in data[:256] for m in _NSYS):
        return (
            "is an Nsight Systems report",
            "export it with `nsys export --type sqlite` and read the .sqlite",
        )
    # ModelProto: ir_version (field 1), then any other of its fields (onnx.proto).
    if len(data) > 2 and data[0] == 8 and 1 <= data[1] <= 32 and data[2] in _ONNX_FIELDS:
        return "is an ONNX model", "build and profile it; `layerline nodes` makes its nodes.json"
    if name.endswith((".onnx", ".pb", ".pbtxt")):
        return "is an ONNX or protobuf model", "profile it first"
    if name.endswith((".engine", ".plan", ".trt")):
        return _ENGINE
    return "is binary data of no known kind", ""


UNKNOWN_JSON = "is JSON of no known kind"
_NCU_TEXT = re.compile(r"Context \d+, Stream \d+, Device \d+, CC \d")


def _text(head: Head) -> tuple[str, str] | None:
    text = head.stripped
    if _NCU_TEXT.search(text):
        return "is ncu's text page", "print it with --csv --page raw"
    if re.search(r'^"(?:Address|#)","Source"', text, re.MULTILINE):
        return "is ncu's source page", "print it with --csv --page raw or --page details"
    if '"Launch Attribute","Value"' in text or '"Session Attribute","Value"' in text:
        return "is ncu's session page", "print it with --csv --page raw or --page details"
    if text.startswith(("{", "[")):
        what, fix = _json(text)
        if fix or _whole(head):
            return what, fix
        return f"{what}, damaged or cut short", "copy it again, or make it again"
    if text.startswith("<"):
        return "is HTML or XML", "name a capture"
    return None


def _whole(head: Head) -> bool:
    """Whether a file that is short enough to tell is JSON, neither damaged nor cut short."""
    if head.compression is not None or head.size != len(head.data):
        return True
    try:
        json.loads(head.json)
    except (ValueError, RecursionError):
        return False
    return True


def _json(text: str) -> tuple[str, str]:
    if '"schema_version"' in text[:4096] and '"backend"' in text and '"layers"' in text:
        return (
            "is a layers.json, layerline's own list of an engine's layers, without times",
            "open it as JSON, or name the capture of that engine (in RUN/captures)",
        )
    if '"schema_version"' in text[:4096] and re.search(r'"nodes"\s*:\s*\[', text):
        return "is a nodes.json", "give it to `layerline layers CAPTURE --nodes` instead"
    if '"schema"' in text and '"nodes"' in text and '"pid"' in text:
        return "is a PyTorch execution trace, which has no times of kernels", "use torch.profiler"
    if '"opset_import"' in text or '"irVersion"' in text:
        return "is an ONNX model as JSON", "profile it first"
    if re.search(r'"(?:Time ?\(%\)|Start \(\w+\))"\s*:', text[:4096]):
        return "is a report of nsys as JSON", "print it with `nsys stats --format csv`"
    keys = list(dict.fromkeys(re.findall(r'"((?:[^"\\]|\\.){1,40})"\s*:', text[:4096])))[:4]
    begins = f" (begins with {', '.join(keys)})" if keys else ""
    return f"{UNKNOWN_JSON}{begins}", ""
