"""Why a run stopped: the module that made a loss that is no number, a batch that does not fit."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from layerline.core.errors import InputError  # noqa: E402
from layerline.workloads import failures  # noqa: E402
from layerline.workloads.loop import train  # noqa: E402
from layerline.workloads.request import Request  # noqa: E402


class Broken(torch.nn.Module):  # type: ignore[misc,name-defined]
    """Divides by what becomes zero in the step `at`, between its two linears or in the second."""

    def __init__(self, at: int, inside: bool) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
        self.at, self.inside, self.calls = at, inside, 0

    def forward(self, x: Any) -> Any:
        x = self.first(x)
        self.calls += 1
        if self.calls > self.at and self.inside:
            x = x / torch.zeros(())
        elif self.calls > self.at:
            with torch.no_grad():
                self.second.weight[0, 0] = float("nan")
        return self.second(x)


def training_of(model: Any) -> Any:
    from layerline.workloads.training import Training

    batches = iter(lambda: {"x": torch.ones(2, 4)}, None)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    return Training(model, optimizer, batches, lambda o, b: o.sum(), torch.device("cpu"))


def test_an_operation_of_a_modules_own_is_that_modules() -> None:
    assert failures.replayed(training_of(Broken(2, inside=True)), 5) == (
        2,
        "the model (Broken) made it first",
    )


def test_weights_that_are_no_longer_finite_are_named() -> None:
    assert failures.replayed(training_of(Broken(1, inside=False)), 5) == (
        1,
        "second (Linear) made it first: its weight is not finite",
    )


def test_a_loss_of_finite_outputs_is_no_modules() -> None:
    training = training_of(Broken(99, inside=False))
    training.loss = lambda output, batch: output.sum() / 0.0
    found = failures.replayed(training, 0)
    assert found == (0, "the loss made it, from outputs that are finite")


def test_a_run_that_is_finite_when_repeated_is_told() -> None:
    assert failures.replayed(training_of(Broken(99, inside=False)), 3) is None


def test_a_rate_that_is_far_too_high_is_explained(tmp_path: Any) -> None:
    request = Request(
        "gpt2", str(tmp_path), model="tiny", batch=2, seq=16, threads=1, learning_rate=1e9
    )
    with pytest.raises(InputError) as caught, failures.explained(request):
        for step in train(request.build(), 20):
            failures.check(step.number, float(step.loss))
    line = caught.value.line()
    assert line.startswith("the loss of step 1 is ")
    assert "transformer." in line
    assert line.endswith("lower --learning-rate")


def test_before_the_first_update_no_learning_rate_is_blamed(tmp_path: Any) -> None:
    request = Request("gpt2", str(tmp_path), model="tiny", batch=2, seq=16, threads=1)
    line = failures.not_finite(request, failures.NotFinite(0, float("nan"))).line()
    assert "learning-rate" not in line and line.endswith("as no step was taken yet")


def test_other_errors_stay_what_they_are() -> None:
    request = Request("gpt2", "nowhere")
    with pytest.raises(RuntimeError, match="shape"), failures.explained(request):
        raise RuntimeError("shape mismatch")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_batch_that_does_not_fit_says_what_to_lower() -> None:
    request = Request("gpt2", "nowhere", batch=8, seq=16)
    with pytest.raises(InputError) as caught, failures.explained(request):
        torch.empty(1 << 60, dtype=torch.uint8)
    assert "a batch of 8 × 16 in fp32 does not fit" in caught.value.line()
    assert "lower --batch" in caught.value.line()


def test_the_largest_batch_is_told_from_two_small_ones_and_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried = []

    def peak(request: Request) -> int | None:
        tried.append(request.batch)
        needed = 1000 + 100 * request.batch + (300 if request.batch > 5 else 0)
        return needed if needed <= limit else None

    monkeypatch.setattr(failures, "_peak", peak)
    monkeypatch.setattr(failures, "_available", lambda: 2000)
    limit = 2000
    assert failures.largest(Request("gpt2", "", batch=64)) == 7  # 1000 + 700 + 300
    assert tried[:3] == [1, 2, 10]
    limit = 1400  # far less than the straight line says: what is named was tried all the same
    assert failures.largest(Request("gpt2", "", batch=64)) == 4
    assert tried[-1] == 4
    monkeypatch.setattr(failures, "_available", lambda: 1150)
    monkeypatch.setattr(failures, "_peak", lambda r: 1100 if r.batch == 1 else None)
    assert failures.largest(Request("gpt2", "", batch=64)) == 1


@pytest.mark.parametrize(
    ("fits", "checkpoint", "fix"),
    [
        (34, False, "--batch 34 fits (tried), or recompute activations (--checkpoint)"),
        (34, True, "--batch 34 fits (tried)"),
        (None, False, "lower --seq, or recompute activations (--checkpoint)"),
    ],
)
def test_what_would_fit_is_said_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, fits: int | None, checkpoint: bool, fix: str
) -> None:
    monkeypatch.setattr(failures, "largest", lambda request: fits)
    monkeypatch.setattr(failures, "_available", lambda: 2**30)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    wanted = Request("gpt2", "", batch=700, seq=1024, checkpoint=checkpoint)
    assert failures.out_of_memory(wanted).fix == fix


def test_a_model_that_cannot_be_compiled_says_why_and_what_to_do() -> None:
    def broken(*_: Any) -> None:
        raise LookupError("no working C++ compiler")

    compiled = torch.compile(lambda x: x + 1, backend=broken)
    request = Request("gpt2", cache="", compile=True)
    with pytest.raises(InputError) as caught, failures.explained(request):
        compiled(torch.ones(2))
    assert "torch.compile cannot compile the model" in caught.value.what
    assert "LookupError: no working C++ compiler" in caught.value.what
    assert caught.value.fix is not None and "train without --compile" in caught.value.fix
