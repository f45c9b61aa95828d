"""The encoding of text that a tool wrote: UTF-8, UTF-16, single Latin-1 bytes."""

from __future__ import annotations

import codecs


def _bytes_as_latin1(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return error.object[error.start : error.end].decode("latin-1"), error.end


codecs.register_error("layerline_latin1", _bytes_as_latin1)
LATIN1 = "layerline_latin1"  # handler of errors: bytes that are not UTF-8 are Latin-1


def encoding_of(data: bytes) -> str:
    """The encoding of text that begins with `data`: a byte order mark, or UTF-16 by its zeros.

    UTF-8 otherwise; bytes that are not UTF-8 are then taken as Latin-1 one by one (the error
    handler of `decode`), so that a lone Latin-1 micro sign does not spoil a UTF-8 file.
    """
    if data.startswith(codecs.BOM_UTF8):
        return "utf-8-sig"
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    sample = data[:512]
    if len(sample) >= 4:
        even, odd = sample[0::2].count(0), sample[1::2].count(0)
        if odd > len(sample) * 0.4 and even == 0:
            return "utf-16-le"
        if even > len(sample) * 0.4 and odd == 0:
            return "utf-16-be"
    return "utf-8"


def decode(data: bytes) -> str:
    """`data` as text: UTF-8 with or without mark, UTF-16, Latin-1 bytes kept; never fails."""
    encoding = encoding_of(data)
    if encoding.startswith("utf-16"):
        return data.decode(encoding, errors="replace")
    return data.decode(encoding, errors=LATIN1)


def valid_text(text: str) -> str:
    """`text` with lone surrogates replaced, so that any table and file can hold it."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
