"""What policies look at: windows on the run, open from the time the policy is asked until it has decided."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from polluxsim.engine.oracle import OracleWindow
from polluxsim.engine.sharing import tenant_of
from polluxsim.engine.shutter import ReadOnly, set_field
from polluxsim.models.profile import sensitivity_of
from polluxsim.policies.view import Report

if TYPE_CHECKING:
    from polluxsim.engine.job import ActiveJob
    from polluxsim.engine.sharing import Tenant
    from polluxsim.engine.shutter import Shutter
    from polluxsim.engine.time_rules import TimeRule
    from polluxsim.gpu_types import NodeTypes
    from polluxsim.hosts import Host
    from polluxsim.models.goodput import Goodput, GoodputModel
    from polluxsim.models.planned import BatchPlan
    from polluxsim.models.sensitivity import Sensitivity
    from polluxsim.models.stages import Stages
    from polluxsim.policies.view import JobView
    from polluxsim.types import JobId, Placement
    from polluxsim.workloads.workload import Job

    SpeedsOf = Callable[[Job], Mapping[str, float]]


def _said(name: str) -> Any:
    """Return a property of windows: what the job's user said under this name."""
    return property(attrgetter(f"_active.job.{name}"))


class JobWindow(ReadOnly):
    """A `JobView` of one job of a run, made once: what its user said is here, the rest is looked up."""

    __slots__ = ("_active", "_shutter", "_speeds_of", "batch_size", "job_id", "num_replicas", "oracle", "submit_time")

    _active: ActiveJob
    _shutter: Shutter
    _speeds_of: SpeedsOf
    batch_size: int
    job_id: JobId
    num_replicas: int
    oracle: OracleWindow
    submit_time: float

    application: str = _said("application")
    user: str | None = _said("user")
    queue: str | None = _said("queue")
    priority: float = _said("priority")
    deadline: float | None = _said("deadline")
    time_limit: float | None = _said("time_limit")
    gpu_types: tuple[str, ...] = _said("gpu_types")
    plan: BatchPlan | None = _said("plan")
    stages: Stages | None = _said("stages")
    host: Host | None = _said("host")
    min_replicas: int | None = _said("min_replicas")
    job_name: str | None = _said("job_name")
    qos: str | None = _said("qos")

    def __init__(self, active: ActiveJob, shutter: Shutter, speeds_of: SpeedsOf) -> None:
        set_field(self, "job_id", active.job.job_id)
        set_field(self, "_active", active)
        set_field(self, "_shutter", shutter)
        set_field(self, "_speeds_of", speeds_of)
        self.show(active)

    def show(self, active: ActiveJob) -> None:
        """Have the window say what the job's user says now."""
        job = active.job
        set_field(self, "submit_time", job.submit_time)
        set_field(self, "num_replicas", job.num_replicas)
        set_field(self, "batch_size", job.batch_size)
        set_field(self, "oracle", OracleWindow(active, self._shutter))

    def __repr__(self) -> str:
        return f"JobView({self.job_id!r})"

    def __deepcopy__(self, memo: dict[int, Any]) -> JobWindow:
        return JobWindow(deepcopy(self._active, memo), deepcopy(self._shutter, memo), self._speeds_of)

    def as_tenant(self, node: int, node_types: NodeTypes) -> Tenant:
        """Return the job as it would be on GPUs of a node and others like it."""
        self._shutter.look()
        gpus = tuple((node, number) for number in range(self.num_replicas))
        return tenant_of(self._active, gpus, node_types)

    @property
    def sensitivity(self) -> Sensitivity | None:
        job = self._active.job
        return job.sensitivity or (None if job.is_rigid else sensitivity_of(self._active.truth.profile))

    @property
    def placement(self) -> Placement:
        self._shutter.look()
        return self._active.tenure.placement

    @property
    def attained_service(self) -> float:
        self._shutter.look()
        return self._active.tenure.attained_service(self._shutter.time)

    @property
    def num_restarts(self) -> int:
        self._shutter.look()
        return self._active.tenure.num_restarts

    @property
    def max_replicas(self) -> int:
        self._shutter.look()
        return self._active.max_replicas

    @property
    def goodput(self) -> GoodputModel | None:
        self._shutter.look()
        return self._active.agent.goodput

    @property
    def trained(self) -> float:
        return self.oracle.progress * self._active.truth.init_batch_size

    @property
    def report(self) -> Report | None:
        self._shutter.look()
        return _report(self._active, self._shutter.time, self._shutter.rule)

    @property
    def may_grow(self) -> bool:
        return self._active.job.max_replicas is not None or bool(self._active.job.speeds)

    @property
    def mixes_types(self) -> bool:
        return self._active.agent.divide is not None

    @property
    def speeds(self) -> Mapping[str, float]:
        return self._speeds_of(self._active.job)

    @property
    def goodputs(self) -> Mapping[str, Goodput | None]:
        self._shutter.look()
        return {name: self._active.agent.goodput_on(name) for name in self.speeds}


def _report(active: ActiveJob, now: float, rule: TimeRule) -> Report | None:
    """Return what a job has logged by now [s]; None where nobody knows its losses."""
    truth, segment, pace = active.truth, active.segment, active.pace
    if not truth.losses:
        return None
    epoch = segment.epoch
    start = truth.epoch_ends[epoch - 1] if epoch else 0.0
    part = (segment.progress_at(now, rule) - start) / (truth.epoch_ends[epoch] - start)
    if epoch:
        steps = truth.steps_in(epoch - 1, active.job.batch_size)
    else:  # no epoch is known yet but by the size of the data
        steps = truth.epoch_ends[0] * truth.init_batch_size / active.job.batch_size
    step_time = None
    if pace is not None and active.is_training(now):
        step_time = pace.step.optimiser_step(pace.choice.accumulation_steps) / (1 - active.interference)
    return Report(epoch + min(max(part, 0.0), 1.0), tuple(truth.losses[:epoch]), steps, step_time, truth.last_drop)


class JobWindows(Sequence["JobView"]):
    """Views of so many jobs, gone through in order only when somebody does."""

    __slots__ = ("_list", "_shutter", "_size", "_views")

    def __init__(self, shutter: Shutter, size: int, views: Callable[[], Iterable[JobView]]) -> None:
        self._shutter = shutter
        self._size = size
        self._views = views
        self._list: list[JobView] | None = None

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[JobView]:
        self._shutter.look()
        return iter(self._views())

    def __getitem__(self, index: Any) -> Any:
        self._shutter.look()
        if self._list is None:
            self._list = list(self._views())
        return self._list[index]
