"""Kubernetes objects, as `kubectl get -o json` prints them: Kueue's Workloads and Volcano's PodGroups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo
from functools import partial
from pathlib import Path
from typing import NamedTuple

from polluxsim.hardware.placements import MOST_SECONDS
from polluxsim.logs.formats.base import (
    ONLY_GPUS,
    BadRowError,
    CountedResource,
    Dropped,
    Entry,
    Format,
    JobStatus,
    LogClock,
    LogJob,
    RowReason,
    gpus_together,
    oddities_of_times,
)
from polluxsim.logs.formats.json_rows import JsonFormat, JsonRow, json_rows
from polluxsim.logs.formats.kubernetes_resources import NOTHING, Resources, of_pod
from polluxsim.logs.formats.log_rows import parsed

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
HIGHEST_PRIORITY = 2**31  # beyond the largest priority, which has 32 bits

EXTRAS = (
    "application", "num_instances", "gpu_type", "cpus", "memory", "queueing_delay", "time_limit", "partition",
    "priority", "qos", "gpus_per_task",
)  # fmt: skip


def extras_of(**values: object) -> tuple[object, ...]:
    """Return values in the order of `EXTRAS`; None for a name without a value."""
    return tuple(values.get(name) for name in EXTRAS)


def name_with_namespace(metadata: JsonRow) -> str:
    """Return the name of an object, with its namespace."""
    return in_namespace(metadata, metadata.text("name"))


def in_namespace(metadata: JsonRow, name: str) -> str:
    """Return a name in the namespace of an object, with the namespace before it if the object has one."""
    namespace = metadata.word("namespace")
    if not namespace:
        return name
    return f"{namespace}/{name}"


def priority_of(spec: JsonRow) -> float | None:
    """Return the priority of an object; None without it."""
    return spec.optional_within("priority", -HIGHEST_PRIORITY, HIGHEST_PRIORITY)


def _count_of_pods(row: JsonRow, key: str) -> int:
    """Return a number of pods; Kubernetes counts a missing one as 1."""
    count = row.optional_count(key)
    if count is None:
        return 1
    return count


def owner_of(metadata: JsonRow) -> str | None:
    """Return the name of the first owner of an object; None if it has no owner."""
    return next((owner.word("name") for owner in metadata.children("ownerReferences")), None)


def instant(row: JsonRow, key: str) -> float:
    """Return a time [s since 1970-01-01 UTC]; raise BadRowError if it is missing."""
    seconds = row.time(key)
    if seconds is None:
        raise row.error(key, "a time like 2024-01-01T00:00:00Z")
    return seconds


def _conditions(status: JsonRow) -> dict[str, JsonRow]:
    """Return the true conditions, by type."""
    # The last condition of a type counts.
    conditions = {condition.text("type"): condition for condition in status.children("conditions")}
    return {kind: condition for kind, condition in conditions.items() if condition.values.get("status") == "True"}


class ApiKind(NamedTuple):
    """A kind of Kubernetes objects."""

    kind: str
    group: str  # API group; empty for the core API
    system: str  # name of the system that defines it

    def differs(self, row: JsonRow) -> str:
        """Return what an object is, if it is not of this kind; empty if it is.

        Objects without an apiVersion or a kind count as objects of this kind.
        """
        kind = row.word("kind") or self.kind
        if kind == "Pod" and self.kind != "Pod":
            return f"a Pod, not a {self.kind} of {self.system}; the format pods reads it"
        if kind != self.kind:
            return f"a {kind}, not a {self.kind} of {self.system}"
        version = row.word("apiVersion")
        if version is None:
            return ""
        group = version.rpartition("/")[0]
        if group != self.group:
            return f"a {kind} of {group or 'the core API'}, not of {self.system}"
        return ""


WORKLOAD = ApiKind("Workload", "kueue.x-k8s.io", "Kueue")
POD_GROUP = ApiKind("PodGroup", "scheduling.volcano.sh", "Volcano")
POD = ApiKind("Pod", "", "Kubernetes")


def _parse_workload(row: JsonRow, units: Sequence[CountedResource] = ONLY_GPUS) -> LogJob | Dropped:
    """Return the job of a Workload that ended, or drop the object."""
    reason = WORKLOAD.differs(row)
    if reason:
        return row.dropped(reason)
    metadata = row.child("metadata")
    spec = row.child("spec")
    status = row.child("status")
    asked = asked_for(spec, status.child("admission"))
    resources = asked.resources
    num_gpus = resources.gpus_of(units)
    if num_gpus == 0:
        return row.dropped(resources.why_none(units))
    conditions = _conditions(status)
    admitted = conditions.get("Admitted") or conditions.get("QuotaReserved")
    past = _past_execution(status)
    finished = conditions.get("Finished")
    if admitted is None:
        return row.dropped(_why_not_admitted(status, finished, has_run=past > 0))
    if finished is None:
        return row.dropped(RowReason.NO_END)
    submitted = instant(metadata, "creationTimestamp")
    start = instant(admitted, "lastTransitionTime")
    end = instant(finished, "lastTransitionTime")
    if end < start:
        return row.dropped(RowReason.END_BEFORE_START)
    # The cluster queue that admitted it. If the admission is gone, the queue of its namespace is known.
    queue = status.child("admission").word("clusterQueue") or spec.word("queueName")
    queueing_delay = None
    if not past:  # for a workload that was evicted, only the last start is known
        queueing_delay = start - submitted
    return LogJob(
        place=row.place,
        job=name_with_namespace(metadata),
        submitted=submitted,
        duration=end - start + past,  # `start` is that of the last admission
        num_gpus=num_gpus,
        tenant=metadata.word("namespace"),
        status=FINISHED.get(finished.word("reason") or ""),
        extras=extras_of(
            application=owner_of(metadata),
            num_instances=asked.num_pods,
            gpu_type=asked.flavor,
            cpus=resources.cpus,
            memory=resources.memory,
            queueing_delay=queueing_delay,
            time_limit=spec.optional_within(TIME_LIMIT, 1, MOST_SECONDS),
            partition=queue,
            priority=priority_of(spec),
            qos=class_of(spec),
            gpus_per_task=asked.gpus_per_task(units),
        ),
        oddities=oddities_of_times(submitted, start, end, end - start),
    )


START_CLEARED = "finished, but Kueue 0.15 cleared when it began"


def _why_not_admitted(status: JsonRow, finished: JsonRow | None, *, has_run: bool) -> str:
    """Return the reason to drop a workload that is not admitted at present."""
    if has_run:
        return RowReason.NO_END
    if finished is not None and _was_cleared_at_end(status, finished):
        return START_CLEARED
    return RowReason.NEVER_RAN


def _was_cleared_at_end(status: JsonRow, finished: JsonRow) -> bool:
    """Return whether the admission of a workload ended when the workload finished, or within 1 s of it.

    Kueue 0.15.0 to 0.15.2 set Admitted and QuotaReserved to False when a workload finishes (kueue #8188, reverted by
    #8612). In other versions, only a workload that lost its quota before has these conditions.
    """
    end = instant(finished, "lastTransitionTime")
    for condition in status.children("conditions"):
        is_admission = condition.values.get("type") in ("Admitted", "QuotaReserved")
        if is_admission and abs(instant(condition, "lastTransitionTime") - end) <= 1:
            return True
    return False


class PodSet(NamedTuple):
    """Equal pods of a workload."""

    resources: Resources  # of all its pods
    num_pods: int


class Asked(NamedTuple):
    """What a workload of Kueue asks for, or got."""

    pod_sets: tuple[PodSet, ...]
    flavor: str | None  # of its GPUs, if all have one

    @property
    def resources(self) -> Resources:
        """Return the resources of all pods."""
        total = NOTHING
        for pod_set in self.pod_sets:
            total = total.plus(pod_set.resources)
        return total

    @property
    def num_pods(self) -> int:
        """Return the number of pods."""
        return sum(pod_set.num_pods for pod_set in self.pod_sets)

    def gpus_per_task(self, units: Sequence[CountedResource]) -> int | None:
        """Return the GPUs that must be on one node, because each pod is on one node.

        Return None if a pod shares a GPU, or no pod has GPUs.
        """
        pod_sets = [pod_set for pod_set in self.pod_sets if pod_set.num_pods]
        return gpus_together(pod_set.resources.gpus_of(units) / pod_set.num_pods for pod_set in pod_sets)


def asked_for(spec: JsonRow, admission: JsonRow) -> Asked:
    """Return the resources of a workload.

    The admission states the resources that the workload got, if it was admitted.
    """
    assignments = {}
    for assignment in admission.children("podSetAssignments"):
        assignments[assignment.word("name") or "main"] = assignment
    pod_sets = []
    flavors = set[str]()
    for pod_set in spec.children("podSets"):
        count = _count_of_pods(pod_set, "count")
        admitted = assignments.get(pod_set.word("name") or "main")
        if admitted is not None and admitted.has("resourceUsage"):
            resources = Resources.of(admitted.child("resourceUsage"))
            if admitted.has("count"):  # a workload may be admitted with fewer pods than it asks for
                count = admitted.count("count")
            flavors_by_resource = admitted.child("flavors")
            # Accelerators are the resources with a domain in their name, like nvidia.com/gpu.
            flavors |= {flavors_by_resource.text(name) for name in flavors_by_resource.values if "/" in name}
        else:
            resources = of_pod(pod_set.child("template").child("spec")).times(count)
        pod_sets.append(PodSet(resources, count))
    flavor = None
    if len(flavors) == 1:
        flavor = flavors.pop()
    return Asked(tuple(pod_sets), flavor)


def _past_execution(status: JsonRow) -> float:
    """Return the time in which a workload was admitted before its last eviction [s]."""
    # Kueue's API spells the key with an x too many.
    keys = ("accumulatedPastExexcutionTimeSeconds", "accumulatedPastExecutionTimeSeconds")
    return sum(status.within(key, 0, MOST_SECONDS) for key in keys if status.has(key))


def class_of(spec: JsonRow) -> str | None:
    """Return the name of a workload's priority class; since v1beta2 it is an object."""
    if spec.has("priorityClassRef"):
        return spec.child("priorityClassRef").word("name")
    return spec.word("priorityClassName")


class _VolcanoJob(NamedTuple):
    """The values that a Volcano Job adds to its PodGroup, None if unknown."""

    start: float | None  # first start [s since 1970-01-01 UTC]
    duration: float | None  # from the first start to the end [s]
    status: JobStatus | None
    attempts: int | None
    resources: Resources  # of the pods that ran, as far as the Job states them
    pods: tuple[Resources, ...]  # the resources of one pod of each task
    is_elastic: bool  # whether the Job asks for more pods than it needs at least

    def wait_since(self, submitted: float) -> float | None:
        """Return the time from a submission [s since 1970-01-01 UTC] to the first start [s]; None if it is unknown."""
        if self.start is None:
            return None
        return self.start - submitted


NO_VOLCANO_JOB = _VolcanoJob(None, None, None, None, NOTHING, (), is_elastic=False)
"""What is known of the Job of a PodGroup without one in the file."""


@dataclass(frozen=True, kw_only=True)
class VolcanoFormat(Format):
    """PodGroups, with the Volcano Jobs that they belong to if these are in the same file."""

    def counting(self, units: tuple[CountedResource, ...]) -> VolcanoFormat:
        """Return the format with other resources that count as GPUs."""
        return replace(self, units=units)

    def entries(self, path: Path, zone: tzinfo) -> Iterator[Entry]:
        """Yield a job, a dropped row or an error for each object.

        The file is read twice, because a Job may follow its PodGroup.
        """
        jobs = dict[str, _VolcanoJob]()
        priorities = dict[str, float]()
        for row in json_rows(path, LIST, None):
            try:
                _note(row, jobs, priorities)
            except BadRowError:
                continue  # the second pass yields the error
        for row in json_rows(path, LIST, None):
            yield parsed(row, lambda row: _parse_volcano(row, jobs, priorities, self.units))


def _note(row: JsonRow, jobs: dict[str, _VolcanoJob], priorities: dict[str, float]) -> None:
    """Write a Job to `jobs`, or the value of a priority class to `priorities`, by its name; ignore other objects."""
    if row.values.get("kind") == "PriorityClass":
        name = row.child("metadata").text("name")
        priorities[name] = row.within("value", -HIGHEST_PRIORITY, HIGHEST_PRIORITY)
    elif row.values.get("kind") == "Job":
        jobs[name_with_namespace(row.child("metadata"))] = _volcano_job(row.child("spec"), row.child("status"))


def _volcano_job(spec: JsonRow, status: JsonRow) -> _VolcanoJob:
    """Return the values of a Job. The conditions of its status are the history of its phases.

    `runningDuration` is not used, because Volcano counts it from the creation of the Job.
    """
    start: float | None = None
    end: float | None = None
    for condition in status.children("conditions"):
        phase_of_history = condition.text("status")
        time = instant(condition, "lastTransitionTime")
        # A Job that is run again has several starts and ends. Its time is from the first start to the last end.
        if phase_of_history == "Running" and start is None:
            start = time
        if phase_of_history in VOLCANO_ENDED:
            end = time
    duration = None
    if start is not None and end is not None and end >= start:
        duration = end - start
    phase = status.child("state").word("phase")
    job_status = VOLCANO_ENDED.get(phase or "")
    if phase == "Running":
        job_status = JobStatus.RUNNING
    return _VolcanoJob(
        start=start,
        duration=duration,
        status=job_status,
        attempts=1 + (status.optional_count("retryCount") or 0),
        resources=_of_tasks(spec, status),
        pods=tuple(of_pod(task.child("template").child("spec")) for task in spec.children("tasks")),
        is_elastic=spec.has("minAvailable") and spec.count("minAvailable") < _num_pods(spec),
    )


def _num_pods(spec: JsonRow) -> int:
    """Return the number of pods that the tasks of a Volcano Job ask for."""
    return sum(_count_of_pods(task, "replicas") for task in spec.children("tasks"))


def _of_tasks(spec: JsonRow, status: JsonRow) -> Resources:
    """Return the resources of the pods of a Volcano Job that ran.

    The status counts the pods. If it counts fewer pods than the tasks ask for, and the tasks differ, it is unknown
    which ones ran, so the result has no resources.
    """
    tasks = spec.children("tasks")
    total = NOTHING
    for task in tasks:
        pod = of_pod(task.child("template").child("spec"))
        total = total.plus(pod.times(_count_of_pods(task, "replicas")))
    # A pod is in one of these phases, so the sum counts each pod once.
    num_seen = sum(status.optional_count(phase) or 0 for phase in ("succeeded", "failed", "running", "terminating"))
    # Pods that were replaced after a failure count too, so there may be more than the tasks ask for.
    if num_seen >= _num_pods(spec):
        return total
    if num_seen and len(tasks) == 1:
        return of_pod(tasks[0].child("template").child("spec")).times(num_seen)
    return NOTHING


MINIMUM_ONLY = "GPUs are those of the fewest pods (minMember); the job may have run more"


def _parse_volcano(
    row: JsonRow, jobs: Mapping[str, _VolcanoJob], priorities: Mapping[str, float], units: Sequence[CountedResource]
) -> LogJob | Dropped:
    """Return the job of a PodGroup, with the values of its Job and its priority class; drop any other object."""
    kind = row.text("kind")
    if kind != "PodGroup":
        _note(row, {}, {})  # raises the error of a bad object
        reasons = {"Job": "Volcano Job, counted with its PodGroup", "PriorityClass": "priority class"}
        return row.dropped(reasons.get(kind, f"a {kind}, neither a PodGroup nor a Job"))
    reason = POD_GROUP.differs(row)
    if reason:
        return row.dropped(reason)
    metadata = row.child("metadata")
    spec = row.child("spec")
    resources = Resources.of(spec.child("minResources"))
    phase = row.child("status").word("phase")
    owner = owner_of(metadata)
    job = NO_VOLCANO_JOB
    if owner is not None:
        job = jobs.get(in_namespace(metadata, owner), NO_VOLCANO_JOB)
    has_minimum_only = job.is_elastic
    # A PodGroup states the resources of the fewest pods, and the Job may have run more.
    if job.resources.gpus_of(units) > resources.gpus_of(units):
        resources = job.resources
        has_minimum_only = False
    num_gpus = resources.gpus_of(units)
    if num_gpus == 0:
        return row.dropped(resources.why_none(units))
    if phase in ("Pending", "Inqueue", None):
        return row.dropped(RowReason.NEVER_RAN)
    submitted = instant(metadata, "creationTimestamp")
    class_name = spec.word("priorityClassName")
    status = job.status
    if job is NO_VOLCANO_JOB and phase == "Running":  # nothing else is known
        status = JobStatus.RUNNING
    oddities = list(oddities_of_times(submitted, job.start, None, 0.0))
    if has_minimum_only:
        oddities.append(MINIMUM_ONLY)
    return LogJob(
        place=row.place,
        job=name_with_namespace(metadata),
        submitted=submitted,
        duration=job.duration,
        num_gpus=num_gpus,
        tenant=metadata.word("namespace"),
        status=status,
        attempts=job.attempts,
        extras=extras_of(
            application=owner,
            num_instances=spec.optional_count("minMember"),
            cpus=resources.cpus,
            memory=resources.memory,
            queueing_delay=job.wait_since(submitted),
            partition=spec.word("queue"),
            priority=priorities.get(class_name or ""),
            qos=class_name,
            gpus_per_task=gpus_together(pod.gpus_of(units) for pod in job.pods),
        ),
        oddities=tuple(oddities),
    )


class KueueFormat(JsonFormat):
    """Workloads of Kueue."""

    def counting(self, units: tuple[CountedResource, ...]) -> KueueFormat:
        """Return the format with other resources that count as GPUs."""
        return replace(self, units=units, parse=partial(_parse_workload, units=units))


KUEUE = KueueFormat(
    name="kueue",
    citation="Kueue Workloads, kubectl get workloads -A -o json",
    caveat="a workload runs from its last admission to its end; GPUs of pods that ended earlier count to the end",
    key=LIST,
    parse=_parse_workload,
    clock=LogClock.ZONED,
    extras=EXTRAS,
    files="*.json",
)

VOLCANO = VolcanoFormat(
    name="volcano",
    citation="Volcano PodGroups, kubectl get podgroups.scheduling.volcano.sh,jobs.batch.volcano.sh -A -o json",
    caveat="a PodGroup does not state when it ran: its duration comes from its Volcano Job in the same file, from the "
    "first start to the end, with the waits of retries",
    clock=LogClock.ZONED,
    extras=EXTRAS,
    files="*.json",
)
