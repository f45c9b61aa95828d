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
matched to the plan afterwards (`match`).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from msgspec import Meta, Struct

from ..documents.forms import Count

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
    bytes; `duration_ns` is nsys's. `layer` is the innermost range, None where it is not known.
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
    block's: its launches are told apart by their layers as they are, each from each where these
    are equal.
    """
    members: dict[tuple[Any, ...], list[Launch]] = defaultdict(list)
    for launch in launches:
        members[launch.key].append(launch)
    kind_of: Kinds = {}
    for key, equal in members.items():
        times = [x.duration_ns for x in equal if x.duration_ns is not None]
        low, high = (min(times), max(times)) if times else (0, 0)
        apart = high > DIFFERENT * low and high - low > DIFFERENT_NS
        for launch in equal:
            own = launch.layer if launch.place is None else launch.place
            if own == key[-1]:  # no block's, or no module's: each is its own
                own = f"#{launch.index}"
            kind_of[launch.index] = (*key, own) if apart else key
    return kind_of


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
        return choose(self.launches, functions, self.invocations, by_function)

    @property
    def share(self) -> float:
        """Launches to replay over all launches."""
        return len(self.chosen) / len(self.launches)

    def filters(self) -> list[str]:
        """As ncu's arguments. Names that are too long for an argument are left out: the same
        invocations of all kernels are a superset."""
        names = "" if self._too_long() else f"regex:{names_pattern(self.functions)}"
        return ["--kernel-id", f"::{names}:{self._numbers()}"]

    def _numbers(self) -> str:
        return "|".join(str(n) for n in self.invocations)

    def _too_long(self) -> bool:
        return len(names_pattern(self.functions).encode()) + len(self._numbers()) > LONGEST


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


# What invocations are counted by.
Way = Callable[[Launch], Any]


def by_function(launch: Launch) -> str:
    return launch.function


def invocations(launches: Sequence[Launch], way: Way) -> list[int]:
    seen: Counter[Any] = Counter()
    numbers = []
    for launch in launches:
        seen[way(launch)] += 1
        numbers.append(seen[way(launch)])
    return numbers


def choose(
    launches: Sequence[Launch], functions: Iterable[str], numbers: Iterable[int], way: Way
) -> list[Launch]:
    names, wanted = set(functions), set(numbers)
    counted = zip(launches, invocations(launches, way), strict=True)
    return [x for x, n in counted if x.function in names and n in wanted]


_Named = tuple[str, int]


def _named(launches: Sequence[Launch]) -> list[_Named]:
    """As ncu is told a launch: its function, and which invocation of it."""
    numbers = invocations(launches, by_function)
    return [(x.function, n) for x, n in zip(launches, numbers, strict=True)]


class _Cover:
    """Function names and invocation numbers, and how many launches their product chooses."""

    def __init__(self, named: Iterable[_Named]) -> None:
        self.functions: set[str] = set()
        self.invocations: set[int] = set()
        self.size = 0
        self._numbers_of: dict[str, set[int]] = defaultdict(set)
        self._functions_of: dict[int, set[str]] = defaultdict(set)
        for function, number in named:
            self._numbers_of[function].add(number)
            self._functions_of[number].add(function)

    def has(self, function: str, number: int) -> bool:
        return function in self.functions and number in self.invocations

    def more(self, function: str, number: int) -> int:
        """Launches that are chosen in addition with this name and this number."""
        count = 0
        if number not in self.invocations:
            count += len(self._functions_of[number] & self.functions)
        if function not in self.functions:
            count += len(self._numbers_of[function] & {*self.invocations, number})
        return count

    def add(self, function: str, number: int) -> None:
        self.size += self.more(function, number)
        self.functions.add(function)
        self.invocations.add(number)


def _at_stake(members: Sequence[_Named], cover: _Cover, duration: Mapping[_Named, int]) -> int:
    """How far nsys's durations of one kind are from that of its covered launch, in sum."""
    first = next(duration[m] for m in members if cover.has(*m))
    return sum(abs(duration[m] - first) for m in members)


def _covering(groups: Iterable[list[_Named]], cover: _Cover) -> _Cover:
    for members in groups:
        if not any(cover.has(*m) for m in members):
            cover.add(*min(members, key=lambda m: cover.more(*m)))
    return cover


def plan(launches: Sequence[Launch], fraction: float = FRACTION) -> Plan:
    """Choose names and invocations so that each kind of work is replayed at least once.

    Of each kind the launch that adds the fewest others; then second representatives (of the last
    instance's name, and of later invocations) while no more than `fraction` of the launches is
    replayed: first those of the kinds in which nsys's durations are furthest from the first's.
    """
    named = _named(launches)
    kind_of = kinds(launches)
    groups: dict[tuple[Any, ...], list[_Named]] = defaultdict(list)
    for launch, name in zip(launches, named, strict=True):
        groups[kind_of[launch.index]].append(name)
    # Neither order is best for all: those that have no choice first is for a step of training.
    orders = (list(groups.values()), sorted(groups.values(), key=len))
    covers = [_covering(order, _Cover(named)) for order in orders]
    cover = min(covers, key=lambda c: c.size)
    duration = {m: x.duration_ns or 0 for m, x in zip(named, launches, strict=True)}
    for members in sorted(groups.values(), key=lambda g: -_at_stake(g, cover, duration)):
        rest = [m for m in reversed(members) if not cover.has(*m)]
        if rest and len(members) - len(rest) == 1:
            best = min(rest, key=lambda m: cover.more(*m))
            if (cover.size + cover.more(*best)) / len(launches) <= fraction:
                cover.add(*best)
    return Plan(tuple(launches), tuple(sorted(cover.functions)), tuple(sorted(cover.invocations)))


def missing(launches: Sequence[Launch], measured: Iterable[int]) -> list[Launch]:
    """One launch of each kind of work that none of the measured launches is."""
    kind_of = kinds(launches)
    have = {kind_of[i] for i in measured}
    lacking: dict[tuple[Any, ...], Launch] = {}
    for launch in launches:
        if kind_of[launch.index] not in have:
            lacking.setdefault(kind_of[launch.index], launch)
    return list(lacking.values())


def _nearest(launch: Launch, measured: Sequence[Launch]) -> int | None:
    """The first of the measured launches whose duration is nearest; None without one."""

    def apart(x: Launch) -> int:
        return abs((x.duration_ns or 0) - (launch.duration_ns or 0))

    return min(measured, key=apart).index if measured else None


def document(
    launches: Sequence[Launch],
    measured: dict[str, dict[int, int]],
    chosen: Sequence[Launch] | None = None,
) -> dict[str, Any]:
    """``ncu.plan.json``. `measured`: for each report, its launch numbers -> planned index.
    `chosen`: the launches that ncu was told, None for every one.

    Every launch has the number of its kind (`key`), whether it was `measured`, and the index of
    the launch whose counters it is given (`representative`, its own where it was measured; null
    where none of its kind was; where several were, the one whose duration is nearest). Durations
    are nsys's, of the capture that the plan is of.
    """
    kind_of = kinds(launches)
    number_of = {k: i for i, k in enumerate(dict.fromkeys(kind_of[x.index] for x in launches))}
    done = {i for index_of in measured.values() for i in index_of.values()}
    counted: dict[tuple[Any, ...], list[Launch]] = defaultdict(list)
    for launch in launches:
        if launch.index in done:
            counted[kind_of[launch.index]].append(launch)
    rows = []
    for x in launches:
        kind, own = kind_of[x.index], x.index in done
        stands_for = x.index if own else _nearest(x, counted[kind])
        about = {"key": number_of[kind], "measured": own, "representative": stands_for}
        rows.append({**asdict(x), **about})
    reports = {
        name: {str(n): i for n, i in index_of.items()} for name, index_of in measured.items()
    }
    return {
        "schema_version": SCHEMA_VERSION,
        "launches": rows,
        "keys": len(number_of),
        "replayed": len(done),
        "reports": reports,
        "chosen": None if chosen is None else [x.index for x in chosen],
    }


class PlannedLaunch(Struct, kw_only=True):
    """One launch of an ncu plan; `representative` is the index of the one that stands for it."""

    index: Count
    key: Count
    kernel: str
    representative: Count | None
    function: str | None
    layer: str | None
    grid: list[Count] | None
    block: list[Count] | None
    place: str | None = None
    registers: Count | None = None
    static_shared: Count | None = None
    dynamic_shared: Count | None = None
    duration_ns: Count | None = None
    measured: bool | None = None


# A launch's number in a report, which is a key and so text.
LaunchNumber = Annotated[str, Meta(pattern=r"^\d+$")]


class NcuPlan(Struct, kw_only=True):
    """captures/*.ncu.plan.json: the launches, and by report and number which of them it holds."""

    launches: list[PlannedLaunch]
    reports: dict[str, dict[LaunchNumber, Count] | None]
    chosen: list[Count] | None = None

    def __post_init__(self) -> None:
        """Launches must not share a number, nor be represented by one that is not there or that is
        other work: their counters would be counted twice, or be another's."""
        keys: dict[int, int] = {}
        for x in self.launches:
            if x.index in keys:
                raise ValueError(f"launch {x.index} is there twice")
            keys[x.index] = x.key
        for x in self.launches:
            of = x.representative
            if of is not None and keys.get(of) != x.key:
                raise ValueError(f"launch {x.index} is no work of launch {of}, which represents it")
        for name, numbers in self.reports.items():
            held = list((numbers or {}).values())
            if wrong := set(held) - keys.keys():
                raise ValueError(f"{name} holds launch {min(wrong)}, which is not in it")
            if len(set(held)) < len(held):
                raise ValueError(f"two launches of {name} are one of it")
