"""The headline: how much faster, where, how sure, and whether the numbers add up.

Wording follows the intervals: a ratio whose interval holds 1 is "not distinguishable", a saving
inside shared layers is "at least".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .report.show import spoken_time as time
from .report.view import Kind, Side, View

GOOD, BAD, NEUTRAL = "good", "bad", "neutral"
SHOWN_KINDS = 3
# A compute precision with a smaller share of the time is not worth a sentence.
NOTED_SHARE = 0.01
# Above it the engine's latency is not that of its kernels.
LAUNCH_BOUND = 0.3
PRECISION = "precision"
# Phases of a step that are rows: they have no module.
STEP_ROWS = ("loss", "optimizer", "data")


def sentences(view: View) -> list[dict[str, Any]]:
    """[{"text", "tone"}], the answer first."""
    sides = {s["key"]: s for s in view["sides"]}
    found = []
    for r in view["ratios"]:
        over, under = sides[r["over"]], sides[r["under"]]
        if over["side"] == "eager" or over["backend"] != under["backend"]:
            found.append(speed(r, over, under))
            where = savings(view["kinds"], over, under)
            if where:
                found.append(where)
    if not found:
        found += [_alone(s) for s in view["sides"] if s["latency"]["median"] is not None]
    found += [p for s in view["sides"] if (p := _precision(s))]
    found += [p for s in view["sides"] if (p := _placement(s))]
    found += [p for s in view["sides"] if (p := _launches(s))]
    step = _step(view)
    if step:
        found.append(step)
    found += _parity(view["sides"])
    found.append(_sums(view["sides"]))
    return found


def _say(text: str, tone: str = NEUTRAL) -> dict[str, Any]:
    return {"text": text, "tone": tone}


def _alone(side: Side) -> dict[str, Any]:
    latency = side["latency"]
    text = f"{side['label']} takes {time(latency['median'])}"
    if latency["low"] is not None:
        text += f" (95 % interval {time(latency['low'])} to {time(latency['high'])})"
    return _say(text + ".")


def speed(ratio: Mapping[str, Any], over: Side, under: Side) -> dict[str, Any]:
    """How many times as fast `under` is as `over`, and how sure that is."""
    value, low, high = ratio["ratio"], ratio["low"], ratio["high"]
    times = f"{time(under['latency']['median'])} against {time(over['latency']['median'])}"
    if low is None:
        return _say(
            f"{under['label']}: {value:.2f}× as fast as {over['label']} in the median ({times}), "
            f"with too few samples to say how sure that is."
        )
    sure = f"95 % interval {low:.2f}× to {high:.2f}×"
    if low > 1:
        text = f"{under['label']} is {value:.2f}× as fast as {over['label']} ({times}; {sure})."
        return _say(text, GOOD)
    if high < 1:
        slower = f"95 % interval {1 / high:.2f}× to {1 / low:.2f}×" if low > 0 else sure
        return _say(
            f"{under['label']} takes {1 / value:.2f}× as long as {over['label']} "
            f"({times}; {slower}).",
            BAD,
        )
    return _say(
        f"{under['label']} is not distinguishable from {over['label']} "
        f"({times}; ratio {value:.2f}, {sure})."
    )


def disjoint(kinds: Sequence[Kind]) -> list[Kind]:
    """Kinds that do not contain one another: the parts of the repeated blocks (``h.*.attn``) and,
    outside of them, the leaves."""
    names = {k["name"] for k in kinds}
    chosen = []
    for kind in kinds:
        before, star, after = kind["name"].partition("*")
        if star:
            part = after.lstrip(".")
            divided = any(n.startswith(f"{before}*.") for n in names)
            if (part and "." not in part) or (not part and not divided):
                chosen.append(kind)
        elif not any(n.startswith(kind["name"] + ".") for n in names):
            chosen.append(kind)
    return chosen


def savings(kinds: Sequence[Kind], over: Side, under: Side) -> dict[str, Any] | None:
    """Where the time between two sides goes: the kinds with the largest sure difference.

    The difference lies between over.own - (under.own + under.shared) and
    (over.own + over.shared) - under.own.
    """
    saved, lost = [], []
    for kind in disjoint(kinds):
        a, b = kind["costs"].get(over["key"]), kind["costs"].get(under["key"])
        if a is None or b is None or a["own"] is None or b["own"] is None:
            continue
        low = a["own"] - b["own"] - (b["shared"] or 0)
        high = a["own"] + (a["shared"] or 0) - b["own"]
        if low > 0:
            saved.append((low, high, kind["name"]))
        elif high < 0:
            lost.append((-high, -low, kind["name"]))
    if not saved and not lost:
        return None
    parts = []
    if saved:
        parts.append("saves most in " + _places(saved))
    if lost:
        parts.append("loses in " + _places(lost))
    failed = (c["ok"] is False for side in (over, under) for c in side["closure"])
    if any(failed):
        text = f"As profiled, with checks that failed: {under['label']} {' and '.join(parts)}."
        return _say(text)
    text = f"Operation time per iteration: {under['label']} {' and '.join(parts)}."
    return _say(text, GOOD if saved else BAD)


def _places(found: list[tuple[int, int, str]]) -> str:
    found.sort(reverse=True)
    return ", ".join(
        f"{name} ({time(low)})" if low == high else f"{name} (at least {time(low)})"
        for low, high, name in found[:SHOWN_KINDS]
    )


def _precision(side: Side) -> dict[str, Any] | None:
    """A sentence where another precision ran than was asked for."""
    audited = next((c for c in side["closure"] if c["check"] == PRECISION), None)
    if audited is not None and audited["ok"] is False:
        return _say(audited["text"], BAD)
    other = {
        p: share
        for p, share in side["precision_run"].items()
        if p != side["precision"] and p != "unknown" and share >= NOTED_SHARE
    }
    if not other or side["side"] != "engine":
        return None
    ran = ", ".join(f"{share:.0%} {p}" for p, share in other.items())
    return _say(
        f"{side['label']} was asked for {side['precision']} and computed, by time, {ran}.",
        BAD if sum(other.values()) > 0.5 else NEUTRAL,
    )


def _placement(side: Side) -> dict[str, Any] | None:
    """A sentence where a GPU engine has nodes on the CPU."""
    on_cpu = side.get("device", {}).get("on_cpu")
    if not on_cpu:
        return None
    ops = ", ".join(f"{op} ×{n}" if n > 1 else op for op, n in on_cpu.items())
    count = sum(on_cpu.values())
    runs = "node runs" if count == 1 else "nodes run"
    return _say(f"{side['label']}: {count} {runs} on the CPU ({ops}), with copies around them.")


def _launches(side: Side) -> dict[str, Any] | None:
    """A sentence where the device mostly waits for the host."""
    share = side.get("launch_bound")
    if share is None or share < LAUNCH_BOUND:
        return None
    return _say(
        f"{side['label']} is bound by launches: for {share:.0%} of its latency the device waits "
        f"for the host; a CUDA graph or a larger batch would help more than faster kernels."
    )


def _step(view: View) -> dict[str, Any] | None:
    step = next((s for s in view["sides"] if s["phase"] == "step"), None)
    if step is None or not step["operation_ns"]:
        return None
    total = step["operation_ns"]
    phases = [
        (s["phase"], s["operation_ns"])
        for s in view["sides"]
        if s["source"] == step["source"] and s is not step
    ]
    phases += [
        (r["name"], r["costs"][step["key"]]["own"])
        for r in view["modules"]
        if r["kind"] == "row" and r["name"] in STEP_ROWS and step["key"] in r["costs"]
    ]
    shares = [f"{name} {ns / total:.0%}" for name, ns in phases if ns is not None]
    whole = step["latency"]["median"] or step["traced"]["median"]
    takes = f"A training step takes {time(whole)}; of its" if whole else "Of a training step's"
    return _say(f"{takes} operation time: {', '.join(shares)}.")


def _parity(sides: Sequence[Side]) -> list[dict[str, Any]]:
    found = []
    for side in sides:
        p = side["parity"]
        if not p or p.get("max_abs") is None:
            continue
        text = f"{side['label']} differs from eager by at most {p['max_abs']:.2g}"
        if p.get("top1") is not None:
            text += f", top-1 agreement {p['top1']:.1%}"
        text += " (random weights: this proves little)." if p.get("random_weights") else "."
        found.append(_say(text))
    return found


def _sums(sides: Sequence[Side]) -> dict[str, Any]:
    """Whether the numbers add up, all sides together."""
    checks = [(s, c) for s in sides for c in s["closure"] if c["check"] != PRECISION]
    bad = [(s, c) for s, c in checks if c["ok"] is False]
    open_ = sum(c["ok"] is None for _, c in checks)
    covered = [s["coverage"] for s in sides if s["coverage"] is not None]
    worst = (
        f"at least {min(covered):.1%} of operation time has its module or row" if covered else ""
    )
    if bad:
        return _say(f"These numbers do not add up: {_failures(bad)}. See the checks.", BAD)
    if not checks or open_ == len(checks):
        return _say(f"Whether the numbers add up was not checked; {worst}.".replace("; .", "."))
    text = f"The numbers add up: {len(checks) - open_} checks passed"
    if open_:
        text += f", {open_} could not be made"
    return _say(f"{text}; {worst}.".replace("; .", "."), GOOD)


_MEANINGS = {
    "i": "operations are not counted once",
    "ii": "time is outside the operations",
    "iii": "profiling changed the speed",
    "sources": "nsys and torch.profiler tell different kernel times",
}


def _failures(bad: Sequence[tuple[Side, Any]]) -> str:
    """What failed, with the sides, the gravest first."""
    parts = []
    for check in dict.fromkeys([*_MEANINGS, *(c["check"] for _, c in bad)]):
        sides = [s["label"] for s, c in bad if c["check"] == check]
        if sides:
            more = f" and {len(sides) - 2} more" if len(sides) > 2 else ""
            meaning = _MEANINGS.get(check, f"check {check} failed")
            parts.append(f"{meaning} ({', '.join(sides[:2])}{more})")
    return "; ".join(parts)
