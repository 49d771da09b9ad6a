"""Pods of Kubernetes, as `kubectl get pods -A -o json` prints them, for clusters without a batch scheduler.

The pods of one training job are a gang. Labels name the job. A run of the job has the pods whose times overlap. Pods
that begin after all earlier ones have ended are a further run of the job.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo
from pathlib import Path
from typing import NamedTuple

from polluxsim.logs.formats.base import (
    BadRowError,
    CountedResource,
    Dropped,
    Entry,
    Format,
    JobStatus,
    LogClock,
    LogJob,
    Place,
    RowReason,
    gpus_together,
    oddities_of_times,
)
from polluxsim.logs.formats.json_rows import JsonRow, json_rows
from polluxsim.logs.formats.kubernetes import (
    EXTRAS,
    LIST,
    POD,
    extras_of,
    in_namespace,
    instant,
    name_with_namespace,
    owner_of,
    priority_of,
)
from polluxsim.logs.formats.kubernetes_resources import Resources, of_pod

JOB_LABELS = (
    "kueue.x-k8s.io/pod-group-name",
    "scheduling.k8s.io/group-name",
    "pod-group.scheduling.sigs.k8s.io",
    "scheduling.x-k8s.io/pod-group",
    "jobset.sigs.k8s.io/jobset-name",
    "training.kubeflow.org/job-name",
    "volcano.sh/job-name",
    "ray.io/cluster",
    "batch.kubernetes.io/job-name",
    "job-name",
)
"""Labels that name the job of a pod, the widest group first."""

STATUSES = {"Succeeded": JobStatus.COMPLETED, "Failed": JobStatus.FAILED, "Running": JobStatus.RUNNING}
"""How a pod ended, by its phase."""


REPEATED = "a repeat of a pod: equal name and creation"


class _Pod(NamedTuple):
    """A pod that held GPUs."""

    place: Place
    name: str  # namespace and name
    job: str  # namespace and name of its job, or its own
    created: float  # [s since 1970-01-01 UTC]
    start: float  # first start of a container [s since 1970-01-01 UTC]
    end: float  # last end of a container [s since 1970-01-01 UTC]
    num_gpus: float
    resources: Resources
    status: JobStatus | None
    row: JsonRow


def _pod(row: JsonRow, units: Sequence[CountedResource]) -> _Pod | Dropped:
    """Return a pod that ended, or drop the object."""
    reason = POD.differs(row)
    if reason:
        return row.dropped(reason)
    metadata = row.child("metadata")
    spec = row.child("spec")
    status = row.child("status")
    resources = of_pod(spec)
    num_gpus = resources.gpus_of(units)
    if num_gpus == 0:
        return row.dropped(resources.why_none(units))
    starts, ends = _runs(status)
    if not starts:
        return row.dropped(RowReason.NEVER_RAN)
    phase = status.word("phase") or ""
    # A pod that runs may have containers that have ended.
    if phase == "Running" or not ends:
        return row.dropped(RowReason.NO_END)
    name = name_with_namespace(metadata)
    job = name
    group = first_label(metadata.child("labels"), JOB_LABELS)
    if group is not None:
        job = in_namespace(metadata, group)
    created = instant(metadata, "creationTimestamp")
    start = min(starts)
    end = max(ends)
    if end < start:
        return row.dropped(RowReason.END_BEFORE_START)
    return _Pod(row.place, name, job, created, start, end, num_gpus, resources, STATUSES.get(phase), row)


def first_label(labels: JsonRow, names: Sequence[str]) -> str | None:
    """Return the value of the first of some labels that an object has; None if it has none of them."""
    for name in names:
        if labels.has(name):
            return labels.text(name)
    return None


def _runs(status: JsonRow) -> tuple[list[float], list[float]]:
    """Return the starts and the ends of the containers of a pod, of their present and their last run [s]."""
    starts = list[float]()
    ends = list[float]()
    for container in status.children("containerStatuses"):
        for key in ("state", "lastState"):
            for kind in ("terminated", "running"):
                run = container.child(key).child(kind)
                if run.has("startedAt"):
                    starts.append(instant(run, "startedAt"))
                if run.has("finishedAt"):
                    ends.append(instant(run, "finishedAt"))
    return starts, ends


def _first_of(run: Sequence[_Pod]) -> _Pod:
    """Return the pod of a run that started first."""
    return min(run, key=lambda pod: pod.start)


def _job(name: str, run: Sequence[_Pod], attempt: int) -> LogJob:
    """Return the job of the pods of one run."""
    first = _first_of(run)
    # The gang waits from the creation of its first pod.
    created = min(pod.created for pod in run)
    end = max(pod.end for pod in run)
    resources = run[0].resources
    for pod in run[1:]:
        resources = resources.plus(pod.resources)
    status = run[0].status
    if any(pod.status is JobStatus.FAILED for pod in run):  # a gang cannot go on without one of its pods
        status = JobStatus.FAILED
    metadata = first.row.child("metadata")
    spec = first.row.child("spec")
    # The nodes are known only if all pods have one.
    nodes = {pod.row.child("spec").word("nodeName") for pod in run}
    num_nodes: int | None = len(nodes)
    if None in nodes:
        num_nodes = None
    job = name
    if attempt > 1:  # the runs of a job have names of their own
        job = f"{name}#{attempt}"
    return LogJob(
        place=first.place,
        job=job,
        submitted=created,
        duration=end - first.start,
        num_gpus=sum(pod.num_gpus for pod in run),
        tenant=metadata.word("namespace"),
        status=status,
        extras=(
            *extras_of(
                application=owner_of(metadata),
                num_instances=len(run),
                cpus=resources.cpus,
                memory=resources.memory,
                queueing_delay=first.start - created,
                priority=priority_of(spec),
                qos=spec.word("priorityClassName"),
                gpus_per_task=gpus_together(pod.num_gpus for pod in run),
            ),
            num_nodes,
        ),
        oddities=oddities_of_times(created, first.start, end, end - first.start),
    )


def _runs_of(pods: Sequence[_Pod]) -> Iterator[list[_Pod]]:
    """Yield the pods of each run of a job."""
    run: list[_Pod] = []
    for pod in sorted(pods, key=lambda pod: pod.start):
        if run and pod.start >= max(other.end for other in run):
            yield run
            run = []
        run.append(pod)
    if run:
        yield run


@dataclass(frozen=True, kw_only=True)
class PodsFormat(Format):
    """Pods, of which several may be one job."""

    def counting(self, units: tuple[CountedResource, ...]) -> PodsFormat:
        """Return the format with other resources that count as GPUs."""
        return replace(self, units=units)

    def entries(self, path: Path, zone: tzinfo) -> Iterator[Entry]:
        """Yield a job, a dropped row or an error for each pod of one file; the jobs last."""
        # Outputs that overlap in time repeat pods, and a file may contain several outputs.
        pods: dict[tuple[str, float], _Pod] = {}
        for row in json_rows(path, LIST, None):
            try:
                pod = _pod(row, self.units)
            except BadRowError as error:
                yield error
                continue
            if isinstance(pod, Dropped):
                yield pod
                continue
            key = pod.name, pod.created
            if key in pods:
                yield Dropped(pods[key].place, REPEATED)
            pods[key] = pod  # the later output has the later state
        pods_by_job = defaultdict[str, list[_Pod]](list)
        for pod in pods.values():
            pods_by_job[pod.job].append(pod)
        for name, pods_of_job in pods_by_job.items():
            yield from _entries(name, pods_of_job)


def _entries(name: str, pods: Sequence[_Pod]) -> Iterator[Entry]:
    """Yield the job of each run of some pods, and the other pods of the run as dropped."""
    for attempt, run in enumerate(_runs_of(pods), start=1):
        try:
            job = _job(name, run, attempt)
        except BadRowError as error:
            # One entry for each row, so that the numbers in the report add up.
            for _ in run:
                yield error
            continue
        yield job
        first = _first_of(run)
        for pod in run:
            if pod is not first:
                yield Dropped(pod.place, "another pod of a job, one gang with its first")


PODS = PodsFormat(
    name="pods",
    citation="Pods of Kubernetes, kubectl get pods -A -o json",
    caveat="Kubernetes deletes pods some time after they end, so that older jobs are missing",
    clock=LogClock.ZONED,
    extras=(*EXTRAS, "num_nodes"),
    files="*.json",
)
