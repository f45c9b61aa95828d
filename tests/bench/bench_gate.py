"""Does a gate cry wolf, and does it sleep? Real pairs of tiny on ONNX Runtime, of the same model,
and of one that one extra node in a module makes a tenth slower; and simulated pairs::

    python tests/bench/bench_gate.py measure FOLDER [--pairs 100] [--rounds 6]
    python tests/bench/bench_gate.py figures FOLDER

`measure` builds three engines (as it is, the same again, slowed) and measures them in turn, as
`layerline gate --measure` does, each time in processes of their own; it goes on where it was
stopped. `figures` judges what lies there, and prints every figure of docs/ci.md.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from unittest.mock import patch

import msgspec
import numpy as np
import onnx
from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).parents[1] / "support/tables"))
import simulated

from layerline.analysis.captures.samples import joined, of_run
from layerline.analysis.comparison import gate
from layerline.analysis.comparison.gate import deepest, judge
from layerline.analysis.comparison.limits import Limits
from layerline.analysis.model.baseline import (
    KIND,
    LATENCY,
    MODULE,
    Baseline,
    Quantity,
)
from layerline.analysis.model.verdict import Status, Verdict
from layerline.analysis.pipeline import analyse
from layerline.core.run import Run
from layerline.profile.engine.measure import Plan
from layerline.profile.turns import in_turn

SLOWED, TENSOR, COPIES = "transformer.h.1.mlp", "view_26", 26
NODE = f"{SLOWED}/Max"
SIDES = ("as it is", "the same", "slowed")


def layerline(*arguments: str) -> None:
    """Run a command; what it says is shown where it fails."""
    command = [sys.executable, "-P", "-m", "layerline.core.cli.command", "-q", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)


def build(folder: Path) -> list[Run]:
    """The three runs, with an engine each."""
    runs = [Run(folder / name.replace(" ", "-")) for name in SIDES]
    for run in runs:
        if run.file("engines").exists():
            continue
        where = ("--run", str(run.path), "--precision", "fp32")
        layerline("export", *where, "--model", "tiny", "--batch", "1", "--seq", "16")
        if run is runs[-1]:
            plant(run)
        of = ("--backend", "onnxruntime")
        layerline("engines", *where, *of, "--threads", "1")
        once = ("--what", "engine", "--processes", "1", "--seconds", "1")
        layerline(
            "profile", *where, *of, *once
        )  # what the engine computes, and whether it is right
    return runs


def plant(run: Run) -> None:
    """One node more in a module: the largest of `COPIES` times one tensor, which is the tensor."""
    model = onnx.load(run.file("export", "fp32.onnx"))
    nodes = list(model.graph.node)
    after = 1 + next(i for i, node in enumerate(nodes) if TENSOR in node.output)
    for node in nodes[after:]:
        node.input[:] = ["planted" if name == TENSOR else name for name in node.input]
    more = onnx.helper.make_node("Max", [TENSOR] * COPIES, ["planted"], name=NODE)
    del model.graph.node[:]
    model.graph.node.extend([*nodes[:after], more, *nodes[after:]])
    onnx.save(model, run.file("export", "fp32.onnx"))
    for name in ("nodes.json", "fp32.nodes.json"):
        path = run.file("export", name)
        document = json.loads(path.read_text(encoding="utf-8"))
        listed = document["nodes"]
        for node in listed:
            node["inputs"] = [
                "planted" if tensor == TENSOR else tensor for tensor in node["inputs"]
            ]
        at = 1 + next(i for i, node in enumerate(listed) if TENSOR in node["outputs"])
        own = {"name": NODE, "op": "Max", "module": SLOWED, "inputs": [TENSOR] * COPIES}
        listed.insert(at, {**own, "outputs": ["planted"]})
        path.write_text(json.dumps(document), encoding="utf-8")


def measure(given: argparse.Namespace) -> None:
    """A line of JSON a pair: its time, the load of the machine, and each turn of each side."""
    runs, out = build(given.folder), given.folder / "pairs.jsonl"
    done = len(out.read_text().splitlines()) if out.exists() else 0
    plan = Plan(most=500, target=0.005, seconds=given.seconds)
    for number in range(done, given.pairs):
        with tempfile.TemporaryDirectory() as folder:
            turns = in_turn(runs, given.rounds, plan, Path(folder))
            sides = [[samples(turn) for turn in of] for of in turns]
        at = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        line = {"at": at, "load": os.getloadavg()[0], "sides": sides}
        with out.open("ab") as file:
            file.write(msgspec.json.encode(line) + b"\n")
        sys.stdout.write(f"{number + 1} of {given.pairs}, load {line['load']:.1f}\n")
        sys.stdout.flush()


def samples(run: Run) -> Baseline:
    """What a gate takes of a run."""
    result = analyse(run)
    return of_run(run, result.captures, result.comparison)


# --- figures --------------------------------------------------------------------------------------

Turns = Sequence[Baseline]
SIZES = (0.0, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.10)
SIMULATED = (0.0, 0.02, 0.04, 0.06, 0.08, 0.10)
# By how much the host's part and the device grow, and which share of processes is slow at most.
BUSY = (
    ("the same", 1.0, 1.0, 0.75),
    ("the same, any share", 1.0, 1.0, 1.0),
    ("host +5 %", 1.05, 1.0, 0.75),
    ("host +10 %", 1.1, 1.0, 0.75),
    ("device +10 %", 1.0, 1.1, 0.75),
)


def judged(a: Baseline, b: Baseline) -> Verdict:
    """By the limits that a gate has by itself."""
    return judge(a, b, Limits(), ("a", "b"))


def in_turns(*sides: Turns) -> list[Baseline]:
    """Sides that were measured in turn."""
    return [replace(joined(turns), in_turn="one") for turns in sides]


def one_run(turns: Turns) -> Baseline:
    """Its latency alone, as that of one run with so many processes."""
    (key, side), *_ = turns[0].sides.items()
    values = [q.values[0] for t in turns if (q := t.sides[key].quantity(LATENCY)) is not None]
    latency = Quantity(what=LATENCY, runs=[values])
    return replace(turns[0], sides={key: replace(side, quantities=[latency])})


def slower(of: Baseline, by: float) -> Baseline:
    """As if one module made the whole slower by a share."""
    (key, side), *_ = of.sides.items()
    latency = side.quantity(LATENCY)
    assert latency is not None
    more = by * float(np.mean(latency.values))

    def grown(q: Quantity) -> Quantity:
        if q.what == LATENCY or (q.what in (KIND, MODULE) and _holds(q.name)):
            return replace(q, runs=[[round(v + more) for v in run] for run in q.runs])
        return q

    return replace(of, sides={key: replace(side, quantities=[*map(grown, side.quantities)])})


def _holds(name: str) -> bool:
    """Whether a module, or a kind of modules, has the slowed one in it."""
    own, parts = SLOWED.split("."), name.split(".")
    return all(x in ("*", y) for x, y in zip(parts, own, strict=False)) and len(parts) <= len(own)


def names(verdict: Verdict) -> bool:
    """Whether the slowed module is named, and no module beside it."""
    worse = deepest(verdict.of(Status.WORSE))
    return {j.name for j in worse if j.what == MODULE} == {SLOWED}


def rates(verdicts: Iterable[Verdict]) -> str:
    """How often "slower", and how often "not slower", in percent."""
    answers = Counter(v.answer for v in verdicts)
    share = [round(100 * answers[a] / answers.total()) for a in ("slower", "not slower")]
    return f"{share[0]} / {share[1]} %"


def counts(verdicts: Sequence[Verdict]) -> str:
    """How often each answer."""
    answers = Counter(v.answer for v in verdicts)
    told = ", ".join(f"{answers[a]} {a}" for a in ("slower", "not slower", "cannot tell"))
    return f"{len(verdicts)} pairs: {told}"


def figures(given: argparse.Namespace) -> None:
    """Print what docs/ci.md says."""
    lines = (given.folder / "pairs.jsonl").read_bytes().splitlines()
    documents = [msgspec.json.decode(line) for line in lines]
    sides = [msgspec.convert(d["sides"], list[list[Baseline]]) for d in documents]
    loads = [d["load"] for d in documents]
    print(f"{len(sides)} real pairs, load {min(loads):.1f} to {max(loads):.1f}")
    real(sides)
    print()
    table(["rounds", *head(SIZES)], power(sides))
    print()
    wolf(sides)
    print()
    table(["processes of each", *head(SIMULATED)], simulated_power())
    print()
    table(["processes of each", "judged by", *(name for name, *_ in BUSY)], busy_host())


def real(sides: Sequence[Sequence[Turns]]) -> None:
    """The pairs as they were measured: in turn, and one session against the next."""
    same = [judged(*in_turns(a, b)) for a, b, _ in sides]
    slow = [judged(*in_turns(a, c)) for a, _, c in sides]
    seen = [v.visible[1] for v in same if v.visible]
    print(f"in turn, the same: {counts(same)}; would have seen {_spread(seen)}")
    grown = [j.change for v in slow for j in v.judged if j.what == LATENCY and j.change]
    print(f"in turn, slowed by {_spread(grown)}: {counts(slow)}; named {sum(map(names, slow))}")
    (key, *_) = sides[0][0][0].sides
    apart = [np.std([q.values[0] for t in a if (q := t.sides[key].quantity(LATENCY))], ddof=1)
             / np.mean([q.values[0] for t in a if (q := t.sides[key].quantity(LATENCY))])
             for pair in sides for a in pair]  # fmt: skip
    print(f"processes of a session lie apart by {_spread(apart)} (standard deviation)")
    for name, of in (("the same", 1), ("slowed", 2)):
        next_ = [judged(one_run(x[0]), one_run(y[of])) for x, y in itertools.pairwise(sides)]
        print(f"one session after the other, {name}: {counts(next_)}")
        three = [judged(joined(x[0]), joined(y[of])) for x, y in itertools.pairwise(sides)]
        print(f"  as several runs: {counts(three)}; named {sum(map(names, three))}")


def _spread(of: Sequence[float]) -> str:
    low, middle, high = np.percentile(of, [10, 50, 90])
    return f"{middle:.1%} ({low:.1%} to {high:.1%})"


def power(sides: Sequence[Sequence[Turns]]) -> Iterator[list[str]]:
    """Real noise with a slow-down added to one side, by size and by number of rounds."""
    doubled = [[[*x, *y] for x, y in zip(p, q, strict=True)]
               for p, q in zip(sides[::2], sides[1::2], strict=False)]  # fmt: skip
    for rounds in (3, 4, 6, 12):
        pairs = doubled if rounds > len(sides[0][0]) else sides
        row = [str(rounds)]
        for size in SIZES:
            two = (in_turns(a[:rounds], b[:rounds]) for a, b, _ in pairs)
            row.append(rates(judged(a, slower(b, size)) for a, b in two))
        yield row


def wolf(sides: Sequence[Sequence[Turns]]) -> None:
    """Pairs of the same, made of noise that was measured, and of noise that was not."""
    rng = np.random.default_rng(19)
    pool = [turn for pair in sides for side in pair[:2] for turn in side]

    def drawn(n: int, _width: float) -> Baseline:
        return joined([pool[i] for i in rng.integers(len(pool), size=n)])

    def noise(of: str) -> Callable[[int, float], Baseline]:
        return lambda n, width: simulated.baseline(rng, of, n, width)

    kinds = {"measured": drawn, **{n: noise(n) for n in simulated.NOISES}}
    every: list[Verdict] = []
    for name, make in kinds.items():
        cases = [((3, 5, 8)[i % 3], (0.002, 0.005, 0.01, 0.04)[i // 3 % 4]) for i in range(200)]
        found = [judged(make(*case), make(*case)) for case in cases]
        every += found
        print(f"{name}: {counts(found)}")
    print(f"all: {counts(every)}")
    hard = [judged(*(simulated.baseline(rng, "drift", 8, 0.03) for _ in "ab")) for _ in range(200)]
    print(f"both drift by 9 %, noise 3 %: {counts(hard)}")


def simulated_power() -> Iterator[list[str]]:
    """Processes that lie 1 % apart, one side after the other."""
    rng = np.random.default_rng(20)

    def pair(n: int, by: float) -> Verdict:
        a, b = (simulated.baseline(rng, n=n, spread=0.01, slower=1 + x) for x in (0, by))
        return judged(a, b)

    for n in (3, 5, 8, 12, 20):
        yield [str(n), *(rates(pair(n, by) for _ in range(300)) for by in SIMULATED)]


def busy_host() -> Iterator[list[str]]:
    """A host whose load differs between sessions: by the mean alone, and by the fastest, too."""
    rng = np.random.default_rng(21)
    for n in (5, 8, 20):
        cases = [[[simulated.on_busy_host(rng, n, most=most),
                   simulated.on_busy_host(rng, n, host, device, most)] for _ in range(1000)]
                 for _, host, device, most in BUSY]  # fmt: skip
        with patch.object(gate, "of_host", return_value=False):
            yield [str(n), "the mean", *(rates(judged(*of) for of in pairs) for pairs in cases)]
        both = "the fastest, too"
        yield [str(n), both, *(rates(judged(*of) for of in pairs) for pairs in cases)]


def head(sizes: Sequence[float]) -> list[str]:
    """The heads of columns."""
    return [f"+{size:.0%}".replace("%", " %") if size else "the same" for size in sizes]


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """As Markdown."""
    print("|", " | ".join(heads), "|")
    print("|" + "--:|" * len(heads))
    for row in rows:
        print("|", " | ".join(row), "|")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["measure", "figures"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pairs", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=0.3)
    given = parser.parse_args()
    {"measure": measure, "figures": figures}[given.what](given)
