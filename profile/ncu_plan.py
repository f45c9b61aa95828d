"""Which launches of one iteration are the same work, and which of them to replay.

The launches come from the run's nsys capture. Two are the same work when grid, block, registers,
static and dynamic shared memory are equal, and kernel and layer too but for the index of the
instance: ``__myl_bb0_7_AddCas`` and ``__myl_bb0_5_AddCas``, ``mha0`` and ``mha1``,
``h_3_mlp_c_fc/Gemm`` and ``h_4_mlp_c_fc/Gemm``. The layer stands for the shapes: two products of
one tile and one grid differ in their inner dimension only, which nothing of a launch shows.

ncu chooses launches with ``--kernel-id context:stream:regex:NAME:INVOCATION``. Invocations are
counted in the profiler's range per function name, whatever grid, block and shared memory are (seen
with ncu 2025.3.1 on Hopper; its manual names these too), and one expression serves for all names.
So the plan is a set of names and a set of invocation numbers, and what was really captured is
matched to the plan afterwards (`found_in`).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from layerline.core.errors import CheckFailed

SCHEMA_VERSION = 1
# Linux takes arguments of up to 128 KiB each (MAX_ARG_STRLEN).
LONGEST = 100_000
# A second representative of each kind is replayed too, as long as no more than this is.
FRACTION = 0.25
_MYELIN = re.compile(r"(__myl_bb)\d+_\d+(_)|(__mye)\d+")
_INSTANCE = re.compile(r"\b((?:mha|fmha|attn|ffn|block|layer))(\d+)\b")
_TEMPORARY = re.compile(r"__mye\d+|_myl\d+_\d+")
_PARTS = re.compile(r"(\+|\s_\s|\|\||[\x1e\x1f])")
_BLOCK = re.compile(r"(?<=[_.])\d+(?=[_.]|$)")
# Launches of one kind that nsys saw differ by more than both are not the same work.
DIFFERENT, DIFFERENT_NS = 1.5, 3000


@dataclass(frozen=True)
class Launch:
    """One kernel launch of an iteration, in the order of launching.

    `function` is the name without its parameters; `grid`, `block` as (x, y, z); shared memory in
    bytes; `duration_ns` is nsys's. `layer` is the innermost range, null where it is not known.
    """

    index: int
    kernel: str
    function: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    registers: int | None
    static_shared: int | None
    dynamic_shared: int | None
    layer: str | None
    duration_ns: int | None = None
    # PHASE/OPERATOR/CLASS/MODULE of an eager launch, where ncu's report knows the phase only.
    place: str | None = None

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for launches that are the same work. Without a layer it is its own only."""
        work = kernel_kind(self.kernel)
        shared = (self.static_shared, self.dynamic_shared)
        return (work, self.grid, self.block, self.registers, *shared, self._place())

    def _place(self) -> str:
        if self.place is not None:
            rest, slash, module = self.place.rpartition("/")
            return rest + slash + _BLOCK.sub("*", module, count=1)
        return f"#{self.index}" if self.layer is None else layer_kind(self.layer)


Kinds = dict[int, tuple[Any, ...]]


def kinds(launches: Sequence[Launch]) -> Kinds:
    """The kind of work of each launch by its index: its key.

    Where the durations of one key differ far beyond noise, the number in the layer's name was no
    block's: its launches are told apart by their layers as they are.
    """
    members: dict[tuple[Any, ...], list[Launch]] = defaultdict(list)
    for launch in launches:
        members[launch.key].append(launch)
    found: Kinds = {}
    for key, equal in members.items():
        times = [x.duration_ns for x in equal if x.duration_ns is not None]
        low, high = (min(times), max(times)) if times else (0, 0)
        apart = high > DIFFERENT * low and high - low > DIFFERENT_NS
        for launch in equal:
            own = launch.layer if launch.place is None else launch.place
            found[launch.index] = (*key, own) if apart else key
    return found


@dataclass(frozen=True)
class Plan:
    """The launches of one iteration, and the function names and invocations to replay."""

    launches: tuple[Launch, ...]
    functions: tuple[str, ...]
    invocations: tuple[int, ...]

    @property
    def chosen(self) -> list[Launch]:
        """The launches that these names and invocations choose."""
        functions = {x.function for x in self.launches} if self._too_long() else self.functions
        return _choose(self.launches, functions, self.invocations, _by_function)

    @property
    def share(self) -> float:
        """Launches to replay over all launches."""
        return len(self.chosen) / len(self.launches)

    def filters(self) -> list[str]:
        """As ncu's arguments. Names that are too long for an argument are left out: the same
        invocations of all kernels are a superset."""
        if self._too_long():
            return ["--kernel-id", f":::{self._numbers()}"]
        return ["--kernel-id", f"::regex:{names_pattern(self.functions)}:{self._numbers()}"]

    def _numbers(self) -> str:
        return "|".join(str(n) for n in self.invocations)

    def _too_long(self) -> bool:
        return len(names_pattern(self.functions).encode()) + len(self._numbers()) > LONGEST


@dataclass(frozen=True)
class Seen:
    """A launch that a report holds: its number there, and what tells it apart."""

    number: int
    function: str
    grid: tuple[int, ...] | None
    block: tuple[int, ...] | None
    layer: str | None


def kernel_kind(name: str) -> str:
    """A kernel's name without the index of its instance."""
    name = _MYELIN.sub(lambda m: f"{m[1]}*_*{m[2]}" if m[1] else f"{m[3]}*", name)
    return _INSTANCE.sub(r"\1*", name)


def layer_kind(name: str) -> str:
    """A layer's name without the number of its block and those of temporaries.

    The first number of a module's path is the block's (``h_3_attn/MatMul_1``); further ones
    (``ln_1``), and those of operators, tell the work of one block apart and stay.
    """
    parts = _PARTS.split(_TEMPORARY.sub("~", name))
    for i, part in enumerate(parts):
        path, slash, operator = part.partition("/")
        if slash:
            parts[i] = _BLOCK.sub("*", path, count=1) + slash + operator
    return _INSTANCE.sub(r"\1*", "".join(parts))


def names_pattern(functions: Iterable[str]) -> str:
    """A regular expression for exactly these names. Colons end a part of --kernel-id."""
    names = sorted(set(functions))
    return "^(" + "|".join(re.escape(n).replace(":", ".").replace(r"\_", "_") for n in names) + ")$"


def names_filter(functions: Iterable[str]) -> list[str]:
    """ncu's arguments for exactly these names; none, so all kernels, where they are too long."""
    pattern = names_pattern(functions)
    return [] if len(pattern.encode()) > LONGEST else ["--kernel-name", f"regex:{pattern}"]


def _by_function(launch: Launch) -> tuple[Any, ...]:
    return (launch.function,)


def _by_configuration(launch: Launch) -> tuple[Any, ...]:
    shared = (launch.static_shared or 0) + (launch.dynamic_shared or 0)
    return (launch.function, launch.grid, launch.block, shared)


_Way = Callable[[Launch], tuple[Any, ...]]
# What ncu counts invocations by: as it was seen to (`plan` relies on it), and as its manual says.
_WAYS: tuple[_Way, ...] = (_by_function, _by_configuration)


def _invocations(launches: Sequence[Launch], way: _Way) -> list[int]:
    seen: Counter[tuple[Any, ...]] = Counter()
    numbers = []
    for launch in launches:
        seen[way(launch)] += 1
        numbers.append(seen[way(launch)])
    return numbers


def _choose(
    launches: Sequence[Launch], functions: Iterable[str], numbers: Iterable[int], way: _Way
) -> list[Launch]:
    names, wanted = set(functions), set(numbers)
    counted = zip(launches, _invocations(launches, way), strict=True)
    return [x for x, n in counted if x.function in names and n in wanted]


def _readings(launches: Sequence[Launch], chosen: Sequence[Launch]) -> Iterator[list[Launch]]:
    """What a capture may hold that was told to choose these: in each way to count, of a plan
    that was made for either way; then these as they are."""
    names, told = {x.function for x in chosen}, {x.index for x in chosen}
    for counted in _WAYS:
        for planned in _WAYS:
            pairs = zip(launches, _invocations(launches, planned), strict=True)
            numbers = {n for x, n in pairs if x.index in told}
            if {x.index for x in _choose(launches, names, numbers, planned)} == told:
                yield _choose(launches, names, numbers, counted)
    yield list(chosen)


class _Cover:
    """Function names and invocation numbers, and how many launches their product chooses."""

    def __init__(self, launches: Sequence[Launch], numbers: Sequence[int]) -> None:
        self.functions: set[str] = set()
        self.invocations: set[int] = set()
        self.size = 0
        self._of_function: dict[str, Counter[int]] = defaultdict(Counter)
        self._of_number: dict[int, Counter[str]] = defaultdict(Counter)
        for launch, number in zip(launches, numbers, strict=True):
            self._of_function[launch.function][number] += 1
            self._of_number[number][launch.function] += 1

    def has(self, function: str, number: int) -> bool:
        return function in self.functions and number in self.invocations

    def more(self, function: str, number: int) -> int:
        """Launches that are chosen in addition with this name and this number."""
        found = 0
        if number not in self.invocations:
            counts = self._of_number[number]
            found += sum(n for f, n in counts.items() if f in self.functions)
        if function not in self.functions:
            wanted = {*self.invocations, number}
            found += sum(n for i, n in self._of_function[function].items() if i in wanted)
        return found

    def add(self, function: str, number: int) -> None:
        self.size += self.more(function, number)
        self.functions.add(function)
        self.invocations.add(number)


def plan(launches: Sequence[Launch], fraction: float = FRACTION) -> Plan:
    """Choose names and invocations so that each kind of work is replayed at least once.

    Of each kind the launch that adds the fewest others; then second representatives (of the last
    instance's name, and of later invocations) while no more than `fraction` of the launches is
    replayed.
    """
    numbers = _invocations(launches, _by_function)
    kind_of = kinds(launches)
    groups: dict[tuple[Any, ...], list[tuple[str, int]]] = defaultdict(list)
    for launch, number in zip(launches, numbers, strict=True):
        groups[kind_of[launch.index]].append((launch.function, number))
    cover = _Cover(launches, numbers)
    for members in groups.values():
        if not any(cover.has(*m) for m in members):
            cover.add(*min(members, key=lambda m: cover.more(*m)))
    for members in groups.values():
        rest = [m for m in reversed(members) if not cover.has(*m)]
        if rest and len(members) - len(rest) == 1:
            best = min(rest, key=lambda m: cover.more(*m))
            if (cover.size + cover.more(*best)) / len(launches) <= fraction:
                cover.add(*best)
    return Plan(tuple(launches), tuple(sorted(cover.functions)), tuple(sorted(cover.invocations)))


def found_in(
    launches: Sequence[Launch], chosen: Sequence[Launch] | None, seen: Sequence[Seen]
) -> dict[int, int]:
    """The index of the planned launch of each launch in a report: number there -> index.

    `chosen` are those that ncu was told; null is every one. Where the report is this sequence, or
    that of the same names and invocation numbers counted in another way, its order tells equal
    launches apart. Where it is another, layers of an engine still do (`match`); launches that only
    their place tells apart do not: CheckFailed.
    """
    if chosen is None:
        return match(launches, seen, every=True)
    layered = _layered(launches, seen)
    captured = [_identity(s, layered) for s in seen]
    for reading in _readings(launches, chosen):
        if [_identity(x, layered) for x in reading] == captured:
            return {s.number: x.index for s, x in zip(seen, reading, strict=True)}
    if any(x.place is not None for x in launches):
        raise CheckFailed(
            f"ncu captured {len(seen)} launches that are not the {len(chosen)} chosen ones",
            fix="capture again with --every",
        )
    return match(launches, seen, every=False)


def _layered(launches: Sequence[Launch], seen: Sequence[Seen]) -> bool:
    return any(s.layer for s in seen) and any(x.layer for x in launches)


def _identity(x: Launch | Seen, layered: bool) -> tuple[Any, ...]:
    return (x.function, x.grid, x.block, x.layer if layered else None)


def match(launches: Sequence[Launch], seen: Sequence[Seen], *, every: bool) -> dict[int, int]:
    """The index of the planned launch of each launch in a report: number there -> index.

    By function name (tools spell template arguments differently), grid, block and layer, equal
    ones in their order; where a report knows no layer, by the others. CheckFailed names the first
    launch that is not of the plan, one that may be either of two kinds of work, and with `every`
    the first planned one that is not in the report.
    """
    layered = _layered(launches, seen)

    def identity(x: Launch | Seen) -> tuple[Any, ...]:
        return _identity(x, layered)

    waiting: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for launch in launches:
        waiting[identity(launch)].append(launch.index)
    found: dict[int, int] = {}
    used: Counter[tuple[Any, ...]] = Counter()
    for s in seen:
        planned = waiting.get(identity(s), [])
        at = used[identity(s)]
        if at >= len(planned):
            again = "once more than the nsys capture has it" if planned else "which nsys did not"
            raise CheckFailed(
                f"ncu captured {s.function} with grid {s.grid} in {(s.layer or 'no layer')[:80]} "
                f"(number {s.number}), {again}",
                fix="capture both again, with nothing else changed",
            )
        used[identity(s)] += 1
        found[s.number] = planned[at]
    if every:
        _sequence(launches, seen, found)
    kind_of = kinds(launches)
    for alike, count in used.items():
        if count < len(waiting[alike]) and len({kind_of[i] for i in waiting[alike]}) > 1:
            raise CheckFailed(
                f"ncu captured {count} of {len(waiting[alike])} launches of {alike[0]} with grid "
                f"{alike[1]}, and which of its kinds of work these are cannot be told",
                fix="capture again with --every",
            )
    return found


def _sequence(launches: Sequence[Launch], seen: Sequence[Seen], found: dict[int, int]) -> None:
    for position, launch in enumerate(launches):
        if position >= len(seen) or found[seen[position].number] != launch.index:
            was = seen[position].function if position < len(seen) else "nothing"
            raise CheckFailed(
                f"launch {position} was {launch.function} under nsys and {was} under ncu",
                fix="capture both again, with nothing else changed",
            )


def missing(launches: Sequence[Launch], measured: Iterable[int]) -> list[Launch]:
    """One launch of each kind of work that none of the measured launches is."""
    kind_of = kinds(launches)
    have = {kind_of[i] for i in measured}
    found: dict[tuple[Any, ...], Launch] = {}
    for launch in launches:
        if kind_of[launch.index] not in have:
            found.setdefault(kind_of[launch.index], launch)
    return list(found.values())


def document(
    launches: Sequence[Launch],
    measured: dict[str, dict[int, int]],
    chosen: Sequence[Launch] | None = None,
) -> dict[str, Any]:
    """``ncu.plan.json``. `measured`: for each report, its launch numbers -> planned index.
    `chosen`: the launches that ncu was told, null for every one.

    Every launch has the number of its kind (`key`), whether it was `measured`, and the index of
    the launch whose counters it is given (`representative`, its own where it was measured; null
    where none of its kind was). Durations are nsys's, of the capture that the plan is of.
    """
    kind_of = kinds(launches)
    numbers: dict[tuple[Any, ...], int] = {}
    done = {i for found in measured.values() for i in found.values()}
    first: dict[tuple[Any, ...], int] = {}
    for launch in launches:
        kind = kind_of[launch.index]
        numbers.setdefault(kind, len(numbers))
        if launch.index in done:
            first.setdefault(kind, launch.index)
    rows = [
        {
            **asdict(x),
            "key": numbers[kind_of[x.index]],
            "measured": x.index in done,
            "representative": x.index if x.index in done else first.get(kind_of[x.index]),
        }
        for x in launches
    ]
    reports = {name: {str(n): i for n, i in found.items()} for name, found in measured.items()}
    return {
        "schema_version": SCHEMA_VERSION,
        "launches": rows,
        "keys": len(numbers),
        "replayed": len(done),
        "reports": reports,
        "chosen": None if chosen is None else [x.index for x in chosen],
    }
