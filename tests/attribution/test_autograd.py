"""Who pays: operators of real profiled models, held against what is known from outside."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import paths
import pytest

torch = pytest.importorskip("torch")

from layerline.analysis.attribution.autograd import backward_nodes, forward_of  # noqa: E402
from layerline.analysis.attribution.eager import eager  # noqa: E402
from layerline.analysis.readers.torch.events import OP, read_events  # noqa: E402
from layerline.core.tables import OUTSIDE_OPERATORS  # noqa: E402
from layerline.profile.eager import hooks  # noqa: E402

nn = torch.nn
H100 = paths.DATA / "h100_train_l2.trace.json.gz"


def profiled(
    path: Path, model: Any, x: Any, *, steps: int = 2, loss: Callable[[Any], Any] | None = None
) -> Path:
    """Profile training steps of a model as the capture does; give the trace."""
    loss = loss or (lambda out: (out**2).mean())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)

    def step(number: int) -> None:
        with hooks.iteration(number):
            with hooks.phase("forward"):
                out = model(x)
            with hooks.phase("loss"):
                value = loss(out)
            with hooks.phase("backward"):
                value.backward()
            with hooks.phase("optimizer"):
                optimizer.step()
                optimizer.zero_grad()

    step(-1)
    with (
        hooks.module_ranges(model),
        torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler,
    ):
        for number in range(steps):
            step(number)
    profiler.export_chrome_trace(str(path))
    torch.set_num_threads(threads)
    return path


def sums(path: Path) -> dict[tuple[str, str], int]:
    """(phase, module path or "row: name") -> self time."""
    found: dict[tuple[str, str], int] = {}
    for row in eager(path, {"precision": "fp32"}).main.to_pylist():
        who = f"row: {row['layer']}" if row["modules"] is None else row["modules"][0]
        key = (row["phase"], who)
        found[key] = found.get(key, 0) + row["self_ns"]
    return found


class Block(nn.Module):
    """A residual block with one large Linear; `inplace` makes its activation write in place."""

    def __init__(self, width: int, hidden: int, inplace: bool = False) -> None:
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.act = nn.ReLU(inplace=inplace)
        self.down = nn.Linear(hidden, width)

    def forward(self, x: Any) -> Any:
        return x + self.down(self.act(self.up(x)))


class Net(nn.Module):
    """`mode`: plain, or checkpointing with either implementation."""

    def __init__(self, mode: str = "plain", inplace: bool = False, wide: int = 16_000) -> None:
        super().__init__()
        self.mode = mode
        self.cheap = Block(128, 8, inplace)
        self.dear = Block(128, wide, inplace)
        self.head = nn.Linear(128, 4)

    def forward(self, x: Any) -> Any:
        from torch.utils.checkpoint import checkpoint

        for block in (self.cheap, self.dear):
            if self.mode == "plain":
                x = block(x)
            else:
                x = checkpoint(block, x, use_reentrant=self.mode == "reentrant")
        return self.head(x)


def arrows(path: Path) -> dict[tuple[Any, int], tuple[Any, int]]:
    """Where each arrow from forward to backward that the profiler drew ends, and where it begins:
    thread and nanoseconds."""
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    ends: dict[str, dict[Any, tuple[Any, int]]] = {"s": {}, "f": {}}
    for event in json.loads(text, parse_float=Decimal)["traceEvents"]:
        if event.get("cat") == "fwdbwd":
            ends[event["ph"]][event["id"]] = (event["tid"], int(event["ts"] * 1000))
    assert ends["s"].keys() == ends["f"].keys()
    return {place: ends["s"][number] for number, place in ends["f"].items()}


def agree_with_arrows(path: Path) -> int:
    """Every arrow is what our rule finds; how many."""
    events = read_events(path)
    nodes = backward_nodes(events)
    forward = forward_of(events, nodes)

    def place(i: int) -> tuple[Any, int]:
        return events.places[events.thread[i]], int(events.start[i])

    at: dict[tuple[Any, int], list[int]] = {}
    for i in np.flatnonzero(events.kind == OP).tolist():
        at.setdefault(place(i), []).append(i)
    drawn = arrows(path)
    for end, begin in drawn.items():
        mine = [i for i in at[end] if nodes[i]]
        assert mine
        for i in mine:
            assert forward[i] >= 0
            assert place(forward[i]) == begin
    return len(drawn)


MODES = pytest.mark.parametrize("mode", ["plain", "non-reentrant", "reentrant"])


@MODES
@pytest.mark.parametrize("inplace", [False, True])
def test_the_expensive_module_gets_the_credit(tmp_path: Path, mode: str, inplace: bool) -> None:
    x = torch.randn(64, 128, requires_grad=True)
    path = profiled(tmp_path / "t.json", Net(mode, inplace), x)
    found = sums(path)
    for phase in {"forward", "backward"} | ({"recompute"} if mode != "plain" else set()):
        blocks = dict.fromkeys(("cheap", "dear", "head", ""), 0)
        for (p, who), ns in found.items():
            if p == phase and not who.startswith("row: "):
                blocks[who.partition(".")[0]] += ns
        assert max(blocks, key=lambda b: blocks[b]) == "dear", (phase, blocks)
    assert ("recompute" in {p for p, _ in found}) == (mode != "plain")


@MODES
@pytest.mark.parametrize("inplace", [False, True])
def test_every_backward_node_is_its_own_modules(tmp_path: Path, mode: str, inplace: bool) -> None:
    x = torch.randn(4, 128, requires_grad=True)
    path = profiled(tmp_path / "t.json", Net(mode, inplace, wide=8), x)
    rows = eager(path, {}).main.to_pylist()

    def owners(name: str) -> list[Any]:
        return sorted(
            r["modules"][0] for r in rows if r["phase"] == "backward" and r["name"] == name
        )

    linears = ["cheap.down", "cheap.up", "dear.down", "dear.up", "head"]
    assert owners("AddmmBackward0") == sorted(linears * 2)  # two steps
    assert owners("ReluBackward0") == sorted(["cheap.act", "dear.act"] * 2)
    assert owners("aten::threshold_backward") == sorted(["cheap.act", "dear.act"] * 2)
    named = {r["layer"] for r in rows if r["modules"] is None}
    assert {"gradient accumulation", "gradient sums"} <= named  # residual connections
    assert "unresolved" not in {r["rule"] for r in rows}
    again = sorted({r["modules"][0] for r in rows if r["phase"] == "recompute"})
    if mode == "plain":
        assert again == []
    else:
        assert {"cheap.up", "cheap.act", "dear.up", "dear.act"} <= set(again)
        assert all(path.startswith(("cheap", "dear")) for path in again)
    assert agree_with_arrows(path) > 0


def test_a_rule_says_how_each_row_was_found(tmp_path: Path) -> None:
    table = eager(profiled(tmp_path / "t.json", Net(wide=8), torch.randn(4, 128)), {}).main
    rules = {(r["phase"], r["rule"]) for r in table.to_pylist() if r["modules"] is not None}
    assert rules == {("forward", "range"), ("backward", "sequence")}
    assert "unresolved" not in set(table["rule"].to_pylist())
    assert set(table["iteration"].to_pylist()) == {0, 1}


def test_phases_add_up_to_the_step(tmp_path: Path) -> None:
    found = eager(profiled(tmp_path / "t.json", Net(), torch.randn(64, 128)), {"precision": "fp32"})
    rows = found.main.to_pylist()
    raw = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    steps = {
        int(e["name"].rpartition("/")[2]): round(e["dur"] * 1000)
        for e in raw
        if e["name"].startswith("layerline/iteration/")
    }
    for number, step in steps.items():
        for phase in ("forward", "loss", "backward", "optimizer"):
            [marked] = [
                p for p in found.facts["phases"] if (p["iteration"], p["phase"]) == (number, phase)
            ]
            mine = [r for r in rows if (r["iteration"], r["phase"]) == (number, phase)]
            assert sum(r["self_ns"] for r in mine) == pytest.approx(marked["duration_ns"], rel=1e-3)
            assert [r["name"] for r in mine].count(OUTSIDE_OPERATORS) == 1
        total = sum(r["self_ns"] for r in rows if r["iteration"] == number)
        assert total <= step
        inside = sum(p["duration_ns"] for p in found.facts["phases"] if p["iteration"] == number)
        assert total == pytest.approx(inside, rel=1e-3)


class Twice(nn.Module):
    """One module called twice, and an embedding whose weight is the head's."""

    def __init__(self) -> None:
        super().__init__()
        self.wte = nn.Embedding(400, 64)
        self.twice = nn.Linear(64, 64)
        self.ln = nn.LayerNorm(64)
        self.lm_head = nn.Linear(64, 400, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, ids: Any) -> Any:
        x = self.wte(ids)
        return self.lm_head(self.ln(self.twice(torch.tanh(self.twice(x)))))


def test_shared_weights_and_modules_called_twice(tmp_path: Path) -> None:
    ids = torch.randint(0, 400, (2, 16))
    path = profiled(tmp_path / "t.json", Twice(), ids)
    rows = eager(path, {}).main.to_pylist()

    def names(phase: str, who: Any) -> list[str]:
        return [r["name"] for r in rows if r["phase"] == phase and r["modules"] == who]

    assert names("forward", ["twice"]).count("aten::addmm") == 2 * 2  # calls x steps
    assert names("backward", ["twice"]).count("AddmmBackward0") == 2 * 2
    assert names("backward", ["lm_head"]).count("MmBackward0") == 2
    assert names("backward", ["wte"]).count("EmbeddingBackward0") == 2
    assert names("backward", ["ln"]).count("NativeLayerNormBackward0") == 2
    assert names("backward", [""]).count("TanhBackward0") == 2
    # The two gradients of the shared weight, and those of the module that ran twice (weight and
    # bias), meet in the engine: no module's.
    meeting = [
        r for r in rows if r["layer"] == "gradient sums" and r["name"].startswith("aten::add")
    ]
    assert len(meeting) == 2 * 3
    assert all(r["modules"] is None for r in meeting)
    assert agree_with_arrows(path) > 0


def test_loss_operators_stay_the_loss_in_backward(tmp_path: Path) -> None:
    path = profiled(
        tmp_path / "t.json",
        nn.Linear(8, 8),
        torch.randn(4, 8),
        loss=lambda out: nn.functional.cross_entropy(out, torch.zeros(4, dtype=torch.long)),
    )
    rows = eager(path, {}).main.to_pylist()
    loss = {r["name"] for r in rows if r["phase"] == "backward" and r["layer"] == "loss"}
    assert {"NllLossBackward0", "LogSoftmaxBackward0"} <= loss
    assert all(r["layer"] in ("optimizer", OUTSIDE_OPERATORS) for r in rows
               if r["phase"] == "optimizer")  # fmt: skip


def test_a_function_that_is_no_module_is_recomputed_as_a_row(tmp_path: Path) -> None:
    from torch.utils.checkpoint import checkpoint

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(64, 64))

        def forward(self, x: Any) -> Any:
            return checkpoint(lambda v: torch.tanh(v @ self.weight).exp(), x, use_reentrant=False)

    path = profiled(tmp_path / "t.json", Model(), torch.randn(16, 64, requires_grad=True))
    rows = eager(path, {}).main.to_pylist()
    again = [r for r in rows if r["phase"] == "recompute"]
    assert {"aten::mm", "aten::tanh"} <= {r["name"] for r in again}
    assert all((r["modules"], r["layer"]) == (None, "recomputation") for r in again)


def test_an_h100_training_trace_agrees_with_the_profilers_arrows() -> None:
    """Backward ran on a thread of its own there; 240 arrows, drawn by the profiler itself."""
    assert agree_with_arrows(H100) == 240


def test_kernels_of_a_trace_without_module_ranges_are_unresolved_and_said() -> None:
    found = eager(H100, {"precision": "fp32"})
    rows = found.main.to_pylist()
    kernels = [r for r in rows if r["kind"] == "kernel"]
    assert any("no module ranges" in note for note in found.notes)
    assert all(r["modules"] is None for r in rows)
    assert {r["phase"] for r in kernels} == {"forward", "backward", "optimizer", "other"}
    assert {r["iteration"] for r in kernels} == {3, 4}
    assert sum(r["duration_ns"] for r in kernels) == found.facts["totals"]["kernel"]["duration_ns"]


def test_a_compiled_graph_pays_for_its_forward_and_backward(tmp_path: Path) -> None:
    linear = torch.compile(nn.functional.linear, backend="aot_eager")

    class Part(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(128, 128))
            self.outside = nn.Linear(128, 128)

        def forward(self, x: Any) -> Any:
            return self.outside(torch.relu(linear(x, self.weight)))

    rows = eager(profiled(tmp_path / "t.json", Part(), torch.randn(4, 128)), {}).main.to_pylist()
    for phase in ("forward", "backward"):
        products = [
            r for r in rows if r["phase"] == phase and r["name"] in ("aten::mm", "aten::addmm")
        ]
        owners = {r["modules"][0] for r in products}
        assert len(owners) == 2, owners
        assert {"outside"} < owners
        assert any(owner.startswith("compiled graph ") for owner in owners)
    assert "unresolved" not in {r["rule"] for r in rows}
