"""The view of a job, from which a policy decides."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from polluxsim.hardware.hosts import Host
from polluxsim.hardware.placements import BatchChoice, JobId, Placement
from polluxsim.models.batch_size import BatchLimits
from polluxsim.models.known_duration import BatchPlan
from polluxsim.models.profile import Application
from polluxsim.models.sensitivity import Sensitivity
from polluxsim.models.stages import Stages

if TYPE_CHECKING:
    from polluxsim.models.goodput import Goodput, GoodputModel


class Oracle(Protocol):
    """The true speed and the remaining work of a job, which no scheduler of a real cluster can know.

    Methods without a `gpu_type` are about the GPU type of the oracle: the type given to `on`; otherwise the only type
    of the cluster, or on a cluster of several types the one that the profile of the job was measured on first.
    """

    @property
    def application(self) -> Application:
        """Return the properties of the job's application."""

    @property
    def epoch(self) -> int:
        """Return the present epoch, from 0."""

    @property
    def progress(self) -> float:
        """Return the work done [M0-steps]."""

    @property
    def batch_choice(self) -> BatchChoice:
        """Return the batch that the job would choose now if one node had all GPUs that its user requested."""

    def time_left(self, gpus: int) -> float:
        """Return the true time to completion at the user's batch size on GPUs of as few nodes as possible [s].

        Raises
        ------
        ProfileRangeError
            If the job cannot run on this number of GPUs.
        """

    def optimiser_step_time(
        self, gpus_by_node: tuple[int, ...], choice: BatchChoice, gpu_type: str | None = None
    ) -> float:
        """Return the true time of one optimiser step on a placement [s], by default on the type of the oracle."""

    def remaining_iterations(self, batch_size: int) -> float:
        """Return the optimiser steps from the end of the present epoch to completion, at a constant batch size."""

    def remaining_time(self, gpus_by_node: tuple[int, ...], choice: BatchChoice, gpu_type: str | None = None) -> float:
        """Return the true time to completion on a constant placement at a constant batch size [s].

        By default it is that on the type of the oracle.
        """

    def on(self, gpu_type: str) -> Oracle:
        """Return the oracle with GPUs of this type as its default."""


class Report(NamedTuple):
    """The log of a job so far."""

    epochs: float  # completed statistical epochs, with the completed part of the present one
    losses: tuple[float, ...]  # Loss after each complete epoch. Its unit depends on the application.
    # Optimiser steps of the last complete epoch at the user's batch size; in the first epoch, the examples of an epoch
    # over that batch size.
    steps_per_epoch: float
    step_time: float | None  # present time of an optimiser step [s]; None while the job does not train
    last_drop: float  # the training is complete when the loss falls by less in an epoch [unit of the losses]


@dataclass(frozen=True, eq=False, slots=True)
class JobView:
    """A job that is submitted and has not ended.

    The engine's views are live. They show the present while the policy decides. At other times, the attributes that
    change while a job waits or runs, such as `placement`, raise `ViewClosedError`. All attributes are read-only. A
    `JobSnapshot` keeps the values of a view.

    A first policy needs `job_id`, `submit_time`, `num_replicas`, `placement`, `attained_service`, and `goodput` if it
    adapts the number of GPUs.
    """

    job_id: JobId
    submit_time: float  # time of submission [s]
    # GPUs and total batch size that the user requests [GPUs; examples].
    num_replicas: int
    batch_size: int
    placement: Placement  # GPUs that the job holds. Empty if the job holds no GPUs.
    attained_service: float  # GPUs times the time for which the job held them, so far [GPU s]
    num_restarts: int  # changes of its GPUs since its first start
    max_replicas: int  # most GPUs that the job can use now, according to its agent and its user
    # Goodput by GPUs and nodes that the agent has learnt, on the GPU type on which the job ran last [M0-equivalent
    # examples/s]. None before the first fit, and for jobs that do not adapt their batch size.
    goodput: GoodputModel | None
    oracle: Oracle  # True speed and remaining work. Only policies that assume this knowledge use this attribute.
    application: str = ""  # What the job trains. All jobs of an application do similar work.
    job_name: str | None = None  # name that the user gives to similar jobs, or the application that a log states
    user: str | None = None
    queue: str | None = None  # queue, virtual cluster, partition or tenant to which the job was submitted
    priority: float = 0.0  # a larger number goes first, in policies that use it
    qos: str | None = None  # quality of service or priority class
    num_nodes: int | None = None  # number of different nodes that the user requests
    gpus_per_task: int | None = None  # GPUs of each task, which must be on one node; 1 if they may be anywhere
    deadline: float | None = None  # time by which the job should be complete [s on the clock of the workload]
    time_limit: float | None = None  # time of running that the user promises not to exceed [s]
    min_replicas: int | None = None  # fewest GPUs that the user allows
    # The only number of GPUs on which the job can run. None if the job can run on other numbers.
    gang_size: int | None = None
    may_grow: bool = False  # whether the user allows more GPUs than requested, up to `max_replicas`
    plan: BatchPlan | None = None  # How the job changes its batch size by itself. None if the job does not change it.
    gpu_types: tuple[str, ...] = ()  # GPU types that the user allows. Empty for all types.
    # Speed as the user submitted the job, by each type of the cluster that it can use [optimiser steps/s].
    speeds: Mapping[str, float] = field(default_factory=dict)
    # `goodput` for each of these types. On a type on which the job never ran, the goodput is scaled by the ratio of the
    # speeds on one GPU. None before the job has run on any type.
    goodputs: Mapping[str, Goodput | None] = field(default_factory=dict)
    # Limits of the batch size by usable GPU type. Empty if the batch size of the job cannot be chosen.
    batch_limits: Mapping[str, BatchLimits] = field(default_factory=dict)
    mixes_types: bool = False  # whether the job can use GPUs of several types at once
    # CPUs and memory that the user requests for each GPU [cores; GB], and the speed by CPUs and memory. None if
    # unknown.
    host: Host | None = None
    sensitivity: Sensitivity | None = None
    stages: Stages | None = None  # Time of a step on each resource [s]. None if unknown.
    trained: float = 0.0  # work done, as the agent counts it [M0-equivalent examples]
    report: Report | None = None  # Log of the job. None if its losses are unknown.


@dataclass(frozen=True, slots=True)
class JobSnapshot(JobView):
    """The values of a view at one time, for a policy that keeps them, and for views made by hand."""

    @classmethod
    def of(cls, job: JobView) -> JobSnapshot:
        """Return the present values of a view."""
        return cls(**{field.name: getattr(job, field.name) for field in fields(JobView)})


class JobProxy(JobView):
    """A job as a policy inside another policy sees it: a view with some attributes replaced."""

    __slots__ = ("job", "values")
    job: JobView  # the view of the job, which supplies all other values
    values: dict[str, Any]  # attributes that differ

    def __init__(self, job: JobView, **values: Any) -> None:
        # `JobView` is frozen, so an assignment would raise.
        object.__setattr__(self, "job", job)
        object.__setattr__(self, "values", values)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name in JobProxy.__slots__:  # `copy` reads these before they are set
            raise AttributeError(name)
        if name in self.values:
            return self.values[name]
        return getattr(self.job, name)

    def __deepcopy__(self, memo: dict[int, Any]) -> JobProxy:
        return type(self)(deepcopy(self.job, memo), **deepcopy(self.values, memo))

    def __repr__(self) -> str:
        return repr(self.job)
