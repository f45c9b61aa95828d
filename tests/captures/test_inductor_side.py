"""What a side of inductor says beside its numbers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from layerline.analysis.captures.engine import otherwise
from layerline.analysis.model.comparison import Side
from layerline.analysis.report.headline import _placement
from layerline.core.documents import Break, Build


def files(build: Build | None) -> Any:
    return SimpleNamespace(build=build)


def test_breaks_and_recompiles_of_torch_compile_are_said_beside_the_package() -> None:
    build = Build(graph_breaks=[Break(place="own.py:7 in forward", why="print")], recompiles=2)
    side = Side(
        task="engine",
        precision="fp32",
        backend="inductor",
        phase="inference",
        label="torch.compile fp32",
        source="x",
        device=otherwise(files(build)),
    )
    texts = [s.text for s in _placement(side)]
    assert len(texts) == 2
    assert "breaks the graph at own.py:7 in forward (print)" in texts[0]
    assert "compiles again for equal inputs (2 times in two calls)" in texts[1]


def test_nothing_is_said_of_a_model_that_torch_compile_takes_whole() -> None:
    assert otherwise(files(Build(recompiles=0))) == {}
    assert otherwise(files(None)) == {}
