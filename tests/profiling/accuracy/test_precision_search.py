"""The search for the least set of modules to keep in fp32, on faults that are known beforehand."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerline.core.documents import ModuleError
from layerline.core.module_paths import inside
from layerline.profile.accuracy.search import Modules, Trial, added, candidates, search

LAYERS = 6
NORMS = [f"layers.{i}.norm" for i in range(LAYERS)]
PRODUCTS = [f"layers.{i}.fc" for i in range(LAYERS)]


def fixed(modules: Collection[str], fault: str) -> bool:
    return any(inside(fault, m) for m in modules)


class Model:
    """Norms and products in turn, in layers. A fault adds its error, or makes all behind it NaN;
    each product adds a little that does no harm."""

    def __init__(self, faults: dict[str, float | None]) -> None:
        self.faults, self.tries, self.measured = faults, 0, 0

    def errors(self, modules: Modules) -> list[ModuleError]:
        self.measured += 1
        rows, error, nan = [], 1e-5, False
        for i in range(LAYERS):
            start, start_nan = error, nan
            for path in (NORMS[i], PRODUCTS[i]):
                before, before_nan = error, nan
                if path in self.faults and not fixed(modules, path):
                    amount = self.faults[path]
                    nan = nan or amount is None
                    error += amount or 0
                error += 1e-5
                rows.append(row(path, before, error, before_nan, nan))
            rows.append(row(f"layers.{i}", start, error, start_nan, nan))
        return rows

    def attempt(self, modules: Modules) -> Trial:
        self.tries += 1
        left = [f for f in self.faults if not fixed(modules, f)]
        return Trial(modules, {}, None, f"{', '.join(left)} is wrong" if left else "")


def row(path: str, given: float, got: float, given_nan: bool, got_nan: bool) -> ModuleError:
    return ModuleError(
        module=path,
        error_in=None if given_nan else given,
        error_out=None if got_nan else got,
        nonfinite=7 if got_nan else 0,
    )


@given(st.dictionaries(st.sampled_from(NORMS + PRODUCTS), st.floats(0.01, 10), min_size=1))
def test_exactly_the_modules_at_fault_are_kept(faults: dict[str, float]) -> None:
    model = Model(dict(faults))
    found = search(model.errors, model.attempt, 1000)
    assert found.after is not None
    assert set(found.after.modules) == set(faults)
    assert found.before.modules == ()


@given(st.sets(st.sampled_from(NORMS), min_size=1))
def test_a_fault_that_hides_those_behind_it_is_followed_by_another_look(faults: set[str]) -> None:
    model = Model(dict.fromkeys(faults))
    found = search(model.errors, model.attempt, 1000)
    assert found.after is not None
    assert set(found.after.modules) == faults


def test_many_alike_take_few_engines() -> None:
    """Six norms of 18 modules: none, 1, 2, 4, 8, bisection to 6, and each left out once."""
    model = Model(dict.fromkeys(NORMS, 1.0))
    assert search(model.errors, model.attempt).after is not None
    assert model.tries <= 5 + 2 + 6
    assert model.measured == 1


def test_of_modules_alike_the_last_is_tried_first() -> None:
    """Norms that give nothing at all, beside a residual that hides all of them but the last."""
    errors = [1.0, 0.999, 1.0, 1.001, 1.0, 0.998]
    rows = [
        ModuleError(module=n, error_in=0.001 * i, error_out=e)
        for i, (n, e) in enumerate(zip(NORMS, errors, strict=True))
    ]
    tried = []

    def attempt(modules: Modules) -> Trial:
        tried.append(modules)
        return Trial(modules, {}, None, "" if NORMS[-1] in modules else "wrong")

    search(lambda modules: rows, attempt)
    assert tried == [(), (NORMS[-1],)]


def test_the_bound_ends_it_with_the_best_that_is_right() -> None:
    model = Model(dict.fromkeys(NORMS, 1.0))
    found = search(model.errors, model.attempt, 6)
    assert model.tries == 6
    assert found.why == "stopped after 6 tries"
    assert found.after is not None
    assert set(found.after.modules) >= set(NORMS)
    none = search(Model(dict.fromkeys(NORMS, 1.0)).errors, model.attempt, 3)
    assert none.after is None


def test_a_fault_that_no_module_explains_has_no_plan() -> None:
    def wrong(modules: Modules) -> Trial:
        return Trial(modules, {}, None, "wrong")

    found = search(Model({NORMS[0]: 1.0}).errors, wrong, 100)
    assert found.after is None
    assert "no set of modules" in found.why


def test_an_engine_that_is_right_needs_no_module() -> None:
    model = Model({})
    found = search(model.errors, model.attempt)
    assert found.after is found.before
    assert (model.tries, model.measured) == (1, 0)


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        # the norm inside explains all that the layer adds
        (0.5, ["layers.0.norm", "layers.0"]),
        # the layer adds it outside of its parts: in a softmax of its own, say
        (0.001, ["layers.0", "layers.0.norm"]),
    ],
)
def test_the_smallest_module_that_holds_the_fault_comes_first(
    own: float, expected: Sequence[str]
) -> None:
    rows = [
        ModuleError(module="layers.0.norm", error_in=1e-5, error_out=own),
        ModuleError(module="layers.0", error_in=1e-5, error_out=0.5),
        ModuleError(module="", error_in=0.0, error_out=0.5),
    ]
    assert [c.module for c in candidates(rows)] == expected


def test_what_is_unknown_is_not_taken_for_an_error() -> None:
    assert added(ModuleError(module="a", error_in=0.3)) is None
    assert added(ModuleError(module="a", error_in=None, nonfinite=3)) is None
    assert added(ModuleError(module="a", error_in=0.3, error_out=0.5)) == pytest.approx(0.4)
