"""Synthetic views for the report's tests: what a small GPT-2 would give, and awkward ones.

Every number is made up but consistent: a parent is the sum of its children and of what it does
itself, the ledger's terms add up to the latency (or do not, where a test wants that).
"""

from __future__ import annotations

import copy
from typing import Any

from layerline.analysis.model.comparison import SideKey

FP32 = "engine/fp32.onnxruntime/inference"
FP16 = "engine/fp16.onnxruntime/inference"
EAGER = "eager/fp32/inference"
FORWARD = "eager/fp32/forward"
BACKWARD = "eager/fp32/backward"
OPTIMIZER = "eager/fp32/optimizer"

HOSTILE = (
    '<img src=x onerror="window.hacked=1">',
    "</script><script>window.hacked=2</script>",
    "<!--<script>window.hacked=3//",
    "a\u202egnp.exe\u2066b",
    "nul\x00bell\x07esc\x1b[31mred",
    "line\nbreak\ttab\r\u2028\u2029",
    "pipe|tick`back\\slash*star_under_[x](javascript:alert(1))",
    "'\"`${window.hacked=4}`{{7*7}}{% raw %}",
    "__proto__",
    "constructor",
    "hasOwnProperty",
    '=HYPERLINK("http://example.com")',
    "lone\ud800surrogate",
    "x" * 10_000,
)


def estimate(median: int | None, n: int = 120, spread: float = 0.012) -> dict[str, Any]:
    if median is None:
        return {"median": None, "low": None, "high": None, "n": 0}
    return {
        "median": median,
        "low": round(median * (1 - spread)),
        "high": round(median * (1 + spread)),
        "n": n,
    }


def cost(own: int, shared: int = 0, total: int | None = None) -> dict[str, Any]:
    """Of what is shared no interval is known."""
    share = (own + shared) / total if total else None
    return {
        "own": _of_cost(own),
        "upper": _of_cost(own) if not shared else {"median": own + shared},
        "share": share,
    }


def _of_cost(ns: int) -> dict[str, Any]:
    return {"median": ns, "low": round(ns * 0.985), "high": round(ns * 1.02), "n": 120}


def steadiness(*faults: str) -> dict[str, Any]:
    """A series of which this is wrong."""
    known = {"n": 40, "effective": 40, "width": 0.01, "target": None, "drift": None, "levels": []}
    return {**known, "p10_ns": 1, "p90_ns": 2, "faults": list(faults), "settled": not faults}


def check(
    name: str,
    terms: list[tuple[str, int]],
    residual: int | None,
    tolerance: float | None,
    ok: bool | None,
    text: str,
) -> dict[str, Any]:
    whole = abs(terms[-1][1]) if terms else 0
    return {
        "name": name,
        "terms": [[n, ns] for n, ns in terms],
        "residual_ns": residual,
        "residual_share": residual / whole if residual is not None and whole else None,
        "tolerance": tolerance,
        "ok": ok,
        "text": text,
    }


def side(
    key: str,
    label: str,
    precision: str,
    phase: str,
    latency: int | None,
    operations: int,
    **more: Any,
) -> dict[str, Any]:
    gaps = None if latency is None else latency - operations
    traced = None if latency is None else round(latency * 1.03)
    checks = [
        check(
            "i",
            [("rows", operations * 40), ("raw capture", operations * 40)],
            0,
            0.0,
            True,
            "Every operation of the capture is counted once.",
        ),
    ]
    if latency is not None and gaps is not None and traced is not None:
        checks += [
            check(
                "ii",
                [
                    ("operations", operations),
                    ("gaps", gaps - latency // 200),
                    ("overlaps", 0),
                    ("latency, traced", latency),
                ],
                latency // 200,
                0.05,
                True,
                "Operations, gaps and overlaps add up to the latency.",
            ),
            check(
                "iii",
                [("traced", traced), ("unprofiled", latency)],
                traced - latency,
                0.1,
                True,
                "The profiler adds 3 % to the latency.",
            ),
        ]
    else:
        checks.append(check("iii", [], None, None, None, "Not measured without the profiler."))
    return {
        "key": key,
        "task": key.split("/")[0],
        "label": label,
        "precision": precision,
        "precision_run": {"fp32": 1.0},
        "phase": phase,
        "backend": key.split("/")[1].partition(".")[2] or "torch",
        "source": f"captures/{key.replace('/', '.')}.json",
        "latency": estimate(latency),
        "traced": estimate(traced, n=40, spread=0.02),
        "coverage": 0.991,
        "operation_ns": operations,
        "unresolved_ns": round(operations * 0.009),
        "checks": checks,
        "parity": None,
        **more,
    }


# What one block's parts cost by side, in ns; "" is what the module does itself.
_BLOCK = {
    "ln_1": ("LayerNorm", 9_000, 24_000, 41_000),
    "attn": ("GPT2Attention", 38_000, 96_000, 150_000),
    "attn.c_attn": ("Conv1D", 61_000, 64_000, 131_000),
    "attn.c_proj": ("Conv1D", 22_000, 24_000, 47_000),
    "attn.resid_dropout": ("Dropout", 0, 1_400, 2_100),
    "ln_2": ("LayerNorm", 9_000, 23_500, 40_000),
    "mlp": ("GPT2MLP", 0, 0, 0),
    "mlp.c_fc": ("Conv1D", 82_000, 88_000, 176_000),
    "mlp.act": ("NewGELUActivation", 14_000, 71_000, 118_000),
    "mlp.c_proj": ("Conv1D", 84_000, 89_000, 181_000),
    "mlp.dropout": ("Dropout", 0, 1_500, 2_000),
    "": ("GPT2Block", 5_000, 9_000, 12_000),
}
_TOP = {
    "transformer.wte": ("Embedding", 6_000, 11_000, 95_000),
    "transformer.wpe": ("Embedding", 4_000, 8_000, 14_000),
    "transformer.drop": ("Dropout", 0, 1_700, 2_000),
    "transformer.ln_f": ("LayerNorm", 9_500, 24_000, 40_000),
    "transformer": ("GPT2Model", 12_000, 90_000, 8_000),
    "lm_head": ("Linear", 690_000, 720_000, 1_430_000),
    "": ("GPT2LMHeadModel", 0, 4_000, 3_000),
}


def gpt2(blocks: int = 12) -> dict[str, Any]:
    """Two engines beside eager inference, forward, backward and optimizer."""
    selfs: dict[str, tuple[str, int, int, int]] = {}
    selfs.update(_TOP)
    selfs["transformer.h"] = ("ModuleList", 0, 0, 0)
    for i in range(blocks):
        for part, (cls, e, f, b) in _BLOCK.items():
            jitter = (i * 7919) % 13 * 130
            path = f"transformer.h.{i}" + (f".{part}" if part else "")
            selfs[path] = (cls, e + (jitter if e else 0), f + (jitter if f else 0), b)

    def inside(path: str, root: str) -> bool:
        return root == "" or path == root or path.startswith(root + ".")

    sums = {
        root: [sum(c[k] for p, c in selfs.items() if inside(p, root)) for k in (1, 2, 3)]
        for root in selfs
    }
    scale = {
        FP32: lambda p: sums[p][0],
        FP16: lambda p: round(sums[p][0] * 0.83),
        EAGER: lambda p: round(sums[p][1] * 0.97),
        FORWARD: lambda p: sums[p][1],
        BACKWARD: lambda p: sums[p][2],
    }
    totals = {key: f("") for key, f in scale.items()}
    optimizer = 1_900_000

    # The engine fuses ln_2 with the residual add: shared by the block and ln_2; c_fc with act.
    shared = {"ln_2": 9_000, "mlp.c_fc": 82_000, "mlp.act": 14_000}

    def costs(path: str) -> dict[str, Any]:
        result = {}
        for key, f in scale.items():
            whole = f(path)
            part = path.split(".", 3)[3] if path.count(".") > 2 else ""
            if key in (FP32, FP16) and part in shared:
                result[key] = cost(0, whole, totals[key])
            elif key in (FP32, FP16) and whole == 0:
                continue
            else:
                result[key] = cost(whole, 0, totals[key])
        return result

    modules: list[dict[str, Any]] = []
    layers: list[dict[str, Any]] = []
    nodes: list[dict[str, Any]] = []

    def row(path: str, parent: str | None, kind: str = "module", **more: Any) -> dict[str, Any]:
        result = {
            "id": f"{kind}:{path}",
            "parent": parent,
            "name": path.rsplit(".", 1)[-1],
            "path": path,
            "module_class": selfs[path][0] if path in selfs else None,
            "kind": kind,
            "depth": 0 if path == "" else path.count(".") + 1,
            "members": [],
            "costs": costs(path) if path in selfs else {},
            "layers": [],
            **more,
        }
        modules.append(result)
        return result

    def layer(key: str, name: str, paths: list[str], ops: list[str], ns: int, rule: str) -> str:
        ident = f"{key}#{len(layers)}"
        names = [f"{p}/{op}" for p, op in zip(paths, ops, strict=True)]
        layers.append(
            {
                "id": ident,
                "side": key,
                "layer": name,
                "kind": ops[0],
                "rule": rule,
                "nodes": names,
                "modules": list(dict.fromkeys(paths)),
                "calls": 40,
                "kernels": None if "onnxruntime" in key else 1,
                "time": estimate(ns, n=40),
                "share": ns / totals[key],
                "precision_in": "fp16" if key == FP16 else "fp32",
                "precision_out": "fp16" if key == FP16 else "fp32",
                "compute_precision": "fp32",
                "tactic": None,
            }
        )
        for node, op, path in zip(names, ops, paths, strict=True):
            nodes.append(
                {
                    "side": key,
                    "name": node,
                    "op": op,
                    "module": path,
                    "status": "executed" if len(names) == 1 else "fused",
                    "layer": name,
                }
            )
        return ident

    def own(path: str, parent: str, made: list[str]) -> None:
        """What a module with parts does itself: a row of its own below it."""
        _, *times = selfs[path]
        found = dict(zip((FP32, FORWARD, BACKWARD), times, strict=True))
        found |= {FP16: round(found[FP32] * 0.83), EAGER: round(found[FORWARD] * 0.97)}
        row(
            path,
            parent,
            kind="block",
            id=f"block:{path}",
            name="own operations",
            module_class=None,
            depth=path.count(".") + 2,
            members=[path],
            costs={k: cost(ns, 0, totals[k]) for k, ns in found.items()},
            layers=made,
        )

    def leaf(path: str, parent: str, op: str) -> None:
        found = row(path, parent)
        for key in (FP32, FP16):
            ns = scale[key](path)
            if ns:
                found["layers"].append(layer(key, f"{path}/{op}", [path], [op], ns, "name"))
            else:
                nodes.append(
                    {
                        "side": key,
                        "name": f"{path}/Identity",
                        "op": "Identity",
                        "module": path,
                        "status": "folded",
                        "layer": None,
                    }
                )

    root = row("", None)["id"]
    body = row("transformer", root)["id"]
    for name, op in (("wte", "Gather"), ("wpe", "Gather"), ("drop", "Identity")):
        leaf(f"transformer.{name}", body, op)
    stack = row("transformer.h", body)["id"]
    for i in range(blocks):
        base = f"transformer.h.{i}"
        block = row(base, stack)["id"]
        leaf(f"{base}.ln_1", block, "LayerNormalization")
        own(base, block, [])
        attn = row(f"{base}.attn", block)["id"]
        made = []
        for key in (FP32, FP16):
            for op, part in (("MatMul", 0.4), ("Softmax", 0.25), ("MatMul_1", 0.35)):
                ns = round(selfs[f"{base}.attn"][1] * part)
                made.append(layer(key, f"{base}.attn/{op}", [f"{base}.attn"], [op], ns, "name"))
        own(f"{base}.attn", attn, made)
        leaf(f"{base}.attn.c_attn", attn, "Gemm")
        leaf(f"{base}.attn.c_proj", attn, "Gemm")
        leaf(f"{base}.attn.resid_dropout", attn, "Identity")
        leaf(f"{base}.ln_2", block, "SkipLayerNormalization")
        mlp = row(f"{base}.mlp", block)["id"]
        fused = row(
            f"{base}.mlp.c_fc + act",
            mlp,
            kind="block",
            members=[f"{base}.mlp.c_fc", f"{base}.mlp.act"],
            name="c_fc + act",
        )
        for key in (FP32, FP16):
            ns = scale[key](f"{base}.mlp.c_fc") + scale[key](f"{base}.mlp.act")
            fused["costs"][key] = cost(ns, 0, totals[key])
            paths = [f"{base}.mlp.c_fc", f"{base}.mlp.act"]
            name = f"{base}.mlp.c_fc/Gemm + {base}.mlp.act/FastGelu"
            found = layer(key, name, paths, ["Gemm", "FastGelu"], ns, "name")
            fused["layers"].append(found)
        for key in (EAGER, FORWARD, BACKWARD):
            ns = scale[key](f"{base}.mlp.c_fc") + scale[key](f"{base}.mlp.act")
            fused["costs"][key] = cost(ns, 0, totals[key])
        for part in ("c_fc", "act"):
            member = row(f"{base}.mlp.{part}", fused["id"])
            member["layers"] = list(fused["layers"])
        leaf(f"{base}.mlp.c_proj", mlp, "Gemm")
        leaf(f"{base}.mlp.dropout", mlp, "Identity")
    leaf("transformer.ln_f", body, "LayerNormalization")
    leaf("lm_head", root, "MatMul")
    row(
        "gradient accumulation",
        root,
        kind="row",
        costs={BACKWARD: cost(410_000, 0, totals[BACKWARD])},
    )
    row("optimizer", root, kind="row", costs={OPTIMIZER: cost(optimizer, 0, optimizer)})

    kinds = []
    for pattern in ("", *_BLOCK):
        name = "transformer.h.*" + (f".{pattern}" if pattern else "")
        if any(k["name"] == name for k in kinds):
            continue
        members = [m for m in modules if m["kind"] == "module" and _pattern(m["path"]) == name]
        summed: dict[str, Any] = {}
        for key in scale:
            found = [m["costs"][key] for m in members if key in m["costs"]]
            if found:
                own, upper = (sum(c[k]["median"] for c in found) for k in ("own", "upper"))
                summed[key] = cost(own, upper - own, totals[key])
        kinds.append(
            {
                "name": name,
                "module_class": members[0]["module_class"],
                "count": len(members),
                "costs": summed,
            }
        )

    parity = {
        "max_abs": 3.1e-5,
        "max_rel": 0.0012,
        "cosine": 0.9999998,
        "top1": 1.0,
        "reference": "eager fp32",
        "random_weights": True,
        "weights": "random",
    }
    sides = [
        side(
            FP32,
            "ONNX Runtime fp32",
            "fp32",
            "inference",
            round(totals[FP32] * 1.06),
            totals[FP32],
            parity=parity,
        ),
        side(
            FP16,
            "ONNX Runtime fp16",
            "fp16",
            "inference",
            round(totals[FP16] * 1.08),
            totals[FP16],
            parity={**parity, "max_abs": 0.0121, "cosine": 0.99993, "top1": 0.984},
        ),
        side(EAGER, "Eager fp32", "fp32", "inference", round(totals[EAGER] * 1.21), totals[EAGER]),
        side(
            FORWARD,
            "Eager fp32 forward",
            "fp32",
            "forward",
            round(totals[FORWARD] * 1.19),
            totals[FORWARD],
        ),
        side(
            BACKWARD,
            "Eager fp32 backward",
            "fp32",
            "backward",
            round(totals[BACKWARD] * 1.14),
            totals[BACKWARD],
        ),
        side(
            OPTIMIZER,
            "Eager fp32 optimizer",
            "fp32",
            "optimizer",
            None,
            optimizer,
            coverage=None,
            unresolved_ns=None,
        ),
    ]
    by_key = {s["key"]: s for s in sides}

    def times(over: str, under: str) -> dict[str, Any]:
        a, b = by_key[over]["latency"], by_key[under]["latency"]
        return {
            "over": over,
            "under": under,
            "ratio": a["median"] / b["median"],
            "low": a["low"] / b["high"],
            "high": a["high"] / b["low"],
        }

    first, second = times(EAGER, FP32), times(EAGER, FP16)
    return {
        "title": f"gpt2, {blocks} blocks, 1×128",
        "generated": "2026-11-28T01:02:03+00:00",
        "headline": [
            {
                "text": f"ONNX Runtime fp32 runs gpt2 {first['ratio']:.2f} times as fast as the "
                f"eager model (95 %: {first['low']:.2f} to {first['high']:.2f}).",
                "tone": "good",
            },
            {
                "text": "Most of the gain is in attn and mlp.act: fused attention and a fused "
                "GELU take 1.4 ms less than their eager forward.",
                "tone": "neutral",
            },
            {
                "text": "The numbers add up on every side that could be checked; 99.1 % of the "
                "engine's time is resolved to modules.",
                "tone": "good",
            },
            {
                "text": "fp16 was asked for, but its products were computed in fp32: fp16 here is "
                "storage only.",
                "tone": "bad",
            },
        ],
        "sides": sides,
        "ratios": [first, second, times(FP32, FP16), times(BACKWARD, FORWARD)],
        "modules": modules,
        "kinds": kinds,
        "layers": layers,
        "nodes": nodes,
        "unresolved": [
            {
                "side": FP32,
                "name": "ReorderOutput_token_17",
                "ns": 31_000,
                "share": 0.0065,
                "why": "a reorder without a producer of its own",
            },
            {
                "side": FP16,
                "name": "InsertedPrecisionFreeCast_3",
                "ns": None,
                "share": None,
                "why": "no candidate node",
            },
        ],
        "comparability": [
            {
                "what": "compute precision",
                "engine": "fp32 (asked for fp16)",
                "eager": "fp32",
                "effect": "fp16 engine pays for casts and gains memory traffic only",
                "sides": [FP16],
            },
            {
                "what": "dropout",
                "engine": "off",
                "eager": "0.1 in training",
                "effect": "eager forward and backward include dropout",
                "sides": [FORWARD, BACKWARD],
            },
        ],
        "skipped": [
            {
                "what": "TensorRT engines",
                "why": "no NVIDIA GPU on this machine",
                "fix": "run make report BACKEND=tensorrt where there is one",
            },
            {"what": "ncu counters", "why": "ncu is not installed", "fix": None},
        ],
        "manifest": {
            "schema_version": 1,
            "model": {"name": "gpt2", "batch": 1, "sequence": 128, "seed": 0},
            "machine": {
                "before": {"cpu": "Example CPU @ 2.0 GHz", "cpus_usable": 2, "load_1min": 0.35},
                "after": None,
            },
            "versions": {"python": "3.11.7", "torch": "2.13.0", "onnxruntime": "1.32.0"},
            "commands": [["layerline", "report", "--model", "gpt2"]],
            "files": {"export/fp32.onnx": "0" * 64},
        },
    }


def _pattern(path: str) -> str:
    return ".".join("*" if part.isdigit() else part for part in path.split("."))


def failing() -> dict[str, Any]:
    """The numbers do not add up, and one check could not be made."""
    view = gpt2(2)
    view["headline"] = [
        {"text": "These numbers do not add up: see the ledger.", "tone": "bad"},
        *view["headline"][:1],
    ]
    checks = view["sides"][0]["checks"]
    checks[1].update(
        ok=False,
        residual_ns=900_000,
        residual_share=0.21,
        text="900 µs of the latency is in no operation, gap or overlap.",
    )
    checks[2].update(
        ok=None, residual_ns=None, residual_share=None, text="There is no unprofiled latency."
    )
    view["sides"][0]["latency"] = estimate(None)
    view["ratios"] = [{**view["ratios"][0], "low": None, "high": None}]
    return view


def one_side() -> dict[str, Any]:
    """An engine alone: no eager model, no ratio."""
    view = gpt2(1)
    view["sides"] = view["sides"][:1]
    view["ratios"], view["headline"] = [], []
    view["comparability"], view["skipped"] = [], []
    for m in [*view["modules"], *view["kinds"]]:
        m["costs"] = {k: c for k, c in m["costs"].items() if k == FP32}
    for table in ("layers", "nodes", "unresolved"):
        view[table] = [r for r in view[table] if r["side"] == FP32]
    return view


def empty() -> dict[str, Any]:
    """Nothing was measured."""
    lists = ["headline", "sides", "ratios", "modules", "kinds", "layers", "nodes"]
    lists += ["unresolved", "comparability", "skipped"]
    return {
        "title": "",
        "generated": "2026-11-28T01:02:03+00:00",
        **{name: [] for name in lists},
        "manifest": {},
    }


def engine_key(precision: str) -> str:
    """The key of an engine by ONNX Runtime in this precision, whatever that is called."""
    return SideKey(task="engine", precision=precision, backend="onnxruntime", phase="inference").key


def hostile() -> dict[str, Any]:
    """Every string that a file could bring, in every place that shows one."""
    view = one_side()
    key = engine_key(HOSTILE[1])
    one = view["sides"][0]
    one.update(
        precision=HOSTILE[1],
        label=HOSTILE[0],
        source=HOSTILE[2],
        precision_run={HOSTILE[3]: 1.0},
    )
    one["checks"][0]["terms"][0][0] = HOSTILE[0]
    one["checks"][0]["text"] = HOSTILE[1]
    one["parity"] = {"max_abs": float("nan"), "cosine": float("inf"), "reference": HOSTILE[0]}
    other = {**copy.deepcopy(one), "task": "__proto__", "label": "constructor"}
    view["sides"].append(other)
    root = view["modules"][0]
    view["modules"], view["layers"], view["nodes"] = [root], [], []
    root["costs"] = {key: cost(10**7, 5, 10**7)}
    for i, name in enumerate(HOSTILE):
        view["modules"].append(
            {
                **copy.deepcopy(root),
                "id": name,
                "parent": root["id"],
                "name": name,
                "path": name,
                "module_class": name,
                "depth": 1,
                "members": list(HOSTILE),
                "kind": "block" if i % 2 else "module",
                "layers": [f"{name} layer"],
                "costs": {key: cost(1000 * (i + 1), 500, 10**7)},
            }
        )
        view["layers"].append(
            {
                "id": f"{name} layer",
                "side": key,
                "layer": name,
                "kind": name,
                "rule": name,
                "nodes": [name],
                "modules": [name],
                "calls": 1,
                "kernels": None,
                "time": estimate(1000 * (i + 1)),
                "share": float("nan"),
                "precision_in": name,
                "precision_out": name,
                "compute_precision": name,
                "tactic": name,
            }
        )
        view["nodes"].append(
            {
                "side": key,
                "name": name,
                "op": name,
                "module": name,
                "status": name,
                "layer": name,
            }
        )
        view["kinds"].append(
            {"name": name, "module_class": name, "count": 1, "costs": {key: cost(5)}}
        )
        view["unresolved"].append({"side": key, "name": name, "ns": 1, "share": 0.1, "why": name})
        view["comparability"].append(
            {"what": name, "engine": name, "eager": name, "effect": name, "sides": [key]}
        )
        view["skipped"].append({"what": name, "why": name, "fix": name})
        view["headline"].append({"text": name, "tone": "bad"})
        view["manifest"][name] = {name: name}
    view["title"] = HOSTILE[0]
    view["ratios"] = [{"over": key, "under": "__proto__", "ratio": 1.5, "low": 1.4, "high": 1.6}]
    return view
