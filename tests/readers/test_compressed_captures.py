"""Captures that are opened in place: a compressed one says to decompress it, and nothing else."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest

from layerline.analysis.readers import registry
from layerline.core.errors import InputError
from layerline.core.files import read_json


@pytest.mark.parametrize("start", [b"SQLite format 3\x00", b"NVR\x00"])
@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_what_is_opened_in_place_is_to_be_decompressed(
    tmp_path: Path, start: bytes, pack: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "capture.gz"
    path.write_bytes(pack(start + bytes(500)))
    with pytest.raises(InputError, match=r"is a compressed .*; decompress it") as caught:
        registry.identify(path)
    assert caught.value.fix == "decompress it"


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_json_of_an_option_is_to_be_decompressed_and_not_made_again(
    tmp_path: Path, pack: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "nodes.json.gz"
    path.write_bytes(pack(b'{"schema_version": 1, "nodes": []}'))
    with pytest.raises(InputError, match="is compressed") as caught:
        read_json(path)
    assert caught.value.fix == "decompress it"
    path.write_bytes(b"{oops")
    with pytest.raises(InputError, match="is not JSON"):
        read_json(path)
