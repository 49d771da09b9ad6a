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
from polluxsim.logs.formats.kubernetes import LIST, TIME_LIMIT, asked_for, instant, name_with_namespace, owner_of
from polluxsim.logs.formats.kubernetes_resources import of_pod
from polluxsim.logs.formats.pods import JOB_LABELS
from polluxsim.logs.site.node_files import KUBERNETES_TYPES
from polluxsim.logs.site.queue import Queue, QueuedJob

HIGHEST_PRIORITY = 2**31


def read_kubernetes(path: Path, time: float | None = None) -> Queue:
    """Return the jobs in the output of `kubectl get pods` or `kubectl get workloads`, with -A -o json.

    The pods of a job are one job, as in the log format `pods`. In a file with both kinds, Workloads count if they wait,
    and pods if they run or wait. `time` is that of the state [s since 1970-01-01 UTC]; without it, it is the time at
    which the file was written. Raise InvalidInputError if a value is invalid.
    """
    left_out = Counter[str]()
    pods = list[_Pod]()
    workloads = list[QueuedJob]()
    latest = 0.0
    for row in json_rows(path, LIST, None):
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
    """Return a pod; None for a pod that has ended or has no GPUs, which is counted."""
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
    job = _job_of_pod(metadata)
    name = name_with_namespace(metadata)
    if job is None:
        job = name
    created = instant(metadata, "creationTimestamp")
    node = spec.word("nodeName")
    scheduled = _condition(status, "PodScheduled")
    start = None
    if node is not None:
        start = created
        if scheduled is not None and scheduled.has("lastTransitionTime"):
            start = max(created, instant(scheduled, "lastTransitionTime"))
    reason = ""
    if scheduled is not None:
        reason = scheduled.word("reason") or ""
    kept_out = "are held (scheduling gates)" if spec.children("schedulingGates") else ""
    return _Pod(row.place, name, job, created, start, node, num_gpus, row, kept_out, reason)


def _job_of_pod(metadata: JsonRow) -> str | None:
    """Return the namespace and the name of the job that the labels of a pod state; None without these labels."""
    labels = metadata.child("labels")
    namespace = metadata.word("namespace")
    name = _first_label(labels, JOB_LABELS)
    if name is None or not namespace:
        return name
    return f"{namespace}/{name}"


def _first_label(labels: JsonRow, names: Sequence[str]) -> str | None:
    """Return the value of the first of some labels that an object has; None if it has none of them."""
    for name in names:
        if labels.has(name):
            return labels.text(name)
    return None


def _condition(status: JsonRow, kind: str) -> JsonRow | None:
    """Return the condition of a kind in the status of an object; None without it."""
    for condition in status.children("conditions"):
        if condition.values.get("type") == kind:
            return condition
    return None


def _priority(spec: JsonRow) -> float | None:
    """Return the priority of an object; None without it."""
    if not spec.has("priority"):
        return None
    return spec.within("priority", -HIGHEST_PRIORITY, HIGHEST_PRIORITY)


def _jobs(pods: Sequence[_Pod]) -> Iterator[QueuedJob]:
    """Yield the jobs of pods. The waiting pods of a job that runs already are a waiting job of their own."""
    by_job = defaultdict[tuple[str, bool], list[_Pod]](list)
    for pod in pods:
        by_job[pod.job, pod.start is not None].append(pod)
    for (name, is_running), of_job in by_job.items():
        further = not is_running and (name, True) in by_job
        yield _job(f"{name}+" if further else name, of_job)


def _job(name: str, pods: Sequence[_Pod]) -> QueuedJob:
    """Return the job of pods that all run or all wait."""
    first = pods[0]
    metadata = first.row.child("metadata")
    spec = first.row.child("spec")
    starts = [pod.start for pod in pods if pod.start is not None]
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
        priority=_priority(spec),
        time_limit=_limit(spec, "activeDeadlineSeconds"),
        gpus_per_task=gpus_together(pod.num_gpus for pod in pods),
        gpu_type=_first_label(node_labels, KUBERNETES_TYPES),
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


def _limit(spec: JsonRow, key: str) -> float | None:
    """Return the time limit of an object [s]; None without it."""
    if not spec.has(key):
        return None
    return spec.within(key, 1, MOST_SECONDS)


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
    return QueuedJob(
        place=row.place,
        name=name_with_namespace(metadata),
        submitted=created,
        num_gpus=num_gpus,
        started=started,
        tenant=metadata.word("namespace"),
        partitions=() if queue is None else (queue,),
        job_name=owner_of(metadata),
        qos=spec.word("priorityClassName"),
        priority=_priority(spec),
        time_limit=_limit(spec, TIME_LIMIT),
        gpus_per_task=asked.gpus_per_task(ONLY_GPUS),
        gpu_type=asked.flavor,
        reason=reason,
        kept_out="are held (spec.active is false)" if spec.values.get("active") is False else "",
    )
