"""Kubernetes objects, as `kubectl get -o json` prints them: Kueue's Workloads and Volcano's PodGroups."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import tzinfo
from pathlib import Path
from typing import NamedTuple

from polluxsim.hardware.placements import MOST_SECONDS
from polluxsim.logs.formats.base import (
    BadRowError,
    Clock,
    Dropped,
    Entry,
    Format,
    JobStatus,
    LogJob,
    Reason,
    oddities_of_times,
)
from polluxsim.logs.formats.json_rows import JsonFormat, JsonRow, json_rows
from polluxsim.logs.formats.log_rows import MAX_GPUS, parsed

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

FINISHED = {"Succeeded": JobStatus.COMPLETED, "Failed": JobStatus.FAILED}
"""Reasons in Kueue's condition Finished that state how a job ended. Versions before 0.8 write JobFinished only."""

VOLCANO_ENDED = {
    "Completed": JobStatus.COMPLETED,
    "Failed": JobStatus.FAILED,
    "Aborted": JobStatus.CANCELLED,
    "Terminated": JobStatus.CANCELLED,
}
"""Phases of a Volcano Job that has ended (volcano.sh/apis, batch/v1alpha1)."""

LIST = "items"  # key of the objects in the output of kubectl
TIME_LIMIT = "maximumExecutionTimeSeconds"  # key of a Kueue Workload

EXTRAS = (
    "application", "num_instances", "gpu_type", "cpus", "memory", "queueing_delay", "time_limit", "partition",
    "priority", "qos",
)  # fmt: skip


def _extras(**values: object) -> tuple[object, ...]:
    """Return values in the order of `EXTRAS`; None for a name without a value."""
    return tuple(values.get(name) for name in EXTRAS)


class _Resources(NamedTuple):
    """GPUs, CPUs and memory of all pods [GPUs; cores; GB]; CPUs and memory are None if not stated."""

    gpus: float
    cpus: float | None
    memory: float | None

    @classmethod
    def of(cls, row: JsonRow) -> _Resources:
        """Return the resources in a list by name, like {"cpu": "8", "nvidia.com/gpu": "4"}.

        Quotas write the same amount a second time, as requests.nvidia.com/gpu.
        """
        gpus = dict[str, float]()
        for name in row.values:
            if name.removeprefix("requests.").endswith("/gpu"):
                resource = name.removeprefix("requests.")
                gpus[resource] = max(gpus.get(resource, 0.0), _quantity(row, name, "gpu"))
        cpus, memory = (_quantity(row, name, name) if row.has(name) else None for name in ("cpu", "memory"))
        return cls(sum(gpus.values()), cpus, None if memory is None else memory / GIGA)

    def times(self, count: int) -> _Resources:
        """Return the resources of several equal pods."""
        return _Resources(*(None if amount is None else count * amount for amount in self))  # type: ignore[arg-type]

    def plus(self, other: _Resources) -> _Resources:
        """Return the resources of both."""
        cpus, memory = (
            None if first is None and second is None else (first or 0.0) + (second or 0.0)
            for first, second in ((self.cpus, other.cpus), (self.memory, other.memory))
        )
        return _Resources(self.gpus + other.gpus, cpus, memory)


NOTHING = _Resources(0.0, None, None)


def _quantity(row: JsonRow, key: str, kind: str) -> float:
    """Return an amount of a resource [cores, bytes or GPUs]; `kind` is a key of `LIMITS`."""
    value = row.value(key)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return row.within(key, 0, LIMITS[kind])
    match = QUANTITY.fullmatch(value.strip()) if isinstance(value, str) else None
    amount = float(match[1]) * UNITS[match[2]] if match else -1.0
    if not 0 <= amount <= LIMITS[kind]:
        raise row.error(key, f"a quantity like 4, 500m or 64Gi, up to {LIMITS[kind]:g}")
    return amount


def _name(metadata: JsonRow) -> str:
    """Return the name of an object, with its namespace."""
    namespace = metadata.word("namespace")
    return f"{namespace}/{metadata.text('name')}" if namespace else metadata.text("name")


def _owner(metadata: JsonRow) -> str | None:
    """Return the name of the owner of an object."""
    return next((owner.word("name") for owner in metadata.children("ownerReferences")), None)


def _instant(row: JsonRow, key: str) -> float:
    """Return a time that must be there [s since 1970-01-01 UTC]."""
    if (seconds := row.time(key)) is None:
        raise row.error(key, "a time like 2024-01-01T00:00:00Z")
    return seconds


def _conditions(status: JsonRow) -> dict[str, JsonRow]:
    """Return the true conditions, by type."""
    found = {condition.text("type"): condition for condition in status.children("conditions")}
    return {kind: condition for kind, condition in found.items() if condition.values.get("status") == "True"}


def _parse_workload(row: JsonRow) -> LogJob | Dropped:
    """Return the job of a Workload that ended, or drop the Workload."""
    metadata, spec, status = row.child("metadata"), row.child("spec"), row.child("status")
    resources, pods, flavor = _asked_for(spec, status.child("admission"))
    if resources.gpus == 0:
        return row.dropped(Reason.NO_GPU)
    conditions = _conditions(status)
    admitted = conditions.get("Admitted") or conditions.get("QuotaReserved")
    past = _past_execution(status)
    if admitted is None:
        return row.dropped(Reason.NO_END if past else Reason.NEVER_RAN)
    if (finished := conditions.get("Finished")) is None:
        return row.dropped(Reason.NO_END)
    submitted = _instant(metadata, "creationTimestamp")
    start, end = _instant(admitted, "lastTransitionTime"), _instant(finished, "lastTransitionTime")
    if end < start:
        return row.dropped(Reason.END_BEFORE_START)
    queue = status.child("admission").word("clusterQueue") or spec.word("queueName")
    return LogJob(
        place=row.place,
        job=_name(metadata),
        submitted=submitted,
        duration=end - start + past,
        num_gpus=resources.gpus,
        tenant=metadata.word("namespace"),
        status=FINISHED.get(finished.word("reason") or ""),
        extras=_extras(
            application=_owner(metadata),
            num_instances=pods,
            gpu_type=flavor,
            cpus=resources.cpus,
            memory=resources.memory,
            # For a workload that was evicted, only the last start is known.
            queueing_delay=None if past else start - submitted,
            time_limit=spec.within(TIME_LIMIT, 1, MOST_SECONDS) if spec.has(TIME_LIMIT) else None,
            partition=queue,
            priority=spec.within("priority", -(2**31), 2**31) if spec.has("priority") else None,
            qos=_class_of(spec),
        ),
        oddities=oddities_of_times(submitted, start, end, end - start),
    )


def _asked_for(spec: JsonRow, admission: JsonRow) -> tuple[_Resources, int, str | None]:
    """Return the resources of a workload, its pods, and the flavor of its GPUs if all have one.

    The admission states the resources that the workload got, if it was admitted.
    """
    given = {each.word("name") or "main": each for each in admission.children("podSetAssignments")}
    total, pods, flavors = NOTHING, 0, set[str]()
    for podset in spec.children("podSets"):
        count = podset.count("count") if podset.has("count") else 1
        assignment = given.get(podset.word("name") or "main")
        if assignment is not None and assignment.has("resourceUsage"):
            resources = _Resources.of(assignment.child("resourceUsage"))
            count = assignment.count("count") if assignment.has("count") else count
            named = assignment.child("flavors")
            flavors |= {named.text(name) for name in named.values if name.endswith("/gpu")}
        else:
            resources = _of_pod(podset.child("template").child("spec")).times(count)
        total, pods = total.plus(resources), pods + count
    return total, pods, flavors.pop() if len(flavors) == 1 else None


def _of_pod(spec: JsonRow) -> _Resources:
    """Return the resources that the containers of a pod request, without init containers.

    A resource without a request has its limit.
    """
    total = NOTHING
    for container in spec.children("containers"):
        resources = container.child("resources")
        limits, requests = resources.child("limits"), resources.child("requests")
        total = total.plus(_Resources.of(requests.part({**limits.values, **requests.values}, "")))
    return total


def _past_execution(status: JsonRow) -> float:
    """Return the time in which a workload was admitted before its last eviction [s]."""
    # Kueue's API spells the key with an x too many.
    keys = ("accumulatedPastExexcutionTimeSeconds", "accumulatedPastExecutionTimeSeconds")
    return sum(status.within(key, 0, MOST_SECONDS) for key in keys if status.has(key))


def _class_of(spec: JsonRow) -> str | None:
    """Return the name of a workload's priority class; since v1beta2 it is an object."""
    if spec.has("priorityClassRef"):
        return spec.child("priorityClassRef").word("name")
    return spec.word("priorityClassName")


class _VolcanoJob(NamedTuple):
    """The values that a Volcano Job adds to its PodGroup, None if unknown."""

    start: float | None  # first start [s since 1970-01-01 UTC]
    duration: float | None  # from the first start to the end [s]
    status: JobStatus | None
    retries: int


@dataclass(frozen=True, kw_only=True)
class VolcanoFormat(Format):
    """PodGroups, with the Volcano Jobs that they belong to if these are in the same file."""

    def entries(self, path: Path, zone: tzinfo) -> Iterator[Entry]:
        """Yield a job, a dropped row or an error for each object.

        The file is read twice, because a Job may follow its PodGroup.
        """
        jobs, priorities = dict[str, _VolcanoJob](), dict[str, float]()
        for row in json_rows(path, LIST, None):
            try:
                _note(row, jobs, priorities)
            except BadRowError:
                continue  # the second pass yields the error
        for row in json_rows(path, LIST, None):
            yield parsed(row, lambda row: _parse_volcano(row, jobs, priorities))


def _note(row: JsonRow, jobs: dict[str, _VolcanoJob], priorities: dict[str, float]) -> None:
    """Write a Job to `jobs`, or the value of a priority class to `priorities`, by its name."""
    if row.values.get("kind") == "PriorityClass":
        priorities[row.child("metadata").text("name")] = row.within("value", -(2**31), 2**31)
    elif row.values.get("kind") == "Job":
        jobs[_name(row.child("metadata"))] = _volcano_job(row.child("status"))


def _volcano_job(status: JsonRow) -> _VolcanoJob:
    """Return the values of a Job from its status, whose conditions are the history of its phases.

    `runningDuration` is not used, because Volcano counts it from the creation of the Job.
    """
    history = [(each.text("status"), _instant(each, "lastTransitionTime")) for each in status.children("conditions")]
    phase = status.child("state").word("phase")
    start = next((time for name, time in history if name == "Running"), None)
    end = next((time for name, time in reversed(history) if name in VOLCANO_ENDED), None)
    return _VolcanoJob(
        start=start,
        duration=None if start is None or end is None or end < start else end - start,
        status=JobStatus.RUNNING if phase == "Running" else VOLCANO_ENDED.get(phase or ""),
        retries=status.count("retryCount") if status.has("retryCount") else 0,
    )


def _parse_volcano(row: JsonRow, jobs: Mapping[str, _VolcanoJob], priorities: Mapping[str, float]) -> LogJob | Dropped:
    """Return the job of a PodGroup, with the values of its Job and its priority class; drop any other object."""
    kind = row.text("kind")
    if kind != "PodGroup":
        _note(row, {}, {})  # raises the error of a bad object
        known = {"Job": "Volcano Job, counted with its PodGroup", "PriorityClass": "priority class"}
        return row.dropped(known.get(kind, "neither a PodGroup nor a Job"))
    metadata, spec = row.child("metadata"), row.child("spec")
    resources = _Resources.of(spec.child("minResources"))
    phase = row.child("status").word("phase")
    if resources.gpus == 0:
        return row.dropped(Reason.NO_GPU)
    if phase in ("Pending", "Inqueue", None):
        return row.dropped(Reason.NEVER_RAN)
    submitted, owner, namespace = _instant(metadata, "creationTimestamp"), _owner(metadata), metadata.word("namespace")
    job = None if owner is None else jobs.get(f"{namespace}/{owner}" if namespace else owner)
    class_name = spec.word("priorityClassName")
    status = JobStatus.RUNNING if phase == "Running" else None
    return LogJob(
        place=row.place,
        job=_name(metadata),
        submitted=submitted,
        duration=None if job is None else job.duration,
        num_gpus=resources.gpus,
        tenant=namespace,
        status=status if job is None else job.status,
        attempts=None if job is None else job.retries + 1,
        extras=_extras(
            application=owner,
            num_instances=spec.count("minMember") if spec.has("minMember") else None,
            cpus=resources.cpus,
            memory=resources.memory,
            queueing_delay=None if job is None or job.start is None else job.start - submitted,
            partition=spec.word("queue"),
            priority=priorities.get(class_name or ""),
            qos=class_name,
        ),
        oddities=() if job is None else oddities_of_times(submitted, job.start, None, 0.0),
    )


KUEUE = JsonFormat(
    name="kueue",
    citation="Kueue Workloads, kubectl get workloads -A -o json",
    caveat="a workload runs from its last admission to its end; GPUs of pods that ended earlier count to the end",
    key=LIST,
    parse=_parse_workload,
    clock=Clock.ZONED,
    extras=EXTRAS,
    files="*.json",
)

VOLCANO = VolcanoFormat(
    name="volcano",
    citation="Volcano PodGroups, kubectl get podgroups.scheduling.volcano.sh,jobs.batch.volcano.sh -A -o json",
    caveat="a PodGroup does not state when it ran: its duration comes from its Volcano Job in the same file, from the "
    "first start to the end, with the waits of retries",
    clock=Clock.ZONED,
    extras=EXTRAS,
    files="*.json",
)
