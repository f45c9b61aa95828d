"""What stops a training run, explained: a loss that is no number, a batch that does not fit, a
model that torch.compile cannot compile.

A loss that is not finite is found after the step that made it, when the weights are not finite
either. So the run is begun again from its seed, without anything that watches it, up to that step,
and its forward is done once more with a hook on every module: the first module that gives what is
not finite, from inputs that are, made it.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import math
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from ..core.errors import InputError
from ..export.quiet import gist
from .loop import train
from .request import Request
from .training import Batch, Training

_COMPILING = ("torch._dynamo.", "torch._inductor.")  # where torch.compile's errors are
RECOMPUTE = "recompute activations (--checkpoint)"


class NotFinite(Exception):
    """The loss of step `number` is NaN or infinite."""

    def __init__(self, number: int, loss: float) -> None:
        self.number, self.loss = number, loss
        super().__init__(f"step {number}: loss {loss}")


def check(number: int, loss: float) -> None:
    """NotFinite where the loss of a step is."""
    if not math.isfinite(loss):
        raise NotFinite(number, loss)


@contextlib.contextmanager
def explained(request: Request) -> Iterator[None]:
    """Explain what a run of `request` inside the block fails of, as InputError."""
    failed: NotFinite | None = None
    try:
        yield
        return
    except NotFinite as e:
        failed = e
        traceback.clear_frames(e.__traceback__)  # they hold the model
    except (torch.OutOfMemoryError, MemoryError) as e:
        traceback.clear_frames(e.__traceback__)
    except RuntimeError as e:
        if type(e).__module__.startswith(_COMPILING):
            what = f"torch.compile cannot compile the model ({gist(e)})"
            fix = (
                "train without --compile; where its compiler is to blame, layerline doctor says so"
            )
            raise InputError(what, fix=fix) from e
        if "allocate memory" not in str(e):  # of the CPU's allocator
            raise
        traceback.clear_frames(e.__traceback__)
    _release()
    raise out_of_memory(request) if failed is None else not_finite(request, failed)


def _release() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def not_finite(request: Request, failed: NotFinite) -> InputError:
    """Which module made it, by running up to the step again."""
    what = f"the loss of step {failed.number} is {failed.loss}"
    fix = "lower --learning-rate"
    if failed.number == 0:
        fix = "look at the weights and the data, as no step was taken yet"
    fix += "" if request.precision != "fp16" else ", or use bf16"
    if request.ranks > 1:
        return InputError(f"{what} (rank {request.rank})", fix=fix)
    training = replace(request, compile=False).build()
    found = replayed(training, failed.number)
    if found is None:
        return InputError(f"{what}; when the run was repeated it was finite", fix=fix)
    number, origin = found
    again = "" if number == failed.number else f" (of step {number} when it was repeated)"
    return InputError(f"{what}: {origin}{again}", fix=fix)


def replayed(training: Training, last: int) -> tuple[int, str] | None:
    """Train to the first step whose loss is not finite, at most number `last`: its number and what
    made it. None where every loss is finite."""
    for number in range(last + 1):
        state = _generators(training)
        batches = [next(training.batches) for _ in range(training.accumulate)]
        training.batches, rest = iter(batches), training.batches
        loss = float(training.gradients(training.phase).detach())
        if not math.isfinite(loss):
            _restore(training, state)
            return number, origin(training, batches)
        training.update()
        training.batches = rest
    return None


def _generators(training: Training) -> list[torch.Tensor]:
    state = [torch.get_rng_state()]
    if training.device.type == "cuda":
        state.append(torch.cuda.get_rng_state(training.device))
    return state


def _restore(training: Training, state: list[torch.Tensor]) -> None:
    torch.set_rng_state(state[0])
    if len(state) > 1:
        torch.cuda.set_rng_state(state[1], training.device)


def origin(training: Training, batches: Sequence[Batch]) -> str:
    """What first gives a value that is not finite in the forwards of these micro-batches."""
    found: list[str] = []
    running: list[str] = []  # modules whose forward has not ended, the outermost first
    handles = []
    named = dict(training.model.named_modules())

    def enter(path: str, given: Any) -> None:
        # Given what is not finite, and no module inside gave it: the one around made it itself.
        if not found and running and _bad(given):
            found.append(_words(running[-1], named[running[-1]]))
        running.append(path)

    def leave(path: str, output: Any) -> None:
        running.pop()
        if not found and _bad(output):
            found.append(_words(path, named[path]))

    for path, module in named.items():
        before = functools.partial(lambda p, _m, args, more: enter(p, [args, more]), path)
        after = functools.partial(lambda p, _m, _args, output: leave(p, output), path)
        handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
        handles.append(module.register_forward_hook(after))
    try:
        with torch.no_grad():
            for batch in batches:
                output = training.forward(batch)
                if not found and _bad(training.loss(output, batch)):
                    found.append("the loss made it, from outputs that are finite")
    finally:
        for handle in handles:
            handle.remove()
    return found[0] if found else "which module made it is not known"


def _words(path: str, module: torch.nn.Module) -> str:
    bad = [n for n, p in module.named_parameters(recurse=False) if _bad(p)]
    because = (
        f": its {' and '.join(bad)} {'is' if len(bad) == 1 else 'are'} not finite" if bad else ""
    )
    return f"{path or 'the model'} ({type(module).__name__}) made it first{because}"


def _bad(value: Any) -> bool:
    """Whether a tensor somewhere in a value is not finite."""
    if isinstance(value, torch.Tensor):
        return value.is_floating_point() and not bool(value.isfinite().all())
    if isinstance(value, dict):
        return any(_bad(v) for v in value.values())
    return isinstance(value, (list, tuple)) and any(_bad(v) for v in value)


def out_of_memory(request: Request) -> InputError:
    """What does not fit, and the largest batch that does: tried, where one process has a GPU."""
    what = f"a batch of {request.batch} × {request.seq} in {request.precision} does not fit"
    recompute = "" if request.checkpoint else f", or {RECOMPUTE}"
    if not torch.cuda.is_available() or request.ranks > 1 or request.device == "cpu":
        return InputError(f"{what} into memory", fix=f"lower --batch or --seq{recompute}")
    what += f" into {_available() / 2**30:.1f} GiB of GPU memory"
    fits = largest(request)
    if fits is None:
        alone = "" if request.batch == 1 else ", nor does one of 1"
        return InputError(what + alone, fix=f"lower --seq{recompute}")
    return InputError(what, fix=f"--batch {fits} fits (tried){recompute}")


def largest(request: Request) -> int | None:
    """The largest batch, or nearly, of which two steps fit: they were run; None where not even 1
    does.

    Memory grows with the batch in a straight line, from which the first that is tried is told."""
    peaks = [_peak(replace(request, batch=batch)) for batch in (1, 2)]
    if peaks[0] is None or request.batch == 1:
        return None
    if peaks[1] is None:
        return 1
    each = max(peaks[1] - peaks[0], 1)
    batch = min(request.batch - 1, int((_available() - peaks[0]) / each) + 1)
    while batch > 2 and _peak(replace(request, batch=batch)) is None:
        batch = batch * 9 // 10
    return max(batch, 2)


def _available() -> int:
    free, _total = torch.cuda.mem_get_info()
    return int(free) + int(torch.cuda.memory_reserved())


def _peak(request: Request) -> int | None:
    """Bytes of two steps, the second with the optimizer's state; None where they do not fit."""
    torch.cuda.reset_peak_memory_stats()
    try:
        for _ in train(request.build(), 2):
            pass
        return int(torch.cuda.max_memory_allocated())
    except torch.OutOfMemoryError:
        return None
    finally:
        _release()
