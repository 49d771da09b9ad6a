"""What policies look at: windows on the run, open from the time the policy is asked until it has decided."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from polluxsim.engine.oracle import OracleWindow
from polluxsim.engine.reports import report_of
from polluxsim.engine.sharing import tenant_of
from polluxsim.models.profile import sensitivity_of

if TYPE_CHECKING:
    from polluxsim.engine.job import ActiveJob
    from polluxsim.engine.sharing import Tenant
    from polluxsim.engine.shutter import Shutter
    from polluxsim.gpu_types import NodeTypes
    from polluxsim.hosts import Host
    from polluxsim.models.goodput import Goodput, GoodputModel
    from polluxsim.models.planned import BatchPlan
    from polluxsim.models.sensitivity import Sensitivity
    from polluxsim.models.stages import Stages
    from polluxsim.policies.view import JobView, Report
    from polluxsim.types import JobId, Placement
    from polluxsim.workloads.workload import Job

    SpeedsOf = Callable[[Job], Mapping[str, float]]


class JobWindow:
    """A `JobView` of one job of a run, made once: what its user said is here, the rest is looked up."""

    __slots__ = ("_active", "_shutter", "_speeds_of", "batch_size", "job_id", "num_replicas", "oracle", "submit_time")

    def __init__(self, active: ActiveJob, shutter: Shutter, speeds_of: SpeedsOf) -> None:
        self.job_id: JobId = active.job.job_id
        self._active = active
        self._shutter = shutter
        self._speeds_of = speeds_of
        self.show(active)

    def show(self, active: ActiveJob) -> None:
        """Have the window say what the job's user says now."""
        job = active.job
        self.submit_time = job.submit_time
        self.num_replicas = job.num_replicas
        self.batch_size = job.batch_size
        self.oracle = OracleWindow(active, self._shutter)

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
    def application(self) -> str:
        return self._active.job.application

    @property
    def user(self) -> str | None:
        return self._active.job.user

    @property
    def queue(self) -> str | None:
        return self._active.job.queue

    @property
    def priority(self) -> float:
        return self._active.job.priority

    @property
    def deadline(self) -> float | None:
        return self._active.job.deadline

    @property
    def time_limit(self) -> float | None:
        return self._active.job.time_limit

    @property
    def gpu_types(self) -> tuple[str, ...]:
        return self._active.job.gpu_types

    @property
    def plan(self) -> BatchPlan | None:
        return self._active.job.plan

    @property
    def stages(self) -> Stages | None:
        return self._active.job.stages

    @property
    def host(self) -> Host | None:
        return self._active.job.host

    @property
    def sensitivity(self) -> Sensitivity | None:
        job = self._active.job
        return job.sensitivity or (None if job.is_rigid else sensitivity_of(self._active.truth.profile))

    @property
    def min_replicas(self) -> int | None:
        return self._active.job.min_replicas

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
        return report_of(self._active, self._shutter.time, self._shutter.rule)

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


class JobWindows(Sequence["JobView"]):
    """Views of many jobs, gone through only when somebody does.

    Parameters
    ----------
    shutter
        Whether they may be looked at.
    size
        How many there are.
    views
        Gives them in order.
    """

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
