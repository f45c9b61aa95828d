"""Do a module's own tests notice when its operators and constants change? By mutmut.

    make mutants MODULE=core/series.py

Each mutant is the module with one change, and is killed where a test fails. mutmut works in a copy
of the repository in a temporary folder, in forks of a run without any, and asks of the tests that
called the function there. So a test has to call what it holds: what it takes from a cache, or from
a fixture of a module, kills nothing. Not mutated: texts (what an error says is held by tests of its
words), what stands outside of functions, functions with decorators, and zip's `strict`, which only
asserts. `modules.toml` says which tests are a module's own and which mutants are equivalent.
Ends with 1 where less than LEAST of the others are killed, and shows those that live.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("core", "export", "engines", "workloads", "profile", "analysis")
LEAST = 0.9
# Run in the copy: mutmut without its mutations of texts.
MUTMUT = """
import sys
import libcst
from mutmut.mutation import mutators
mutators.mutation_operators[:] = [
    (kind, change) for kind, change in mutators.mutation_operators
    if kind is not libcst.BaseString and change.__name__ not in
    ('operator_symmetric_string_methods_swap', 'operator_unsymmetrical_string_methods_swap')]
from mutmut.__main__ import cli
cli(['run', '--max-children', sys.argv[1]])
"""
SHOW = """
import json
import sys
from mutmut.mutation.diff_apply import get_diff_for_mutant
print(json.dumps({n: get_diff_for_mutant(n) for n in json.load(sys.stdin)}))
"""
STRICT = re.compile(r",\s*(?:strict=\w+)?\s*(?=\)|$)")
STATUS = {0: "survived", 5: "survived", 33: "survived", None: "unchecked", 2: "unchecked"}


@dataclass(frozen=True)
class Mutant:
    """One change: what it is called, in which function, the lines before and after it."""

    name: str
    function: str
    before: str
    after: str

    def is_said(self, entry: dict[str, str]) -> bool:
        """Whether an entry of `equivalent` is of this mutant."""
        said = (entry["function"], entry["before"], entry.get("after", ""))
        return said == (self.function, self.before, self.after)


def own_tests(module: str) -> list[str]:
    """The test files that import a module by its name, as `core/series.py`: of the folder that
    mirrors the module's where there are some."""
    found = list(importing(module))
    folders = Path(module).parts[:-1]
    near = [name for name in found if Path(name).parts[1:-1][-1:] == folders[-1:]]
    return near or found


def importing(module: str) -> Iterator[str]:
    """The test files that import a module by its name."""
    dotted = "layerline." + module.removesuffix(".py").replace("/", ".")
    package, _, name = dotted.rpartition(".")
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            imported = isinstance(node, ast.ImportFrom) and (
                node.module == dotted
                or (node.module == package and any(a.name == name for a in node.names))
            )
            if imported:
                yield str(path.relative_to(ROOT))
                break


def laid_out(folder: Path, module: str, tests: Sequence[str]) -> None:
    """The repository as mutmut wants it: the package under its name, its settings in a file."""
    skipped = shutil.ignore_patterns("__pycache__", ".*")
    for name in PACKAGES:
        shutil.copytree(ROOT / name, folder / "layerline" / name, ignore=skipped)
    shutil.copytree(ROOT / "tests", folder / "tests", ignore=skipped)
    settings = {
        "source_paths": ["layerline"],
        "only_mutate": [f"layerline/{module}"],
        "pytest_add_cli_args": ["-p", "no:cacheprovider", "-m", "not slow and not gpu"],
        "pytest_add_cli_args_test_selection": list(tests),
    }
    lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
    text = (ROOT / "pyproject.toml").read_text()
    text += "\n".join(["\n[tool.mutmut]", *lines, "use_git_change_detection = false", ""])
    (folder / "pyproject.toml").write_text(text)


def mutants_of(folder: Path, codes: dict[str, Any]) -> Iterator[Mutant]:
    """What each mutant changes."""
    shown = subprocess.run(
        [sys.executable, "-c", SHOW], cwd=folder, input=json.dumps(list(codes)), text=True,
        capture_output=True, check=True,
    ).stdout  # fmt: skip
    for name, diff in json.loads(shown).items():
        changed = [line for line in diff.splitlines() if not line.startswith(("---", "+++"))]
        sides = (
            " ".join(line[1:].strip() for line in changed if line.startswith(sign))
            for sign in ("-", "+")
        )
        short = name.rpartition(".")[2].rpartition("__mutmut_")[0]
        before, after = sides
        if STRICT.sub("", before) == STRICT.sub("", after):
            continue
        yield Mutant(name, re.sub(r"^x_|^xǁ", "", short).replace("ǁ", "."), before, after)


def mutate(module: str, tests: Sequence[str], children: int) -> dict[Mutant, str]:
    """Each mutant of a module, and what became of it: killed, survived, unchecked."""
    with tempfile.TemporaryDirectory(prefix="layerline-mutants-") as name:
        folder = Path(name)
        laid_out(folder, module, tests)
        environment = {**os.environ, "TMPDIR": str(folder), "PYTHONSAFEPATH": "1"}
        command = [sys.executable, "-c", MUTMUT, str(children)]
        done = subprocess.run(
            command, cwd=folder, env=environment, text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        meta = folder / "mutants" / "layerline" / f"{module}.meta"
        codes = json.loads(meta.read_text())["exit_code_by_key"] if meta.exists() else {}
        if done.returncode or not codes:
            sys.exit(f"error: mutmut gave nothing for {module}:\n{done.stdout[-3000:]}")
        return {m: STATUS.get(codes[m.name], "killed") for m in mutants_of(folder, codes)}


def report(module: str, found: dict[Mutant, str], equivalent: list[dict[str, str]]) -> bool:
    """Print what lives, and the figures as a row; whether enough are killed and all is told."""
    right = True
    for entry in equivalent:
        if not any(m.is_said(entry) for m in found):
            print(f"error: modules.toml, {module}: no such mutant any more: {entry}")
            right = False
        elif any(m.is_said(entry) and status == "killed" for m, status in found.items()):
            print(f"error: modules.toml, {module}: said to be equivalent, and killed: {entry}")
            right = False
    excused = {m for m in found if any(m.is_said(e) for e in equivalent)}
    counts = Counter(status for m, status in found.items() if m not in excused)
    for m, status in found.items():
        if status != "killed" and m not in excused:
            print(f"\n{status}: {m.function}\n- {m.before}\n+ {m.after}")
    share = counts["killed"] / counts.total() if counts else 1.0
    figures = ", ".join(f"{counts[s]} {s}" for s in ("killed", "survived", "unchecked"))
    print(f"\n{module}: {len(found)} mutants, {figures}, {len(excused)} equivalent: {share:.1%}")
    return right and share >= LEAST


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("module", help="a file of the package, as core/series.py")
    parser.add_argument("--tests", nargs="*", help="test files, instead of its own")
    parser.add_argument("--children", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    module = options.module.removeprefix("./")
    if not (ROOT / module).is_file() or not module.startswith(PACKAGES):
        sys.exit(f"error: {module}: is no file of the package; name one, as core/series.py")
    known = tomllib.loads((Path(__file__).parent / "modules.toml").read_text()).get(module, {})
    tests = options.tests or known.get("tests") or own_tests(module)
    if not tests:
        sys.exit(
            f"error: {module}: no test imports it; name its tests in tests/mutants/modules.toml"
        )
    print(f"{module}, by {' '.join(tests)}", flush=True)
    found = mutate(module, tests, options.children)
    sys.exit(not report(module, found, known.get("equivalent", [])))


if __name__ == "__main__":
    main()
