"""Time a TensorRT engine again, by other code than the worker's: the runtime API's events.

usage: python independent_latency.py ENGINE INPUTS.npz [ITERATIONS]

Prints the median and its 95 % interval in nanoseconds as JSON. Needs TensorRT, numpy and a CUDA
runtime (libcudart); shares nothing with engines/workers.
"""

import ctypes
import ctypes.util
import json
import sys

import numpy as np
import tensorrt as trt


def runtime():
    """The CUDA runtime library, whichever version there is."""
    names = ["libcudart.so", *(f"libcudart.so.{n}" for n in (13, 12, 11))]
    names += [f"/usr/local/cuda/lib64/{n}" for n in names]
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise SystemExit("error: no CUDA runtime (libcudart)")


def main(path, inputs, iterations=300):
    """Load, bind, warm up, time."""
    rt = runtime()

    def call(name, *arguments):
        code = getattr(rt, name)(*arguments)
        if code:
            raise SystemExit(f"error: {name} failed with {code}")

    logger = trt.Logger(trt.Logger.ERROR)
    with open(path, "rb") as f:  # noqa: PTH123
        engine = trt.Runtime(logger).deserialize_cuda_engine(f.read())
    context = engine.create_execution_context()
    given, kept = np.load(inputs), []
    for i in range(engine.num_io_tensors):
        name = engine.get_tensor_name(i)
        dtype = trt.nptype(engine.get_tensor_dtype(name))
        is_input = engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT
        host = given[name].astype(dtype) if is_input else None
        if is_input:
            context.set_input_shape(name, host.shape)
        count = int(np.prod(context.get_tensor_shape(name)))
        size = host.nbytes if is_input else count * np.dtype(dtype).itemsize
        pointer = ctypes.c_void_p()
        call("cudaMalloc", ctypes.byref(pointer), ctypes.c_size_t(size))
        if is_input:
            call("cudaMemcpy", pointer, ctypes.c_void_p(host.ctypes.data), ctypes.c_size_t(size), 1)
        context.set_tensor_address(name, pointer.value)
        kept.append(host)
    stream, start, end = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    call("cudaStreamCreate", ctypes.byref(stream))
    call("cudaEventCreate", ctypes.byref(start))
    call("cudaEventCreate", ctypes.byref(end))
    samples, elapsed = [], ctypes.c_float()
    for n in range(iterations + 20):
        call("cudaEventRecord", start, stream)
        context.execute_async_v3(stream.value)
        call("cudaEventRecord", end, stream)
        call("cudaEventSynchronize", end)
        call("cudaEventElapsedTime", ctypes.byref(elapsed), start, end)
        if n >= 20:
            samples.append(round(elapsed.value * 1e6))
    samples.sort()
    half = round(0.98 * len(samples) ** 0.5)  # normal approximation of the binomial ranks
    middle = len(samples) // 2
    found = {"n": len(samples), "median": samples[middle],
             "low": samples[middle - half], "high": samples[middle + half]}  # fmt: skip
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *(int(a) for a in sys.argv[3:]))
