"""Build a TensorRT engine: ONNX file in, engine, network.json and the build's facts out.

Polygraphy makes the builder's configuration (flags, pools, timing cache); parsing and building go
through the API, so that every layer can be named and every warning counted. Runs on Python 3.10.

Options of the job: ``workspace_mib`` (null: all of the GPU), ``timing_cache`` (a path, or null for
an empty one that is not kept), ``optimization_level``, ``compute_capability`` ("89"; RTX without a
GPU), ``logged_layers`` (a path for the layers that the log lists, where nothing can inspect),
``fp32_nodes`` (nodes that a precision plan keeps in fp32), ``remedy`` (what to do where the network
that was parsed is not the model's).
"""

from __future__ import annotations

import json
import re
import resource
import time
from pathlib import Path
from typing import Any

import cuda_driver
import gpu_memory
import tensorrt_api as api
import tensorrt_check
import tensorrt_log_layers as log_layers
import tensorrt_network as names
from common import Job, WorkerError
from nvml_sampler import Sampler


def _parse(trt: Any, builder: Any, logger: Any, onnx: str, remedy: str) -> Any:
    flags = trt.NetworkDefinitionCreationFlag
    wanted = 0
    if hasattr(flags, "EXPLICIT_BATCH"):
        wanted |= 1 << int(flags.EXPLICIT_BATCH)
    if api.strongly_typed(trt) and hasattr(flags, "STRONGLY_TYPED"):
        wanted |= 1 << int(flags.STRONGLY_TYPED)
    network = builder.create_network(wanted)
    parser = trt.OnnxParser(network, logger)
    if not parser.parse_from_file(onnx):
        errors = [parser.get_error(i) for i in range(parser.num_errors)]
        text = "; ".join(_said(e) for e in errors) or "the parser gives no reason"
        plugin = "plugin" in text.lower()
        fix = "install or load the plugin" if plugin else remedy
        raise WorkerError(f"TensorRT cannot parse {onnx}: {text}", fix, 3 if plugin else 2)
    return network, parser  # the network needs its parser alive: it holds the weights


def _said(error: Any) -> str:
    """A parser's error, with the ONNX node where this version names it."""
    node = error.node_name() if hasattr(error, "node_name") else ""
    return f"{node}: {error.desc()}" if node else str(error.desc())


def _config(trt: Any, builder: Any, network: Any, job: Job) -> Any:
    options = job["options"]
    arguments: dict[str, Any] = {"profiling_verbosity": trt.ProfilingVerbosity.DETAILED}
    if not api.strongly_typed(trt) and job["precision"] in ("fp16", "bf16"):
        arguments[job["precision"]] = True
    if options.get("workspace_mib") is not None:
        pool = trt.MemoryPoolType.WORKSPACE
        arguments["memory_pool_limits"] = {pool: int(options["workspace_mib"]) << 20}
    if options.get("timing_cache") and Path(options["timing_cache"]).exists():
        arguments["load_timing_cache"] = options["timing_cache"]
    if options.get("optimization_level") is not None:
        arguments["builder_optimization_level"] = int(options["optimization_level"])
    if options.get("backend") == "tensorrt-rtx":
        from polygraphy.backend.tensorrt_rtx import CreateConfigRTX as CreateConfig
    else:
        from polygraphy.backend.trt import CreateConfig
    config = CreateConfig(**arguments)(builder, network)
    # Half engines leave TF32 to the float layers they keep, as trtexec does; fp32 means fp32.
    set_or_clear = config.clear_flag if job["precision"] == "fp32" else config.set_flag
    set_or_clear(trt.BuilderFlag.TF32)
    if options.get("compute_capability"):
        if not hasattr(config, "set_compute_capability"):
            raise WorkerError("only TensorRT-RTX builds for a named GPU", "leave that option out")
        config.num_compute_capabilities = 1
        wanted = getattr(trt.ComputeCapability, f"SM{options['compute_capability']}", None)
        if wanted is None:
            known = [n[2:] for n in dir(trt.ComputeCapability) if re.fullmatch(r"SM\d+", n)]
            raise WorkerError(
                f"TensorRT-RTX {trt.__version__} builds for no compute capability "
                f"{options['compute_capability']}",
                f"choose {', '.join(known)}",
            )
        config.set_compute_capability(wanted, 0)
    return config


def _write_json(path: str, document: dict[str, Any]) -> None:
    Path(path).write_text(json.dumps(document, indent=1), encoding="utf-8")


def build(trt: Any, job: Job) -> dict[str, Any]:
    """Build ``job["engine"]`` from ``options.onnx``; writes ``options.network`` too; gives facts.

    The files are written where the job says; the caller gives temporary names and renames them.
    """
    options, precision = job["options"], job["precision"]
    if not api.strongly_typed(trt) and precision == "bf16" and not hasattr(trt.BuilderFlag, "BF16"):
        raise WorkerError(
            f"TensorRT {trt.__version__} has no bf16", "use fp16, or TensorRT 9 or newer", 3
        )
    logger = api.make_logger(trt)
    # A build for a named GPU needs none.
    memory = None if options.get("compute_capability") else cuda_driver.memory()
    builder = _builder(trt, logger, memory)
    remedy = options.get("remedy") or "export again with another --opset"
    network, parser = _parse(trt, builder, logger, options["onnx"], remedy)
    document = json.loads(Path(options["nodes"]).read_text(encoding="utf-8"))
    nodes, tensors = document["nodes"], names.tensors(network)
    compared = tensorrt_check.require_same(
        document,
        tensors,
        api.strongly_typed(trt),
        f"{job['options'].get('backend', 'tensorrt')} {trt.__version__}",
        remedy,
    )
    layers = names.describe(network)
    names.assign_nodes(layers, nodes)
    renamed = names.rename(network, layers, nodes)
    _write_json(options["network"], {"schema_version": 1, "layers": layers, "tensors": tensors})
    config = _config(trt, builder, network, job)
    constrained = {}
    if options.get("fp32_nodes"):
        # Of a strongly typed file the casts are in the file.
        constrained["fp32_nodes"] = len(options["fp32_nodes"])
        if not api.strongly_typed(trt):
            config.set_flag(trt.BuilderFlag.OBEY_PRECISION_CONSTRAINTS)
            constrained["fp32_layers"] = names.keep_fp32(
                trt, network, layers, options["fp32_nodes"]
            )
    started = time.perf_counter()
    with Sampler(cuda_driver.bus_id(), period=0.1) as sampler:
        plan = builder.build_serialized_network(network, config)
    seconds = time.perf_counter() - started
    if plan is None:
        raise _build_failure(logger, memory)
    Path(job["engine"]).write_bytes(memoryview(plan))
    kept = options.get("timing_cache") if options.get("backend") != "tensorrt-rtx" else None
    if kept and (cache := config.get_timing_cache()) is not None:
        Path(kept).write_bytes(memoryview(cache.serialize()))
    listed = log_layers.document(logger.layers)
    if options.get("logged_layers") and listed is not None:
        _write_json(options["logged_layers"], listed)
    del parser
    return {
        **api.facts(trt),
        "seconds": round(seconds, 3),
        "engine_bytes": plan.nbytes,
        "host_peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "gpu": sampler.summary(),
        "network_layers": len(layers),
        "layers_renamed": renamed,
        "tensors_compared": compared,
        **constrained,
        "messages": logger.counted(),
    }


def _builder(trt: Any, logger: Any, memory: tuple[int, int] | None) -> Any:
    builder = api.create(trt.Builder, logger)
    if builder is None:
        raise _build_failure(logger, memory)
    return builder


def _build_failure(logger: Any, memory: tuple[int, int] | None = None) -> WorkerError:
    """`memory`: free and all bytes of the GPU when the build began; None: not known, or no GPU
    needed."""
    text = " ".join(logger.errors[-3:]) or "TensorRT gives no reason"
    low = text.lower()
    fix = "free the GPU, lower --workspace-mib, or use a smaller batch or sequence"
    little = gpu_memory.shortage(memory, cuda_driver.memory()) if memory is not None else None
    if gpu_memory.ran_out(text):
        text = f"{text} ({little})" if little else text
        return WorkerError(f"out of memory while building: {text}", fix, 3)
    if "driver version is insufficient" in low or "cuda driver" in low:
        return WorkerError(f"the CUDA driver is too old: {text}", "update the NVIDIA driver", 3)
    if little:
        return WorkerError(f"TensorRT cannot build the engine, {little}: {text}", fix, 3)
    return WorkerError(f"TensorRT cannot build the engine: {text}", "see the messages above", 3)
