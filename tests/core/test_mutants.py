"""What `make mutants` takes for a module's own tests, and for the same module."""

from __future__ import annotations

import sys
import tomllib

from paths import ROOT, TESTS

sys.path.insert(0, str(TESTS / "mutants"))
import run

KNOWN = tomllib.loads((TESTS / "mutants" / "modules.toml").read_text())


def test_what_is_said_of_modules_is_of_files_that_are_there() -> None:
    for module, said in KNOWN.items():
        assert (ROOT / module).is_file(), module
        assert set(said) <= {"tests", "equivalent"}, module
        assert all((ROOT / t).exists() for t in said.get("tests", [])), module
        for entry in said.get("equivalent", []):
            assert set(entry) == {"function", "before", "after", "why"}, entry
            assert entry["why"] and entry["before"] != entry["after"], entry
            assert entry["function"].rpartition(".")[2] in (ROOT / module).read_text(), entry


def test_own_tests_are_those_beside_the_module_that_import_it() -> None:
    assert run.own_tests("analysis/comparison/ratios.py") == ["tests/comparison/test_ratios.py"]
    assert run.own_tests("core/intervals.py") == ["tests/core/test_core_intervals.py"]
    # None lies beside it: whoever imports it.
    assert "tests/profiling/accuracy/test_accuracy_errors.py" in run.own_tests(
        "profile/accuracy/errors.py"
    )
    assert run.own_tests("no/such.py") == []


def test_an_equivalent_mutant_is_known_by_its_function_and_lines() -> None:
    mutant = run.Mutant("m.x_f__mutmut_1", "f", "return a < b", "return a <= b")
    entry = {"function": "f", "before": "return a < b", "after": "return a <= b", "why": "…"}
    assert mutant.is_said(entry)
    assert not mutant.is_said({**entry, "function": "g"})
    assert not run.report("m.py", {mutant: "survived"}, [])
    assert run.report("m.py", {mutant: "survived"}, [entry])
    assert not run.report("m.py", {mutant: "killed"}, [entry])  # then it is none
    assert not run.report("m.py", {mutant: "survived"}, [{**entry, "before": "gone"}])
