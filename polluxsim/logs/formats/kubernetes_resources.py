"""Resources of Kubernetes objects: GPUs, other accelerators, CPUs and memory."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from polluxsim.logs.formats.base import CPU, GPU, CountedResource, RowReason
from polluxsim.logs.formats.json_rows import JsonRow
from polluxsim.logs.formats.log_rows import MAX_GPUS

QUANTITY = re.compile(r"(\d{1,15}(?:\.\d{1,9})?(?:[eE][+-]?\d{1,2})?)([numkMGTPE]|[KMGTPE]i)?", re.ASCII)
"""A Kubernetes quantity like 500m, 64Gi or 1e3 (apimachinery, resource.Quantity)."""

UNITS: dict[str | None, float] = {
    None: 1.0,
    **{unit: 1000.0**power for power, unit in enumerate("kMGTPE", start=1)},
    **{unit: 1000.0**-power for power, unit in enumerate("mun", start=1)},
    **{f"{unit}i": 1024.0**power for power, unit in enumerate("KMGTPE", start=1)},
}
"""Values of the units of quantities."""

LIMITS = {"cpu": 1e9, "memory": 1e18, "gpu": MAX_GPUS}  # largest amounts read: cores, bytes, GPUs
GIGA = 1e9  # a GB [bytes]

HOST_RESOURCES = ("cpu", "memory", "pods", "storage")
HOST_PREFIXES = ("hugepages-", "attachable-volumes-", "ephemeral-storage")
"""Names and beginnings of names of resources that every node has, and that are no accelerators."""


class Resources(NamedTuple):
    """GPUs, CPUs and memory of containers, pods or a node [GPUs; cores; GB].

    CPUs and memory are None if they are not stated.
    """

    gpus: float
    cpus: float | None
    memory: float | None
    accelerators: Mapping[str, float] = {}  # amounts of other accelerators by name

    @classmethod
    def of(cls, row: JsonRow) -> Resources:
        """Return the resources in a list by name, like {"cpu": "8", "nvidia.com/gpu": "4"}."""
        amounts = dict[str, float]()
        for name in row.values:
            # Quotas write the same amount a second time, as requests.nvidia.com/gpu, so the sum would be wrong.
            resource = name.removeprefix("requests.")
            if resource in HOST_RESOURCES or resource.startswith(HOST_PREFIXES) or "/" not in resource:
                continue
            amount = _quantity(row, name, "gpu")
            amounts[resource] = max(amounts.get(resource, 0.0), amount)
        gpus = 0.0
        accelerators = {}
        for name, amount in amounts.items():
            # The names of NVIDIA and AMD have this ending: nvidia.com/gpu, amd.com/gpu.
            if name.endswith("/gpu"):
                gpus += amount
            elif amount:
                accelerators[name] = amount
        cpus = None
        if row.has("cpu"):
            cpus = _quantity(row, "cpu", "cpu")
        memory = None
        if row.has("memory"):
            memory = _quantity(row, "memory", "memory") / GIGA
        return cls(gpus, cpus, memory, accelerators)

    def times(self, count: int) -> Resources:
        """Return the resources of several equal pods."""
        cpus = self.cpus
        if cpus is not None:
            cpus *= count
        memory = self.memory
        if memory is not None:
            memory *= count
        accelerators = {name: count * amount for name, amount in self.accelerators.items()}
        return Resources(count * self.gpus, cpus, memory, accelerators)

    def plus(self, other: Resources) -> Resources:
        """Return the resources of both."""
        accelerators = dict(self.accelerators)
        for name, amount in other.accelerators.items():
            accelerators[name] = accelerators.get(name, 0.0) + amount
        return Resources(
            self.gpus + other.gpus, _sum(self.cpus, other.cpus), _sum(self.memory, other.memory), accelerators
        )

    def gpus_of(self, units: Sequence[CountedResource]) -> float:
        """Return the GPUs, with the other resources that count as GPUs."""
        total = 0.0
        for unit in units:
            if unit.resource == GPU:
                amount = self.gpus
            elif unit.resource == CPU:
                amount = self.cpus or 0.0
            else:
                amount = self.accelerators.get(unit.resource, 0.0)
            total += unit.gpus * amount
        return total

    def why_none(self, units: Sequence[CountedResource]) -> str:
        """Return why nothing of these resources counts as a GPU, with the names of other accelerators."""
        # A user who counts CPUs needs no hint about accelerators.
        if CountedResource(CPU) in units:
            return "no CPU"
        if not self.accelerators:
            return RowReason.NO_GPU
        names = sorted(self.accelerators)
        return f"no GPU, but {', '.join(names)}; count them with --unit {GPU},{names[0]}"


def _sum(first: float | None, second: float | None) -> float | None:
    """Return the sum of two amounts, of which either may be unknown; None if both are."""
    if first is None:
        return second
    if second is None:
        return first
    return first + second


NOTHING = Resources(0.0, None, None)


def _quantity(row: JsonRow, key: str, kind: str) -> float:
    """Return an amount of a resource [cores, bytes or GPUs]; `kind` is a key of `LIMITS`."""
    value = row.value(key)
    # In Python, a bool is an int, but it is no amount.
    if isinstance(value, int | float) and not isinstance(value, bool):
        return row.within(key, 0, LIMITS[kind])
    match = None
    if isinstance(value, str):
        match = QUANTITY.fullmatch(value.strip())
    if match is not None:
        amount = float(match[1]) * UNITS[match[2]]
        if amount <= LIMITS[kind]:
            return amount
    raise row.error(key, f"a quantity like 4, 500m or 64Gi, up to {LIMITS[kind]:g}")


def of_pod(spec: JsonRow) -> Resources:
    """Return the resources that the containers of a pod request, without init containers.

    A resource without a request has its limit.
    """
    total = NOTHING
    for container in spec.children("containers"):
        resources = container.child("resources")
        limits = resources.child("limits")
        requests = resources.child("requests")
        amounts = {**limits.values, **requests.values}  # a request replaces the limit of its resource
        total = total.plus(Resources.of(requests.part(amounts, "")))
    return total
