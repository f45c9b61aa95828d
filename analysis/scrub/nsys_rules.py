"""What the tables of an nsys export say about people and machines; the same for every format.

Analysis reads kernels, copies, runtime calls, NVTX ranges, graph nodes, names, versions and GPUs'
names. Of the lists of properties (META_DATA_CAPTURE, TARGET_INFO_SYSTEM_ENV, META_DATA_EXPORT)
only rows that are known to be harmless stay. Source: exports of nsys 2020.3 to 2026.1 and the
schema pages of its user guides.
"""

from __future__ import annotations

import re

from ..readers.nsys import schema
from . import fields

_NUMBER = re.compile(r"(?:true|false|-?\d{1,12}(?:\.\d{1,6})?)?\Z", re.IGNORECASE)
# Lists of properties: the names of rows that stay whatever their value.
_KEPT = {
    "META_DATA_CAPTURE": re.compile(
        r"CAPTURE_EVENT_TYPE|START_TRIGGER|STOP_TRIGGER|DEVICE_TYPE|"
        r"PROCESS_\d+:(?:HOW_TO_ATTACH|[A-Z0-9_]+:MODE)|OS_RUNTIME_OPTIONS:\w+"
    ),
    "META_DATA_EXPORT": re.compile(
        r"EXPORT_(?:PRODUCT_\w+|SCHEMA_\w+|PLATFORM|ARCH|TIME|TIME_UTC|TIME_LOCAL)"
    ),
    "TARGET_INFO_SYSTEM_ENV": re.compile(
        r"CpuArchitecture|SupportedABIs|Supported64BitABIs|CpuDescription|NvDriverVersion|"
        r"HardwarePlatform|SoftwarePlatform|OsDescription|CudaDriverVersion|"
        r"SoftwareReleaseVersion|KernelVersion"
    ),
}
_KEPT["EXPORT_META_DATA"] = _KEPT["META_DATA_EXPORT"]
_IDENTITY = {
    "USER_NAME": "user",
    "PROCESS_USER_NAME": "user",
    "EXPORT_USER": "user",
    "EXPORT_HOST": "host",
    "HOSTNAME": "host",
    "DEVICE_DISPLAY_NAME": "host",
}

# Columns whose kind their name alone does not tell.
_COLUMNS = {
    ("PROCESSES", "name"): "process",
    ("ANALYSIS_FILE", "filename"): "file",
    ("TARGET_INFO_PROCESS", "name"): "process",
    ("TARGET_INFO_NIC_INFO", "name"): "serial",
    ("TARGET_INFO_NETWORK_DEVICES", "name"): "serial",
    ("PROCESS_STREAMS", "content"): "remove",
    ("ANALYSIS_FILE", "content"): "remove",
}

# Columns with the ids of names that analysis shows, and the place they are counted under.
NAMES = {
    schema.KERNELS: ("shortName", "demangledName"),
    schema.RUNTIME: ("nameId",),
    schema.NVTX: ("textId",),
}
NAMED = "StringIds.value (names)"

# Columns that lead to private texts in StringIds.
_REFERENCES = {
    ("ThreadNames", "nameId"): "thread",
    ("ProcessStreams", "filenameId"): "file",
    ("ProcessStreams", "contentId"): "remove",
    ("ANALYSIS_FILE", "filenameId"): "file",
    ("ANALYSIS_FILE", "contentId"): "remove",
    ("PROCESSES", "nameId"): "process",
}
_MAY_REFER = re.compile(
    r"(?:\A|_)(?:name|text|symbol|module|string|label|message|content|filename|path)(?:Id)?\Z|"
    r"(?:Name|Text|Symbol|Module|String|Label|Message|Content|Filename|Path)(?:Id)?\Z|"
    r"(?:key|type|value)Id\Z"
)


def is_properties(table: str) -> bool:
    """Whether a table is a list of properties (columns `name` and `value`)."""
    return table in _KEPT


def keeps(table: str, name: str, value: str) -> bool:
    """Whether a row of a list of properties stays."""
    return bool(_KEPT[table].fullmatch(name) or _NUMBER.match(value))


def kind_of_property(table: str, name: str) -> tuple[str | None, str]:
    """What a property that is left out teaches (a kind, or None), and what it is counted as."""
    last = name.rsplit(":", 1)[-1]
    upper = last.upper()
    if last == "WORKING_DIR":
        return "dir", "directory"
    if last.startswith(("COMMAND", "ARGUMENT")):
        return None, "command line"
    kind = "environment" if "ENVIRONMENT" in upper else _IDENTITY.get(upper)
    return kind, kind or "property"


def kind_of_column(table: str, column: str) -> str | None:
    """The kind of a text column; None where only patterns are looked for."""
    return _COLUMNS.get((table.upper(), column)) or fields.kind_of(column)


def kind_of_reference(table: str, column: str) -> str | None:
    """The kind of the private texts that a column of ids leads to; None for others."""
    if (table, column) in _REFERENCES:
        return _REFERENCES[table, column]
    if table.endswith("CALLCHAINS") and column == "module":
        return "module"
    kind = fields.kind_of(column[:-2]) if column.endswith("Id") else None
    return kind if kind in ("host", "user", "file", "path", "process", "remove") else None


def may_refer(column: str) -> bool:
    """Whether a column of numbers may hold ids of StringIds."""
    return _MAY_REFER.search(column) is not None
