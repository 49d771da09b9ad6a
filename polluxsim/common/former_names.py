"""Former names of classes and functions: configurations, recorded runs and imports may use them, with a warning."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from functools import cache, partial
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

FORMER_MODULES: Mapping[str, str] = {
    "polluxsim.api.choices": "polluxsim.api.parts",
    "polluxsim.checkpoints": "polluxsim.hardware.checkpoints",
    "polluxsim.clusters": "polluxsim.hardware.clusters",
    "polluxsim.engine.pair_sharing": "polluxsim.engine.sharing",
    "polluxsim.engine.stage_sharing": "polluxsim.engine.sharing",
    "polluxsim.errors": "polluxsim.common.errors",
    "polluxsim.gym.layout": "polluxsim.gym.policy",
    "polluxsim.gym.rewards": "polluxsim.gym.env",
    "polluxsim.logs.schema": "polluxsim.logs.trace_table",
    "polluxsim.measure.noise_scale": "polluxsim.measure.recorder",
    "polluxsim.policies.afs": "polluxsim.policies.elastic.true_times",
    "polluxsim.policies.antman": "polluxsim.policies.sharing.antman",
    "polluxsim.policies.autoscaling": "polluxsim.policies.elastic.cluster_size",
    "polluxsim.policies.backfill": "polluxsim.policies.reserving.easy",
    "polluxsim.policies.conservative": "polluxsim.policies.reserving.conservative",
    "polluxsim.policies.drf": "polluxsim.policies.tenants.fairness",
    "polluxsim.policies.elastic_edf": "polluxsim.policies.deadlines.elasticflow",
    "polluxsim.policies.elasticflow": "polluxsim.policies.deadlines.elasticflow",
    "polluxsim.policies.fair_queues": "polluxsim.policies.tenants.fairness",
    "polluxsim.policies.fifo": "polluxsim.policies.ordered.classic",
    "polluxsim.policies.gandiva": "polluxsim.policies.sharing.gandiva",
    "polluxsim.policies.gangs": "polluxsim.policies.tools.gangs",
    "polluxsim.policies.gittins": "polluxsim.policies.ordered.attained_service",
    "polluxsim.policies.hadar": "polluxsim.policies.typed.gangs_by_type",
    "polluxsim.policies.jsa": "polluxsim.policies.elastic.true_times",
    "polluxsim.policies.las": "polluxsim.policies.ordered.attained_service",
    "polluxsim.policies.multifactor": "polluxsim.policies.reserving.easy",
    "polluxsim.policies.muri": "polluxsim.policies.sharing.muri",
    "polluxsim.policies.online": "polluxsim.policies.elastic.estimated_times",
    "polluxsim.policies.optimus": "polluxsim.policies.elastic.true_times",
    "polluxsim.policies.packing": "polluxsim.policies.tools.free_gpus",
    "polluxsim.policies.pollux.remaining": "polluxsim.policies.pollux.policy",
    "polluxsim.policies.pollux.searches": "polluxsim.policies.pollux.policy",
    "polluxsim.policies.priority": "polluxsim.policies.ordered.classic",
    "polluxsim.policies.proportional": "polluxsim.policies.elastic.true_times",
    "polluxsim.policies.queues": "polluxsim.policies.ordered.attained_service",
    "polluxsim.policies.quotas": "polluxsim.policies.tenants.quotas",
    "polluxsim.policies.scaling": "polluxsim.policies.elastic.cluster_size",
    "polluxsim.policies.shares.allox": "polluxsim.policies.typed.rules",
    "polluxsim.policies.shares.rounds": "polluxsim.policies.typed.rounds",
    "polluxsim.policies.shares.rules": "polluxsim.policies.typed.rules",
    "polluxsim.policies.shockwave.policy": "polluxsim.policies.sized.shockwave",
    "polluxsim.policies.shortest": "polluxsim.policies.ordered.classic",
    "polluxsim.policies.slaq": "polluxsim.policies.elastic.estimated_times",
    "polluxsim.policies.srsf": "polluxsim.policies.ordered.classic",
    "polluxsim.policies.srtf": "polluxsim.policies.ordered.classic",
    "polluxsim.policies.synergy": "polluxsim.policies.sized.synergy",
    "polluxsim.policies.themis": "polluxsim.policies.sized.themis",
    "polluxsim.policies.tiresias": "polluxsim.policies.ordered.attained_service",
    "polluxsim.policies.venn": "polluxsim.policies.typed.gangs_by_type",
    "polluxsim.policies.view": "polluxsim.policies.contract.view",
    "polluxsim.record_units": "polluxsim.records.results",
    "polluxsim.shipped": "polluxsim.common.shipped",
    "polluxsim.storage": "polluxsim.records.storage",
    "polluxsim.traces.store": "polluxsim.applications.folder",
    "polluxsim.types": "polluxsim.hardware.placements",
    "polluxsim.workloads.elasticflow": "polluxsim.workloads.simulator_lists",
    "polluxsim.workloads.gavel": "polluxsim.workloads.simulator_lists",
    "polluxsim.workloads.muri": "polluxsim.workloads.simulator_lists",
    "polluxsim.workloads.node_list": "polluxsim.hardware.clusters",
    "polluxsim.workloads.philly_like": "polluxsim.workloads.philly",
    "polluxsim.workloads.rigid_like": "polluxsim.workloads.philly",
    "polluxsim.workloads.sampling": "polluxsim.workloads.philly",
    "polluxsim.workloads.split": "polluxsim.workloads.synergy",
}
"""Present modules by former module. Names in a module do not change, except for the names in `FORMER_NAMES`."""

FORMER_NAMES: Mapping[str, str] = {
    "polluxsim.policies.deadlines.EarliestDeadline": "polluxsim.policies.ordered.classic.EarliestDeadline",
    **{
        f"polluxsim.records.{name}": f"polluxsim.records.results.{name}"
        for name in (
            "AllocationRecord", "CheckpointRecord", "GpuSeconds", "HostRecord", "JobRecord", "OutageRecord",
            "ReasonRecord", "Result", "RoundRecord", "SharingRecord", "Status", "TimingRecord",
        )
    },
    "polluxsim.sweeps.run_sweep": "polluxsim.studies.driver.run_sweep",
    "polluxsim.types.Cluster": "polluxsim.hardware.clusters.Cluster",
    "polluxsim.types.MOST_GPUS": "polluxsim.hardware.clusters.MOST_GPUS",
    "polluxsim.types.MOST_NODES": "polluxsim.hardware.clusters.MOST_NODES",
    "polluxsim.types.Outage": "polluxsim.hardware.clusters.Outage",
    "polluxsim.types.Outages": "polluxsim.hardware.clusters.Outages",
    "polluxsim.types.Repairs": "polluxsim.hardware.clusters.Repairs",
    "polluxsim.workloads.philly_like.LONGEST": "polluxsim.workloads.philly.MOST_HOURS",
}  # fmt: skip
"""Present dotted names of classes and functions that left their module or were renamed, by former name.

The line of a class also covers its methods, like `polluxsim.types.Cluster.uniform`.
"""

TARGET = "_target_"  # setting with the dotted name of the class or function that makes a part of a run


def present_name(target: object) -> object:
    """Return the present dotted name of a class or its method; return any other value unchanged.

    >>> present_name("polluxsim.traces.store.ProfileFolder")
    'polluxsim.applications.folder.ProfileFolder'
    """
    if not isinstance(target, str):
        return target
    words = target.split(".")
    for table, most in ((FORMER_NAMES, len(words)), (FORMER_MODULES, len(words) - 1)):
        for length in range(most, 0, -1):
            if (present := table.get(".".join(words[:length]))) is not None:
                return ".".join([present, *words[length:]])
    return target


def with_present_names(part: Any) -> Any:
    """Return a part of a configuration in which each `_target_` has its present name."""
    if isinstance(part, list):
        return [with_present_names(item) for item in part]
    if not isinstance(part, dict):
        return part
    renamed = {name: with_present_names(value) for name, value in part.items()}
    return renamed | ({TARGET: present_name(part[TARGET])} if TARGET in part else {})


def warn_of_former_names(part: Any) -> None:
    """Issue one `FutureWarning` for each former name that a part of a configuration uses as `_target_`."""
    for former in dict.fromkeys(_targets(part)):
        if (present := present_name(former)) != former:
            _warn(former, str(present), stacklevel=3)


def _targets(part: Any) -> Iterator[str]:
    """Yield the value of each `_target_` in a part of a configuration, if it is text."""
    if isinstance(part, dict) and isinstance(part.get(TARGET), str):
        yield part[TARGET]
    items = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    for item in items:
        yield from _targets(item)


def former_attribute(module: str, name: str) -> Any:
    """Return a class or function by its former name, with a warning. It is the `__getattr__` of a former module."""
    former = f"{module}.{name}"
    present = present_name(former)
    home, _, attribute = str(present).rpartition(".")
    if present == former or name.startswith("_") or not hasattr(import_module(home), attribute):
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    _warn(former, str(present), stacklevel=3)
    return getattr(import_module(home), attribute)


class FormerModules:
    """Import finder for modules that no longer exist. Their attributes are the present classes and functions."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Return how to import a former module or package; None for any other name."""
        if name not in _former_modules():
            return None
        is_package = any(other.startswith(f"{name}.") for other in _former_modules())
        return ModuleSpec(name, FormerModules, is_package=is_package)  # type: ignore[arg-type]  # only has methods

    @staticmethod
    def create_module(spec: ModuleSpec) -> None:
        """Python makes the module."""

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        """Let the module look up its attributes under their present names."""
        module.__getattr__ = partial(former_attribute, module.__name__)  # type: ignore[method-assign]


@cache
def _former_modules() -> frozenset[str]:
    """Return the modules of former names, and the packages that contain them."""
    words = [name.split(".") for name in (*FORMER_MODULES, *(name.rpartition(".")[0] for name in FORMER_NAMES))]
    return frozenset(".".join(each[:length]) for each in words for length in range(2, len(each) + 1))


def _warn(former: str, present: str, stacklevel: int) -> None:
    message = f"{former} is now called {present}; a later release removes the old name"
    warnings.warn(message, FutureWarning, stacklevel=stacklevel)
