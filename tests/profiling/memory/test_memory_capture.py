"""Memory of real training steps on the CPU: recorded, read and explained."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch

from layerline.analysis.memory import explain
from layerline.analysis.memory.categories import CATEGORIES
from layerline.analysis.readers.memory import snapshot
from layerline.core.documents import Memory as Form
from layerline.core.documents import read
from layerline.core.errors import InputError
from layerline.profile.eager.memory import plugin as plugin_
from layerline.profile.eager.memory.plugin import Memory
from layerline.workloads.checkpointing import checkpoint_blocks
from layerline.workloads.loop import train
from layerline.workloads.training import Training

WIDTH, BATCH = 48, 1024


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(WIDTH, 4 * WIDTH)
        self.down = torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.tanh(self.up(x)))


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block() for _ in range(3))
        self.head = torch.nn.Linear(WIDTH, 5, bias=False)
        self.register_buffer("scale", torch.ones(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x * self.scale
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def training(
    accumulate: int = 1, batch: int = BATCH, optimizer: Any = torch.optim.AdamW
) -> Training:
    torch.manual_seed(0)
    model = Model()
    batches = ({"x": torch.randn(batch, WIDTH)} for _ in itertools.count())
    return Training(
        model,
        optimizer(model.parameters()),
        batches,
        lambda output, batch: output.square().mean(),
        torch.device("cpu"),
        accumulate=accumulate,
    )


def record(folder: Path, of: Training, steps: int = 3) -> tuple[Path, Path]:
    plugin = Memory(folder / "train.fp32.memory.pickle", folder / "train.fp32.memory.json")
    for _ in train(of, steps, [plugin]):
        pass
    return plugin.pickle, plugin.meta


def explained(files: tuple[Path, Path]) -> Any:
    return explain.explain(snapshot.read(files[0]), files[0], read(files[1], Form))


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> tuple[Training, tuple[Path, Path]]:
    of = training()
    return of, record(tmp_path_factory.mktemp("memory"), of)


@pytest.fixture(scope="module")
def recorded(files) -> tuple[Training, Any]:
    return files[0], explained(files[1])


def test_a_cpu_snapshot_that_comes_alone_has_no_segments_and_no_rounding(files, recorded):
    """Its peak is the count of what was allocated since recording began."""
    alone = explain.explain(snapshot.read(files[1][0]), files[1][0])
    peak = alone.peak
    assert (peak.reserved, peak.fragmentation, peak.rounding) == (None, None, 0)
    assert peak.allocated == recorded[1].peak.checks[0].theirs


def held(done: Any, state: int) -> dict[str, int]:
    told = done.told
    alive = told.history.alive(state)
    sizes = told.history.requested[alive]
    return {c: int(sizes[told.category[alive] == i].sum()) for i, c in enumerate(CATEGORIES)}


def bytes_of(tensors: Any) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


def test_the_peak_is_the_profilers_own_to_the_byte(recorded):
    _, done = recorded
    [check] = done.peak.checks
    assert check.ok is True and check.ours > 0
    assert sum(done.peak.categories.values()) == done.peak.allocated
    assert done.peak.reserved is None and done.peak.fragmentation is None  # not 0


def test_categories_are_those_that_are_counted_by_hand(recorded):
    """When the optimizer begins all gradients are there, and all of its state."""
    of, done = recorded
    begins = int(done.told.in_phase("optimizer").nonzero()[0][0])
    found = held(done, begins)
    weights = bytes_of(of.model.parameters())
    state = [v for s in of.optimizer.state.values() for v in s.values() if torch.is_tensor(v)]
    assert found["parameters"] == found["gradients"] == weights
    assert found["optimizer state"] == bytes_of(state)
    assert found["buffers"] == WIDTH * 4


def test_activations_are_those_that_backward_needs(recorded):
    """At the end of forward: the input times its scale, and of each block its sum and the output
    of tanh (linear keeps its input, tanh its output); the model's output."""
    _, done = recorded
    loss = int(done.told.in_phase("loss").nonzero()[0][0])
    rows = BATCH * 4
    expected = rows * (WIDTH + 3 * (4 * WIDTH + WIDTH) + 5)
    assert held(done, loss)["activations"] == expected


def test_modules_in_forward_and_in_backward(recorded):
    _, done = recorded
    told, lives = done.told, done.told.history
    tanh = [i for i in range(len(lives.born)) if lives.requested[i] == BATCH * 4 * WIDTH * 4]
    kept = [i for i in tanh if told.is_("activations")[i]]
    assert {told.modules[told.module[i]] for i in kept} == {f"blocks.{n}" for n in range(3)}
    of_backward = [i for i in tanh if told.born_in("backward")[i]]
    paths = {told.modules[told.module[i]] for i in of_backward}
    assert {f"blocks.{n}.down" for n in range(3)} <= paths


def test_the_line_that_allocated_it(recorded):
    _, done = recorded
    lines = dict(done.peak.lines)
    [of_tanh] = [held for line, held in lines.items()
                 if line.startswith("forward (") and "test_memory_capture.py" in line
                 and held.get("activations", 0) >= 3 * BATCH * 4 * WIDTH * 4]  # fmt: skip
    assert of_tanh


def test_checkpointing_does_what_was_estimated(recorded, tmp_path):
    _, done = recorded
    estimate = next(r for r in done.remedies if r.name == "checkpoint")
    of = training()
    of.facts["recomputed_blocks"] = checkpoint_blocks(of)
    tried = explained(record(tmp_path, of))
    assert tried.peak.checks[0].ok is True
    assert tried.peak.allocated < done.peak.allocated
    assert estimate.after == pytest.approx(tried.peak.allocated, rel=0.1)
    assert tried.told.in_phase("recompute").any()
    assert "checkpoint" not in {r.name for r in tried.remedies}


class InBytes(torch.optim.Optimizer):
    """Adam whose two moments have a byte an element and a scale for 256 of them, as bitsandbytes
    keeps them; those of fewer than 4096 elements are float32."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 1e-3})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for p in self.param_groups[0]["params"]:
            state = self.state[p]
            for name, decay, new in (("one", 0.9, p.grad), ("two", 0.999, p.grad * p.grad)):
                if p.numel() < 4096:
                    held = state.setdefault(name, torch.zeros_like(p))
                    held.lerp_(new, 1 - decay)
                    continue
                if name not in state:
                    state[name] = torch.zeros(p.numel(), dtype=torch.uint8)
                    state[f"{name} scale"] = torch.zeros(-(-p.numel() // 256))
                padded = torch.nn.functional.pad(new.flatten(), (0, -p.numel() % 256)).view(-1, 256)
                state[f"{name} scale"].copy_(padded.abs().amax(1))
                state[name].copy_(padded.flatten()[: p.numel()].sign() + 1)
            p.sub_(p.grad, alpha=1e-3)


def test_moments_in_bytes_take_what_was_estimated(tmp_path):
    done = explained(record(tmp_path, training(batch=256)))
    estimate = next(r for r in done.remedies if r.name == "8bit")
    tried = explained(record(tmp_path, training(batch=256, optimizer=InBytes)))
    assert tried.peak.checks[0].ok is True
    assert tried.peak.allocated < 0.85 * done.peak.allocated
    assert estimate.after == pytest.approx(tried.peak.allocated, rel=0.01)


def test_gradients_that_stay_take_what_was_estimated(tmp_path, monkeypatch):
    done = explained(record(tmp_path, training(batch=256)))
    estimate = next(r for r in done.remedies if r.name == "set_to_none")
    of = training(batch=256)
    clear = of.optimizer.zero_grad
    monkeypatch.setattr(of.optimizer, "zero_grad", lambda set_to_none: clear(set_to_none=False))
    tried = explained(record(tmp_path, of))
    assert estimate.already and tried.peak.allocated > 1.05 * done.peak.allocated
    assert estimate.after == tried.peak.allocated


def test_half_of_the_batch_takes_what_was_estimated(recorded, tmp_path):
    _, done = recorded
    estimate = next(r for r in done.remedies if r.name == "batch")
    tried = explained(record(tmp_path, training(batch=BATCH // 2)))
    assert tried.peak.allocated < 0.7 * done.peak.allocated
    assert estimate.after == pytest.approx(tried.peak.allocated, rel=0.01)


def test_micro_batches_add_to_the_same_gradients(tmp_path):
    of = training(accumulate=3)
    done = explained(record(tmp_path, of))
    begins = int(done.told.in_phase("optimizer").nonzero()[0][0])
    assert held(done, begins)["gradients"] == bytes_of(of.model.parameters())
    assert done.peak.checks[0].ok is True


def test_no_hook_is_left_and_nothing_computes_otherwise(tmp_path):
    losses = [float(s.loss) for s in train(training(), 3)]
    watched = training()
    plugin = Memory(tmp_path / "a.pickle", tmp_path / "a.json")
    assert [float(s.loss) for s in train(watched, 3, [plugin])] == losses
    for module in watched.model.modules():
        assert not module._forward_hooks and not module._forward_pre_hooks
    for parameter in watched.model.parameters():
        assert not parameter._post_accumulate_grad_hooks


def test_a_step_that_fails_leaves_what_was_recorded(tmp_path):
    of = training()
    calls = itertools.count()

    def loss(output: Any, batch: Any) -> torch.Tensor:
        if next(calls) == 2:
            raise MemoryError
        return output.square().mean()

    of.loss = loss
    files = tmp_path / "a.pickle", tmp_path / "a.json"
    with pytest.raises(MemoryError):
        for _ in train(of, 5, [Memory(*files)]):
            pass
    done = explained(files)
    assert [s.number for s in done.told.steps] == [1, 2]
    assert done.peak.allocated > 0


def test_two_profilers_at_once_are_refused(tmp_path):
    plugin = Memory(tmp_path / "a.pickle", tmp_path / "a.json")
    running = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
    with running, pytest.raises(InputError, match="running already"):
        list(train(training(), 3, [plugin]))
    assert not plugin.pickle.exists()


def test_a_gpu_is_named_by_its_number(monkeypatch):
    """As tensors name it: else none of them would be of the device that was recorded."""
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    assert str(plugin_._numbered(torch.device("cuda"))) == "cuda:3"
    assert str(plugin_._numbered(torch.device("cuda", 1))) == "cuda:1"
