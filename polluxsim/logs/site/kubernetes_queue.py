"""Read the jobs of a Kubernetes cluster that run or wait: its pods, and the Workloads of Kueue."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from polluxsim.common.errors import InvalidInputError
from polluxsim.hardware.placements import MOST_SECONDS
from polluxsim.logs.formats.base import ONLY_GPUS, Place, gpus_together
from polluxsim.logs.formats.json_rows import JsonRow, json_rows
from polluxsim.logs.formats.kubernetes import (
    LIST,
    TIME_LIMIT,
    asked_for,
    class_of,
    in_namespace,
    instant,
    name_with_namespace,
    owner_of,
    priority_of,
)
from polluxsim.logs.formats.kubernetes_resources import of_pod
from polluxsim.logs.formats.pods import JOB_LABELS, first_label
from polluxsim.logs.site.node_files import KUBERNETES_TYPES
from polluxsim.logs.site.queue import Queue, QueuedJob


def read_kubernetes(path: Path, time: float | None = None) -> Queue:
    """Return the jobs in the output of `kubectl get pods` or `kubectl get workloads`, with -A -o json.

    The pods of a job are one job, as in the log format `pods`. In a file with both kinds, Workloads count if they wait,
    and pods if they run or wait. `time` is that of the state [s since 1970-01-01 UTC]; without it, it is the time at
    which the file was written, or the latest time in the file if that is later. Raise InvalidInputError if the list is
    empty or a value is invalid.
    """
    left_out = Counter[str]()
    pods = list[_Pod]()
    workloads = list[QueuedJob]()
    latest = 0.0
    for row in json_rows(path, LIST, None):
        # An object without a kind is taken for a pod, the only kind without an API group.
        kind = row.word("kind") or "Pod"
        latest = max(latest, instant(row.child("metadata"), "creationTimestamp"))
        if kind == "Pod":
            pod = _pod(row, left_out)
            if pod is not None:
                pods.append(pod)
        elif kind == "Workload":
            workload = _workload(row, left_out)
            if workload is not None:
                workloads.append(workload)
        else:
            left_out[f"objects of the kind {kind}"] += 1
    if not latest:
        raise InvalidInputError(f"{path}: the list has no object; give the output of kubectl get pods -A -o json")
    starts = [pod.start for pod in pods if pod.start is not None]
    starts += [workload.started for workload in workloads if workload.started is not None]
    latest = max([latest, *starts])
    time_from = "as --taken says"
    if time is None:
        time = path.stat().st_mtime
        time_from = "when the file was written; --taken gives another"
        # The clock of this machine may be behind that of the cluster.
        if time < latest:
            time = latest
            time_from = "the latest time in the file; --taken gives another"
    # An admitted Workload runs as pods, which would count twice.
    if pods:
        workloads = [workload for workload in workloads if not workload.is_running]
    notes = []
    if workloads:
        notes.append("the quotas of Kueue's ClusterQueues are not modelled: a workload starts when GPUs are free")
    return Queue(path.name, time, time_from, (*_jobs(pods), *workloads), left_out, notes)


class _Pod(NamedTuple):
    """A pod with GPUs that runs or waits."""

    place: Place
    name: str
    job: str  # namespace and name of its job, or its own
    created: float  # [s since 1970-01-01 UTC]
    start: float | None  # time from which it holds its GPUs [s since 1970-01-01 UTC]; None while it waits
    node: str | None
    num_gpus: float
    row: JsonRow
    kept_out: str
    reason: str


def _pod(row: JsonRow, left_out: Counter[str]) -> _Pod | None:
    """Return a pod; None for a pod that has ended, is ending or has no GPUs, which is counted."""
    metadata = row.child("metadata")
    spec = row.child("spec")
    status = row.child("status")
    phase = status.word("phase") or "Pending"
    if phase not in ("Pending", "Running") or metadata.has("deletionTimestamp"):
        left_out["pods that have ended or are ending"] += 1
        return None
    num_gpus = of_pod(spec).gpus_of(ONLY_GPUS)
    if not num_gpus:
        left_out["pods without GPUs"] += 1
        return None
    name = name_with_namespace(metadata)
    job = name
    label = first_label(metadata.child("labels"), JOB_LABELS)
    if label is not None:
        job = in_namespace(metadata, label)
    created = instant(metadata, "creationTimestamp")
    node = spec.word("nodeName")
    scheduled = _condition(status, "PodScheduled")
    start = None
    # A pod holds its GPUs from when it is bound to a node, before its containers start.
    if node is not None:
        start = created
        if scheduled is not None and scheduled.has("lastTransitionTime"):
            start = max(created, instant(scheduled, "lastTransitionTime"))
    reason = ""
    if scheduled is not None:
        reason = scheduled.word("reason") or ""
    kept_out = ""
    if spec.children("schedulingGates"):
        kept_out = "are held (scheduling gates)"
    return _Pod(row.place, name, job, created, start, node, num_gpus, row, kept_out, reason)


def _condition(status: JsonRow, kind: str) -> JsonRow | None:
    """Return the condition of a kind in the status of an object; None without it."""
    for condition in status.children("conditions"):
        if condition.values.get("type") == kind:
            return condition
    return None


def _jobs(pods: Sequence[_Pod]) -> Iterator[QueuedJob]:
    """Yield the jobs of pods. The waiting pods of a job that runs already are a waiting job of their own."""
    pods_by_job = defaultdict[tuple[str, bool], list[_Pod]](list)  # by the job and whether the pods run
    for pod in pods:
        pods_by_job[pod.job, pod.start is not None].append(pod)
    for (name, is_running), pods_of_job in pods_by_job.items():
        is_rest = not is_running and (name, True) in pods_by_job
        job_name = name
        if is_rest:  # the name of a job is unique in a queue
            job_name = f"{name}+"
        yield _job(job_name, pods_of_job)


def _job(name: str, pods: Sequence[_Pod]) -> QueuedJob:
    """Return the job of pods that all run or all wait."""
    first = pods[0]
    metadata = first.row.child("metadata")
    spec = first.row.child("spec")
    starts = [pod.start for pod in pods if pod.start is not None]
    # The GPU type that the pods ask for: labels of nodes that they select.
    node_labels = spec.child("nodeSelector")
    return QueuedJob(
        place=first.place,
        name=name,
        submitted=min(pod.created for pod in pods),
        num_gpus=sum(pod.num_gpus for pod in pods),
        started=min(starts, default=None),
        placement=_placement(pods),
        tenant=metadata.word("namespace"),
        job_name=owner_of(metadata),
        qos=spec.word("priorityClassName"),
        priority=priority_of(spec),
        time_limit=spec.optional_within("activeDeadlineSeconds", 1, MOST_SECONDS),
        gpus_per_task=gpus_together(pod.num_gpus for pod in pods),
        gpu_type=first_label(node_labels, KUBERNETES_TYPES),
        reason=first.reason,
        kept_out=first.kept_out,
    )


def _placement(pods: Sequence[_Pod]) -> tuple[tuple[str, int], ...]:
    """Return the GPUs of pods by node; empty if one waits or shares a GPU."""
    gpus = Counter[str]()
    for pod in pods:
        if pod.node is None or pod.num_gpus % 1:
            return ()
        gpus[pod.node] += int(pod.num_gpus)
    return tuple(gpus.items())


def _workload(row: JsonRow, left_out: Counter[str]) -> QueuedJob | None:
    """Return a Workload; None for a Workload that has finished or has no GPUs, which is counted."""
    metadata = row.child("metadata")
    spec = row.child("spec")
    status = row.child("status")
    conditions: dict[str, JsonRow] = {}
    true_conditions: dict[str, JsonRow] = {}
    for condition in status.children("conditions"):
        kind = condition.text("type")
        conditions[kind] = condition
    for kind, condition in conditions.items():
        if condition.values.get("status") == "True":
            true_conditions[kind] = condition
    if "Finished" in true_conditions:
        left_out["workloads that have finished"] += 1
        return None
    asked = asked_for(spec, status.child("admission"))
    num_gpus = asked.resources.gpus_of(ONLY_GPUS)
    if not num_gpus:
        left_out["workloads without GPUs"] += 1
        return None
    admitted = true_conditions.get("Admitted")
    waiting = conditions.get("QuotaReserved")
    # A LocalQueue has another name than its ClusterQueue, which only an admitted Workload states.
    queue = status.child("admission").word("clusterQueue") or spec.word("queueName")
    created = instant(metadata, "creationTimestamp")
    started = None
    reason = ""
    if admitted is not None:
        started = max(created, instant(admitted, "lastTransitionTime"))
    elif waiting is not None:
        reason = waiting.word("reason") or ""
    partitions: tuple[str, ...] = ()
    if queue is not None:
        partitions = (queue,)
    kept_out = ""
    if spec.values.get("active") is False:
        kept_out = "are held (spec.active is false)"
    return QueuedJob(
        place=row.place,
        name=name_with_namespace(metadata),
        submitted=created,
        num_gpus=num_gpus,
        started=started,
        tenant=metadata.word("namespace"),
        partitions=partitions,
        job_name=owner_of(metadata),
        qos=class_of(spec),
        priority=priority_of(spec),
        time_limit=spec.optional_within(TIME_LIMIT, 1, MOST_SECONDS),
        gpus_per_task=asked.gpus_per_task(ONLY_GPUS),
        gpu_type=asked.flavor,
        reason=reason,
        kept_out=kept_out,
    )
