"""Views as values: what the host sends for each decision, and the view that the process makes of it.

The values of a job that stay are sent once, when the job arrives. All other values are sent for each decision.
The process changes its view of a job in place, as the engine does, so that a program may keep it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from polluxsim.hardware.placements import JobId
from polluxsim.policies.contract.job import JobView
from polluxsim.policies.contract.use_limits import LimitsNow
from polluxsim.policies.contract.view import Changes, ClusterView, SharedGpus, Standing
from polluxsim.policies.guest.source import ORACLE, TRUTH

LASTING = (
    "job_id", "submit_time", "application", "job_name", "user", "queue", "priority", "qos", "num_nodes",
    "gpus_per_task", "deadline", "time_limit", "min_replicas", "gang_size", "may_grow", "plan", "gpu_types", "speeds",
    "batch_limits", "mixes_types", "host", "sensitivity", "stages",
)  # fmt: skip
"""Attributes of a job that only a fork of the run changes."""

PRESENT = (
    "num_replicas", "batch_size", "placement", "attained_service", "num_restarts", "max_replicas", "goodput",
    "goodputs", "trained", "report",
)  # fmt: skip
"""Attributes of a job that may differ at each decision."""

AT_END = ("placement", "attained_service", "num_restarts")
"""Attributes that the engine's view of a job has after the end of the job."""

OF_CLUSTER = (
    "round_interval", "restarts", "free_starts", "nodes", "health", "node_types", "hosts", "shape_rule",
    "partition_groups",
)  # fmt: skip
"""Attributes of the cluster that are sent when they differ from those of the last decision."""

NAMES_OF_CHANGES = ("passed_epoch", "learnt", "evicted", "altered")  # attributes of `Changes` with names of jobs

Message = dict[str, Any]
FitsTogether = Callable[[JobId, JobId], bool]


class ViewSender:
    """Make the messages for the views of a run."""

    def __init__(self) -> None:
        self._views: dict[JobId, JobView] = {}  # of the jobs of the last message
        self._sent: dict[str, Any] = {}  # last values of the cluster

    def message(self, view: ClusterView) -> Message:
        """Return the values of a view, without those that earlier messages of the run have sent."""
        jobs = list(view.jobs)
        changes = view.changes
        lasting = {}
        for job in jobs:
            if job.job_id not in self._views or job.job_id in changes.altered:
                lasting[job.job_id] = _values(job, LASTING)
        # The engine's views of jobs that ended show what the jobs had at their ends.
        # A job that arrived and ended between two decisions was never sent.
        ended_jobs = [self._views[name] for name in changes.ended if name in self._views]
        self._views = {job.job_id: job for job in jobs}
        of_cluster = {}
        for name in OF_CLUSTER:
            value = getattr(view, name)
            if name not in self._sent or self._sent[name] != value:
                self._sent[name] = of_cluster[name] = value
        return {
            "time": view.time,
            "gpus_per_node": view.gpus_per_node,
            "jobs": [job.job_id for job in jobs],
            "lasting": lasting,
            "present": [_values(job, PRESENT) for job in jobs],
            "at_end": {job.job_id: _values(job, AT_END) for job in ended_jobs},
            "running": [job.job_id for job in view.running],
            "waiting": [job.job_id for job in view.waiting],
            "free": list(view.free),
            "demand": view.demand,
            "arrived": [job.job_id for job in changes.arrived],
            "ended": dict(changes.ended),
            "changed_nodes": changes.nodes,
            "changed": [list(getattr(changes, name)) for name in NAMES_OF_CHANGES],
            "of_cluster": of_cluster,
            "limits": tuple(view.limits.limits),
            "held": dict(view.sharing.held),
            "shared_speeds": dict(view.sharing.speeds),
            "asks_fit": view.sharing.fit_together is not None,
        }


def _values(job: JobView, names: tuple[str, ...]) -> list[Any]:
    """Return attributes of a job, in the order of the names; copies of mappings, which may belong to the engine."""
    values = []
    for name in names:
        value = getattr(job, name)
        values.append(dict(value) if isinstance(value, Mapping) else value)
    return values


class ValueJob(JobView):
    """A job as a program sees it: values without the oracle."""

    __slots__ = ()

    def __getattr__(self, name: str) -> NoReturn:
        """Refuse an attribute that the job lacks. Python calls this only then."""
        if name == ORACLE:
            raise AttributeError(f"job.{ORACLE} is not open to programs: {TRUTH}", name=name, obj=self)
        raise AttributeError(f"a view of a job has no attribute {name!r}", name=name, obj=self)

    def __repr__(self) -> str:
        return f"JobView({self.job_id!r})"


class ViewReceiver:
    """Make views of messages. `fit` asks the host whether two jobs can share GPUs."""

    def __init__(self, fit: FitsTogether) -> None:
        self._fit = fit
        self._jobs: dict[JobId, ValueJob] = {}
        self._of_cluster: dict[str, Any] = {}

    def view(self, message: Message) -> ClusterView:
        """Return the view of a message. Jobs that the program has seen are the same objects as before."""
        self._of_cluster |= message["of_cluster"]
        for name, values in message["at_end"].items():
            _set_values(self._jobs[name], AT_END, values)
        # Jobs that ended are no longer needed here, but a program may still have them.
        jobs = self._jobs_of(message)
        self._jobs = {job.job_id: job for job in jobs}
        running = [self._jobs[name] for name in message["running"]]
        waiting = [self._jobs[name] for name in message["waiting"]]
        changed = dict(zip(NAMES_OF_CHANGES, message["changed"], strict=True))
        fit_together = self._fit_together if message["asks_fit"] else None
        return ClusterView(
            time=message["time"],
            gpus_per_node=message["gpus_per_node"],
            jobs=jobs,
            changes=Changes(
                arrived=[self._jobs[name] for name in message["arrived"]],
                ended=message["ended"],
                nodes=message["changed_nodes"],
                **changed,
            ),
            limits=LimitsNow.of(message["limits"], running),
            sharing=SharedGpus(message["held"], message["shared_speeds"], fit_together),
            standing=Standing(running, waiting, message["free"], message["demand"]),
            **self._of_cluster,
        )

    def _jobs_of(self, message: Message) -> list[ValueJob]:
        """Return the jobs of a message, with their present values."""
        lasting = message["lasting"]
        jobs = []
        for name, values in zip(message["jobs"], message["present"], strict=True):
            job = self._jobs.get(name)
            if job is None:
                # The values follow one by one, without the arguments that the class wants.
                job = ValueJob.__new__(ValueJob)
            if name in lasting:
                _set_values(job, LASTING, lasting[name])
            _set_values(job, PRESENT, values)
            jobs.append(job)
        return jobs

    def _fit_together(self, one: JobView, other: JobView) -> bool:
        """Return whether two jobs can share GPUs, which only the host knows."""
        return self._fit(one.job_id, other.job_id)


def _set_values(job: ValueJob, names: tuple[str, ...], values: list[Any]) -> None:
    """Set attributes of a job. The class is frozen, so that an assignment would raise an error."""
    for name, value in zip(names, values, strict=True):
        object.__setattr__(job, name, value)
