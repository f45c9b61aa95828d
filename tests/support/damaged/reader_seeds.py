"""Small valid files of every kind, made here, and mutations of them.

`SEEDS` maps a reader's module to functions that write one file (or directory) and return its
path. A reader without a seed fails the fuzz test: a new kind comes with a seed.
"""

from __future__ import annotations

import gzip
import json
import pickle
import sqlite3
from collections.abc import Callable, Iterable
from pathlib import Path

import paths
import pyarrow as pa
import pyarrow.parquet as pq

DATA = paths.DATA / "ncu"

# Pieces that parsers trip over.
TOKENS = (
    b'"', b'""', b'","', b"\\", b"\n", b"\r\n", b"\x00", b"\xff", b"\xef\xbb\xbf", b"[", b"]", b"{",
    b"}", b":", b",", b"null", b"NaN", b"-Infinity", b"1e999", b"-1", b"9" * 30, b"0.1", b"true",
    b"\\ud800", b"\x1b[31m", b"==PROF== ", b'"ID","Process ID"', b'"Layers": [', b'"ph":"X"',
    b"\x1f", b"\x1e", b"(", b"\x80\x04", b".", b"r\xff\xff\xff\xff", b"cos\nsystem\n", b"''",
)  # fmt: skip


def _file(name: str, data: bytes | str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        path = folder / name
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return path

    return write


_TENSOR = {"Name": "x", "Location": "Device", "Dimensions": [1, 2], "Format/Datatype": "Half"}
_LAYERS = {
    "Layers": [
        {
            "Name": "a/Gemm + b/Relu",
            "LayerType": "gemm",
            "Inputs": [_TENSOR],
            "Outputs": [_TENSOR],
            "TacticName": "t",
            "StreamId": 0,
            "Metadata": "[ONNX Layer: a/Gemm]\x1e[ONNX Layer: b/Relu]",
        }
    ],
    "Bindings": ["x"],
}
_ONELINE = (
    "Layers:\nName: a, LayerType: kgen, Inputs: [ { Name: x, Dimensions: [1], Format/Datatype: "
    "Half }], Outputs: [], TacticValue: 0x1, Metadata: [ONNX Layer: a]\n\nBindings:\nx\n"
)
_PROFILE = (
    '[\n  { "count" : 2 }\n, { "name" : "a || b", "timeMs" : 2.5, "averageMs" : 1.25, '
    '"medianMs" : 1.25, "percentage" : 100 }\n]\n'
)
_TRTEXEC = (
    "[I] === Profile (2 iterations ) ===\n[I]   Layer   Time (ms)   Avg. Time (ms)   Time %\n"
    "[I]       a        2.00             1.00     80.0\n"
    "[I]   b + c        0.50             0.25     20.0\n"
    "[I]   Total        2.50             1.25    100.0\n[I] \n"
)
_TIMES = '[\n  { "startEnqMs" : 0, "h2dMs" : 0, "computeMs" : 1, "latencyMs" : 1.5 }\n]\n'
_NCU_DETAILS = (
    '==PROF== Connected to process 1\n"ID","Process ID","Process Name","Host Name","thread Domain:'
    'Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg","Id:Domain:Start/Stop_Range:'
    'PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg","Kernel Name","Context","Stream","Section Name",'
    '"Metric Name","Metric Unit","Metric Value","Rule Name"\n'
    '"0","1","p","h","1  ""T:a","b:Json:{"x": ""}:RGB:0x1:REGISTERED:a","b"" ",'
    '" ""9:d:s:none:none"" ","k","1","7","S","M","%","1,234.5",\n'
    '"1","1","p","h","","","k","1","7","S","","","","R"\n'
)
_NCU_RAW = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","m.sum","n"\n'
    '"","","","","","","","ns",""\n"0","1","p","h","k","1","7","1,024","n/a"\n'
)
_SNAPSHOT = {
    "segments": [
        {
            "device": 0,
            "address": 4096,
            "total_size": 1024,
            "stream": 0,
            "segment_type": "small",
            "blocks": [{"size": 1024, "state": "inactive", "frames": [{"name": "f", "line": 1}]}],
        }
    ],
    "device_traces": [[{"action": "alloc", "addr": 4096, "size": 8, "stream": 0, "time_us": 1}]],
}
_ORT = [
    {"cat": "Session", "pid": 1, "tid": 1, "dur": 9, "ts": 0, "ph": "X", "name": "model_run",
     "args": {}},
    {"cat": "Node", "pid": 1, "tid": 1, "dur": 4, "ts": 1, "ph": "X",
     "name": "a/Gemm_kernel_time", "args": {"op_name": "Gemm", "provider": "CPUExecutionProvider",
     "node_index": "0", "input_type_shape": [{"float": [1, 2]}]}},
]  # fmt: skip
_TRACE = {
    "schemaVersion": 1,
    "deviceProperties": [],
    "traceEvents": [
        {"ph": "X", "cat": "user_annotation", "name": "layerline/iteration/0", "pid": 1, "tid": 1,
         "ts": 0, "dur": 50},
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1.5, "dur": 20,
         "args": {"External id": 1, "Sequence number": 3}},
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 5,
         "dur": 2, "args": {"correlation": 7, "External id": 1}},
        {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 9, "dur": 6,
         "args": {"correlation": 7, "device": 0, "stream": 7, "External id": 1}},
        {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}},
    ],
}  # fmt: skip
_NSYS_STATS = (
    "Processing [a.sqlite] with [/opt/reports/cuda_gpu_kern_sum.py]... \n"
    "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name\n"
    '100.0,20,2,10.0,10.0,10,10,0.0,"void k<a, b>(int)"\n\n'
    "Processing [a.sqlite] with [/opt/reports/nvtx_sum.py]... \n"
    "SKIPPED: a.sqlite does not contain NV Tools Extension (NVTX) data.\n"
)
_NSYS_STATS_TSV = (
    "Hello\nRunning [/opt/reports/nvtxsum.py a.sqlite]... SKIPPED: no NVTX data.\n\n"
    "[2/2] Executing 'gpukernsum' stats report\n\n"
    "Time(%)\tTotal Time (ns)\tAverage\tName\n"
    "99.5\t1200\t600.0\ta<int> b\n"
    "0.5\t6\t6.0\tc\n"
)
_NSYS_TABLES: dict[str, list[dict[str, object]]] = {
    "StringIds": [{"id": 1, "value": "kernel"}, {"id": 2, "value": "cudaLaunchKernel_v7000"}],
    "CUPTI_ACTIVITY_KIND_KERNEL": [
        {"start": 100, "end": 150, "deviceId": 0, "streamId": 7, "correlationId": 5,
         "globalPid": 1 << 24, "demangledName": 1, "shortName": 1, "graphNodeId": 0},
    ],
    "CUPTI_ACTIVITY_KIND_RUNTIME": [
        {"start": 20, "end": 30, "globalTid": (1 << 24) + 1, "correlationId": 5, "nameId": 2},
    ],
    "NVTX_EVENTS": [
        {"start": 10, "end": 40, "eventType": 59, "text": "range", "textId": None,
         "globalTid": (1 << 24) + 1, "domainId": 0},
    ],
}  # fmt: skip


def _nsys_sqlite(folder: Path) -> Path:
    path = folder / "a.sqlite"
    with sqlite3.connect(path) as db:
        for name, rows in _NSYS_TABLES.items():
            columns = list(rows[0])
            db.execute(f"create table {name} ({', '.join(columns)})")
            marks = ", ".join("?" * len(columns))
            db.executemany(f"insert into {name} values ({marks})", [list(r.values()) for r in rows])
    db.close()
    return path


def _nsys_parquet(folder: Path) -> Path:
    out = folder / "export"
    out.mkdir()
    for name, rows in _NSYS_TABLES.items():
        pq.write_table(pa.Table.from_pylist(rows), out / f"{name}.parquet")
    return out


SEEDS: dict[str, list[Callable[[Path], Path]]] = {
    "tensorrt.layers": [
        _file("a.json", json.dumps(_LAYERS)),
        _file("b.txt", _ONELINE),
        _file("c.json", '{"Layers": ["a", "b"], "Bindings": ["x"]}\n{"Layers": ["c"]}'),
    ],
    "tensorrt.profile": [
        _file("a.json", _PROFILE),
        _file("b.json", _TIMES),
        _file("c.json", '{"a": [0.1, 0.2], "b": [1.0, 2.0]}'),
        _file("d.json", '{"performance_summary": {"Latency": [0.1]}}'),
        _file("e.log", _TRTEXEC),
    ],
    "ncu.page": [
        _file("a.csv", _NCU_DETAILS),
        _file("b.csv", _NCU_RAW.encode("utf-16")),
        _file("c.csv", _NCU_RAW),
    ],
    "ncu.report": [_file("a.ncu-rep", (DATA / "two_kernels.ncu-rep").read_bytes())],
    "memory.snapshot": [
        _file("a.pickle", pickle.dumps(_SNAPSHOT, 4)),
        _file("b.pickle", pickle.dumps(_SNAPSHOT, 2)),
        _file("c.json", json.dumps(_SNAPSHOT)),
    ],
    "onnxruntime.profile": [_file("a.json", json.dumps(_ORT))],
    "torch.trace": [
        _file("a.json", json.dumps(_TRACE)),
        _file("b.json.gz", gzip.compress(json.dumps(_TRACE, indent=1).encode())),
        _file("c.json", json.dumps(_TRACE["traceEvents"])),
    ],
    "nsys.sqlite": [_nsys_sqlite],
    "nsys.parquet": [_nsys_parquet],
    "nsys.stats": [_file("a.csv", _NSYS_STATS), _file("a.txt", _NSYS_STATS_TSV)],
    "parameters.log": [
        _file("a.log", "1700000000.25, 0: 0:4 2:1\n1700000000.5, iter 1:\n1700000001, 3: 1:9\n")
    ],
}

Mutation = tuple[str, int, int, bytes]
OPERATIONS = ("flip", "cut", "delete", "repeat", "insert", "splice")


def mutate(data: bytes, mutations: Iterable[Mutation]) -> bytes:
    """Apply mutations: (operation, place, size or value, bytes); places wrap around."""
    content = bytearray(data)
    for operation, place, size, extra in mutations:
        at = place % (len(content) + 1)
        if operation == "flip" and content:
            content[at % len(content)] ^= 1 << (size % 8)
        elif operation == "cut":
            del content[at:]
        elif operation == "delete":
            del content[at : at + size]
        elif operation == "repeat":
            content[at:at] = content[at : at + size] * 3
        elif operation == "insert":
            content[at:at] = extra
        elif operation == "splice":
            content[at : at + size] = extra
    return bytes(content)
