"""Instance types of AWS with an Elastic Fabric Adapter: their GPUs, and what EFA wants set.

docs.aws.amazon.com/AWSEC2, Elastic Fabric Adapter, Supported instance types; variables:
fi_efa(7) of libfabric. ``FI_EFA_USE_DEVICE_RDMA`` is for those whose GPUs the adapter reads by
itself. ``FI_EFA_FORK_SAFE``: data loaders fork.
"""

from __future__ import annotations

from ...core.errors import InputError

GPUS = {
    "p3dn.24xlarge": 8, "p4d.24xlarge": 8, "p4de.24xlarge": 8,
    "p5.4xlarge": 1, "p5.48xlarge": 8, "p5e.48xlarge": 8, "p5en.48xlarge": 8,
    "p6-b200.48xlarge": 8, "p6-b300.48xlarge": 8,
    "g4dn.8xlarge": 1, "g4dn.12xlarge": 4, "g4dn.16xlarge": 1, "g4dn.metal": 8,
    "g5.8xlarge": 1, "g5.12xlarge": 4, "g5.16xlarge": 1, "g5.24xlarge": 4, "g5.48xlarge": 8,
    "g6.8xlarge": 1, "g6.12xlarge": 4, "g6.16xlarge": 1, "g6.24xlarge": 4, "g6.48xlarge": 8,
    "g6e.8xlarge": 1, "g6e.12xlarge": 4, "g6e.16xlarge": 1, "g6e.24xlarge": 4, "g6e.48xlarge": 8,
}  # fmt: skip
DEVICE_RDMA = ("p4d", "p4de", "p5", "p5e", "p5en", "p6-b200", "p6-b300")


def gpus(instance: str) -> int:
    """GPUs of an instance type. InputError for one that is not known."""
    if instance not in GPUS:
        family = instance.split(".")[0]
        near = [name for name in GPUS if name.split(".")[0] == family] or list(GPUS)
        raise InputError(
            f"{instance} is no instance type with EFA that is known here",
            fix=f"one of {', '.join(near)}; or give --per-node and --env instead",
        )
    return GPUS[instance]


def environment(instance: str) -> dict[str, str]:
    """What NCCL over EFA wants set on this instance type."""
    gpus(instance)
    wanted = {"FI_PROVIDER": "efa", "FI_EFA_FORK_SAFE": "1", "FI_LOG_LEVEL": "warn"}
    if instance.split(".")[0] in DEVICE_RDMA:
        wanted["FI_EFA_USE_DEVICE_RDMA"] = "1"
    return wanted
