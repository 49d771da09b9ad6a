"""Former names of classes and functions: configurations, recorded runs and imports may use them, with a warning."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from functools import cache, partial
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_FORMER_MODULES_OF: Mapping[str, str] = {
    "api.parts": "api.choices",
    "applications.folder": "traces.store",
    "common.errors": "errors",
    "common.shipped": "shipped",
    "engine.sharing": "engine.pair_sharing engine.stage_sharing",
    "gym.env": "gym.rewards",
    "gym.policy": "gym.layout",
    "hardware.checkpoints": "checkpoints",
    "hardware.clusters": "clusters workloads.node_list",
    "hardware.placements": "types",
    "logs.trace_table": "logs.schema",
    "measure.recorder": "measure.noise_scale",
    "policies.contract.view": "policies.view",
    "policies.deadlines.elasticflow": "policies.elastic_edf policies.elasticflow",
    "policies.elastic.cluster_size": "policies.autoscaling policies.scaling",
    "policies.elastic.estimated_times": "policies.online policies.slaq",
    "policies.elastic.true_times": "policies.afs policies.jsa policies.optimus policies.proportional",
    "policies.ordered.attained_service": "policies.gittins policies.las policies.queues policies.tiresias",
    "policies.ordered.classic": "policies.fifo policies.priority policies.shortest policies.srsf policies.srtf",
    "policies.pollux.policy": "policies.pollux.remaining policies.pollux.searches",
    "policies.reserving.conservative": "policies.conservative",
    "policies.reserving.easy": "policies.backfill policies.multifactor",
    "policies.sharing.antman": "policies.antman",
    "policies.sharing.gandiva": "policies.gandiva",
    "policies.sharing.muri": "policies.muri",
    "policies.sized.shockwave": "policies.shockwave.policy",
    "policies.sized.synergy": "policies.synergy",
    "policies.sized.themis": "policies.themis",
    "policies.tenants.fairness": "policies.drf policies.fair_queues",
    "policies.tenants.quotas": "policies.quotas",
    "policies.tools.free_gpus": "policies.packing",
    "policies.tools.gangs": "policies.gangs",
    "policies.typed.gangs_by_type": "policies.hadar policies.venn",
    "policies.typed.rounds": "policies.shares.rounds",
    "policies.typed.rules": "policies.shares.allox policies.shares.rules",
    "records.results": "record_units",
    "records.storage": "storage",
    "workloads.philly": "workloads.philly_like workloads.rigid_like workloads.sampling",
    "workloads.simulator_lists": "workloads.elasticflow workloads.gavel workloads.muri",
    "workloads.synergy": "workloads.split",
}
"""Former modules by present module, with spaces between them, all without the name of the package."""

FORMER_MODULES: Mapping[str, str] = {
    f"polluxsim.{former}": f"polluxsim.{present}"
    for present, formers in _FORMER_MODULES_OF.items()
    for former in formers.split()
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
    **{
        f"polluxsim.types.{name}": f"polluxsim.hardware.clusters.{name}"
        for name in ("Cluster", "MOST_GPUS", "MOST_NODES", "Outage", "Outages", "Repairs")
    },
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
    # The longest known name decides. The last word of a name in a former module is not part of the module.
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
    """Return a class or function by its former name, with a warning at the line that reads it.

    `partial(former_attribute, __name__)` is the `__getattr__` of a former module. Raise AttributeError if the name is
    neither a former nor a present name, or begins with an underscore.
    """
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
        """Let Python create the module."""

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
    """Issue the warning about a former name, at the caller that `stacklevel` names."""
    message = f"{former} is now called {present}; a later release removes the old name"
    warnings.warn(message, FutureWarning, stacklevel=stacklevel)
