"""The worker that compiles a run's model with what its modules are given and give as outputs too.

``python -m layerline.profile.accuracy.package_outputs JOB``, with the tasks of a worker: `outputs`,
which leaves an npz of float32 arrays of the package in `raw`, and one of the captured graph in
``options.captured``. facts: ``{"modules": [{"path", "inputs": [key, …], "output": key or null}],
"outputs": [key, …]}`` of the modules that were called once; the model's own outputs have their
names.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from ...engines import inductor_build
from ...engines.workers import common
from ...engines.workers.common import Job
from ...export import nested
from ...export.models import load_spec, tensors
from ..eager.module_outputs import floating, hooked


class Marked(torch.nn.Module):  # type: ignore[misc]
    """A model of arrays in a row, whose outputs are its own and those of its modules; `told` is
    given which is which."""

    def __init__(
        self,
        model: torch.nn.Module,
        inputs: Mapping[str, Any],
        told: Callable[[dict[str, Any]], None],
    ) -> None:
        """`told`: see `inductor_build.Flat`."""
        super().__init__()
        self.model, self.inputs, self.told = model, dict(inputs), told

    def forward(self, *arrays: torch.Tensor) -> tuple[torch.Tensor, ...]:
        each = iter(arrays)
        with hooked(self.model, _copies) as ended:
            output = self.model(**nested.mapped(self.inputs, lambda _: next(each)))
        own = nested.outputs(output, self.inputs)
        values = {k: v for k, v in own.items() if isinstance(v, torch.Tensor)}
        values = {k: v for k, v in values.items() if v.is_floating_point()}
        outputs, listed = list(values), []
        for number, kept in enumerate(ended):
            if kept.calls > 1:
                continue
            given = {f"{kept.path}.given.{i}": v for i, v in enumerate(kept.inputs)}
            made = f"{kept.path}.gave"
            if number == len(ended) - 1 and outputs:  # the model itself
                made = outputs[0]
            elif kept.output is not None:
                values[made] = kept.output
            values |= given
            gave = made if made in values else None
            listed.append({"path": kept.path, "inputs": list(given), "output": gave})
        self.told({"modules": listed, "outputs": outputs, "names": list(values)})
        return tuple(values.values())


def _copies(value: Any) -> list[torch.Tensor]:
    """What a module was given or gave, as it was then: it may be changed in place."""
    return [v.clone() for v in floating(value)]


def outputs(job: Job) -> dict[str, Any]:
    """Compile and run; see the module's text."""
    wanted = job["options"]
    torch.set_num_threads(job["threads"])
    device = inductor_build.device_of(job["precision"])
    spec = load_spec(Path(wanted["model"]))
    model = spec.build(job["precision"]).requires_grad_(False).to(device)
    given, axes = inductor_build.inputs_of(spec, job["precision"], device)
    facts: dict[str, Any] = {}
    marked = Marked(model, given, facts.update)
    program = inductor_build.captured(spec.model, marked, given, axes)
    inductor_build.packaged(
        program, Path(job["engine"]), Path(wanted["folder"]), wanted["mode"], False
    )
    arrays = common.read_inputs(job, list(nested.named(given)))
    arguments = list(tensors(dict(arrays), job["precision"], device).values())
    names = facts.pop("names")
    with torch.no_grad():
        package = torch._inductor.aoti_load_package(job["engine"])
        for run, place in ((package, job["raw"]), (program.module(), wanted["captured"])):
            made = [v.float().cpu().numpy() for v in run(*arguments)]
            common.save(place, dict(zip(names, made, strict=True)))
    return {"facts": facts}


if __name__ == "__main__":
    sys.exit(common.main({"outputs": inductor_build.reported(outputs)}, sys.argv[1:]))
