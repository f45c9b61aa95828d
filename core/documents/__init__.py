"""The small JSON files of a run directory: one `msgspec.Struct` for each, a file for each kind."""

from .accuracy import Accuracy, ModuleError, ModuleErrors
from .compiled import Break, CompiledGraph, CompiledKernel
from .document import D, Document, checked, of_form, read
from .eager import Eager, OptimizerBytes
from .engine import Build, Layers, Rebuild
from .machine import Device, Machine, MachineState, OfMachine
from .manifest import Manifest, Version
from .measured import Measured, OnnxRuntimeProfile, Trace
from .memory import Memory, MemoryStart, MemoryStep, MemoryTensor
from .model import Model, Nodes
from .ncu import Ncu, Refused
from .parameters import Parameter, Parameters
from .synchronising import Synchronising

__all__ = [
    "Accuracy",
    "Break",
    "Build",
    "CompiledGraph",
    "CompiledKernel",
    "D",
    "Device",
    "Document",
    "Eager",
    "Layers",
    "Machine",
    "MachineState",
    "Manifest",
    "Measured",
    "Memory",
    "MemoryStart",
    "MemoryStep",
    "MemoryTensor",
    "Model",
    "ModuleError",
    "ModuleErrors",
    "Ncu",
    "Nodes",
    "OfMachine",
    "OnnxRuntimeProfile",
    "OptimizerBytes",
    "Parameter",
    "Parameters",
    "Rebuild",
    "Refused",
    "Synchronising",
    "Trace",
    "Version",
    "checked",
    "of_form",
    "read",
]
