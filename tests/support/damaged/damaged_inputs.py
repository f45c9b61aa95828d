"""One damaged input for one command that reads files, by a number: the same one each time.

A pristine set of files of every kind and a small run are made once in a folder; a case copies what
it needs, damages one file of it, and gives the command line. What the damage stands for: bytes that
flip or go, halves of files, values of another type in JSON and SQLite, another kind of file where
one kind is asked for, and what is no file at all (pipes, devices, loops, bombs).
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import random
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h100_tiny
import json_mutations
import parameter_runs
import paths
import rank_traces
from onnx import TensorProto, helper, save
from reader_seeds import OPERATIONS, SEEDS, TOKENS, mutate

BOMB = 1 << 28
_RESOLVE = paths.DATA / "resolve"


@dataclass(frozen=True)
class Case:
    """A command line, with the damaged file in it or in the run that it names."""

    number: int
    arguments: list[str]
    damage: str


class Inputs:
    """The pristine files, made in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: list[Path] = []
        for name, writers in SEEDS.items():
            for number, write in enumerate(writers):
                if name == "ncu.report":  # NVIDIA's native library reads it
                    continue
                place = folder / f"{name}-{number}"
                place.mkdir(parents=True)
                self.files.append(write(place))
        self.nodes = self._kept(_RESOLVE / "tensorrt86_nodes.json")
        self._kept(_RESOLVE / "tensorrt_rtx_layers.json")
        self._kept(paths.DATA / "ncu" / "h100_tiny.counters.parquet")
        self._kept(paths.DATA / "ncu" / "known_flop.raw.csv")
        self._kept(paths.DATA / "h200_memory" / "tiny" / "train.fp32.memory.pickle.gz")
        self.engine = self._kept(paths.DATA / "nsys" / "h100_tensorrt86_fp16.sqlite")
        self.onnx = self._onnx(folder / "own.onnx")
        ranks = folder / "ranks"
        ranks.mkdir()
        work = [[[rank_traces.Work(100), rank_traces.Work(200)]]] * 3
        self.files += rank_traces.write(ranks, rank_traces.Plan(work, [50], elements=[1 << 20]))[0]
        self.files.append(parameter_runs.log(folder / "changes.log", [[1, 2], [3, 4]]))
        self.files.append(parameter_runs.index(folder / "names.json"))
        self.run = folder / "run"
        h100_tiny.write_run(self.run)
        self.profile = folder / "tensorrt.profile-0" / "a.json"
        self.info = folder / "tensorrt.layers-0" / "a.json"

    def _kept(self, path: Path) -> Path:
        kept = self.folder / path.name
        shutil.copyfile(path, kept)
        self.files.append(kept)
        return kept

    def _onnx(self, path: Path) -> Path:
        value = helper.make_tensor_value_info
        graph = helper.make_graph(
            [
                helper.make_node("Gemm", ["x", "h.fc.weight"], ["a"], name="/h/fc/Gemm"),
                helper.make_node("Relu", ["a"], ["y"], name=""),
            ],
            "g",
            [value("x", TensorProto.FLOAT, [2, 2])],
            [value("y", TensorProto.FLOAT, [2, 2])],
            [helper.make_tensor("h.fc.weight", TensorProto.FLOAT, [2, 2], [0.0] * 4)],
        )
        save(helper.make_model(graph), path)
        self.files.append(path)
        return path

    def sound(self) -> list[list[str]]:
        """Command lines on files that nothing is wrong with: each of the commands once."""
        run, out, pages = self.run, self.folder / "out", self.folder / "known_flop.raw.csv"
        snapshot = self.folder / "train.fp32.memory.pickle.gz"
        lines: list[list[Any]] = [
            ["report", run, "--force"],
            ["timeline", run, "-o", out / "timeline"],
            ["read", self.engine],
            ["layers", self.engine, "--nodes", self.nodes, "-o", out / "layers.parquet"],
            ["compare", run, run],
            ["gate", run, run],
            ["graph", run, "-o", out / "graph.svg"],
            ["nodes", self.onnx, "-o", out / "nodes.json"],
            ["metrics", "list", pages],
            ["metrics", "extract", pages, "-o", out / "metrics"],
            ["memory", snapshot, "-o", out / "memory.html"],
            ["parameters", self.folder / "changes.log"],
            ["ranks", self.folder / "ranks", "--workers", "1"],
            ["scrub", self.engine, "-o", out / "scrubbed.sqlite"],
        ]
        out.mkdir()
        return [[str(a) for a in line] for line in lines]

    def case(self, number: int, folder: Path) -> Case:
        """Case `number`, its files in the empty `folder`."""
        draw = random.Random(number)
        if draw.random() < 0.08:
            return self._of_run(number, draw, folder)
        path, damage = self._damaged(draw, folder)
        return Case(number, [str(a) for a in self._command(draw, path, folder)], damage)

    def _damaged(self, draw: random.Random, folder: Path) -> tuple[Path, str]:
        if draw.random() < 0.03:
            return no_file(draw, folder)
        source = draw.choice(self.files)
        # Another suffix now and then: what a file is does not hang on its name.
        suffix = draw.choice((source.suffix, source.suffix, ".json", ".csv", ".onnx", ".txt", ""))
        path = folder / f"in{suffix}"
        if source.is_dir():
            shutil.copytree(source, path)
            inside = draw.choice(sorted(path.iterdir()))
            return path, f"{source.name}/{inside.name}: {damage(draw, inside)}"
        shutil.copyfile(source, path)
        return path, f"{source.parent.name}/{source.name}: {damage(draw, path)}"

    def _command(self, draw: random.Random, path: Path, folder: Path) -> list[Any]:
        out, log = folder / "out", self.files
        by = draw.choice(("name", "module", "kernel", "operator", "layer"))
        commands: tuple[Callable[[], list[Any]], ...] = (
            lambda: ["read", path],
            lambda: ["read", path, "--by", by],
            lambda: ["read", path, "--rows", "5"],
            lambda: ["read", path, draw.choice(log), "-o", f"{out}.{_suffix(draw)}"],
            lambda: ["layers", path],
            lambda: ["layers", path, "--by", draw.choice(("module", "kind"))],
            lambda: ["layers", path, "--nodes", self.nodes, "-o", f"{out}.{_suffix(draw)}"],
            lambda: ["layers", path, "--layer-info", self.info],
            lambda: ["layers", self.engine, "--nodes", path],
            lambda: ["layers", self.engine, "--nodes", self.nodes, "--network", path],
            lambda: ["layers", self.profile, "--layer-info", path],
            lambda: ["compare", path, draw.choice((self.profile, self.engine, self.info))],
            lambda: ["compare", draw.choice((self.profile, self.run)), path],
            lambda: ["gate", path, self.run],
            lambda: ["gate", self.run, path],
            lambda: ["gate", self.run, self.run, "--limits", path],
            lambda: ["scrub", path, "-o", out],
            lambda: ["scrub", path, "--check"],
            lambda: ["nodes", path, "-o", out],
            lambda: ["metrics", "list", path],
            lambda: ["metrics", "explain", path],
            lambda: ["metrics", "attribute", path, "-m", "gpu__time_duration.sum"],
            lambda: ["metrics", "extract", path, "-o", out],
            lambda: ["metrics", "roofline", path, "--nodes", self.nodes],
            lambda: ["memory", path, "-o", f"{out}.html"],
            lambda: ["parameters", path],
            lambda: ["parameters", self.folder / "changes.log", "--index", path],
            lambda: ["ranks", path, self.folder / "ranks", "--workers", "1"],
            lambda: ["graph", "--nodes", path, "-o", f"{out}.dot"],
            lambda: ["report", path],
            lambda: ["timeline", path, "-o", out],
        )
        return draw.choice(commands)()

    def _of_run(self, number: int, draw: random.Random, folder: Path) -> Case:
        run = folder / "run"
        shutil.copytree(self.run, run)
        path = draw.choice(sorted(p for p in run.rglob("*") if p.is_file()))
        name = path.relative_to(run)
        what = f"{name}: {_run_damage(draw, path)}"
        commands: tuple[list[Any], ...] = (
            ["report", run],
            ["timeline", run, "-o", folder / "out"],
            ["compare", self.run, run],
            ["gate", self.run, run],
            ["gate", "--save", folder / "base.json", run],
            ["graph", run, "-o", folder / "out.dot"],
            ["layers", run / "captures" / "fp16.tensorrt.sqlite"],
            ["scrub", run, "-o", folder / "copy"],
            ["memory", run],
            ["parameters", run],
            ["ranks", run, "--workers", "1"],
        )
        return Case(number, [str(a) for a in draw.choice(commands)], what)


def _suffix(draw: random.Random) -> str:
    return draw.choice(("csv", "json", "parquet"))


def _run_damage(draw: random.Random, path: Path) -> str:
    kind = draw.random()
    if kind < 0.05:
        path.unlink()
        return "gone"
    if kind < 0.1:
        path.unlink()
        path.mkdir()
        return "a folder"
    if kind < 0.15:
        path.unlink()
        made, what = no_file(draw, path.parent)
        with contextlib.suppress(OSError):
            made.rename(path)
        return what
    return damage(draw, path)


def no_file(draw: random.Random, folder: Path) -> tuple[Path, str]:
    """Something that is no ordinary file of a known kind, at the path returned."""
    path = folder / "odd"
    kind = draw.choice(("pipe", "zeros", "loop", "missing", "folder", "empty", "bomb", "name"))
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "zeros":
        path.symlink_to("/dev/zero")
    elif kind == "loop":
        path.symlink_to(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "bomb":
        start = draw.choice((b"", b'{"traceEvents":[', b"[", b'"ID","Process ID"\n'))
        path.write_bytes(gzip.compress(start + bytes([draw.choice((0, 32, 91))]) * BOMB, 1))
    elif kind == "name":
        path = Path(os.fsdecode(os.fsencode(folder) + b"/\xff.json"))
        path.write_text("[]")
    return path, kind


def damage(draw: random.Random, path: Path) -> str:
    """Damage a file, in its own form two times of three; what was done."""
    data = path.read_bytes()
    packed = data[:2] == b"\x1f\x8b"
    if packed and draw.random() < 0.7:
        data = gzip.decompress(data)
    else:
        packed = False
    what = None
    if draw.random() < 0.66:
        if data.startswith(b"SQLite format 3"):
            return _sqlite(draw, path)
        what, data = _json(draw, data)
    if what is None:
        changes = [
            (
                draw.choice(OPERATIONS),
                draw.randrange(1 << 20),
                draw.randrange(65),
                draw.choice(TOKENS),
            )
            for _ in range(draw.randint(1, 6))
        ]
        what, data = f"bytes {[c[0] for c in changes]}", mutate(data, changes)
    path.write_bytes(gzip.compress(data, 1) if packed else data)
    return what


def _json(draw: random.Random, data: bytes) -> tuple[str | None, bytes]:
    try:
        document = json.loads(data)
    except ValueError:
        return None, data
    every = list(json_mutations.places(document))
    if not every:
        return None, data
    place, kind = draw.choice(every), draw.choice(list(json_mutations.VALUES))
    text = json_mutations.changed(document, place, json_mutations.VALUES[kind])
    return f"{'.'.join(map(str, place))} is {kind}", text.encode()


_SQL_VALUES = ("null", "-1", "9223372036854775807", "1e308", "'text'", "x'ff00'", "''", "0.5")


def _sqlite(draw: random.Random, path: Path) -> str:
    db = sqlite3.connect(path)
    names = [r[0] for r in db.execute("select name from sqlite_master where type = 'table'")]
    table = draw.choice(names)
    columns = [r[1] for r in db.execute(f'pragma table_info("{table}")')]
    column, value = draw.choice(columns), draw.choice(_SQL_VALUES)
    statement = draw.choice(
        (
            f'update "{table}" set "{column}" = {value} where random() % 3 = 0',
            f'update "{table}" set "{column}" = {value}',
            f'alter table "{table}" rename column "{column}" to "odd name"',
            f'alter table "{table}" rename to "{table}_V9"',
            f'drop table "{table}"',
            f'delete from "{table}"',
            f'insert into "{table}" select * from "{table}"',
            f'create view "v" as select * from "{table}"; drop table "{table}"',
        )
    )
    with contextlib.suppress(sqlite3.Error):
        db.executescript(statement)
        db.commit()
    db.close()
    return statement
