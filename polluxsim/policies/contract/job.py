"""What a policy sees of one job."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polluxsim.hardware.hosts import Host
    from polluxsim.hardware.placements import BatchChoice, JobId, Placement
    from polluxsim.models.goodput import Goodput, GoodputModel
    from polluxsim.models.known_duration import BatchPlan
    from polluxsim.models.profile import Application
    from polluxsim.models.sensitivity import Sensitivity
    from polluxsim.models.stages import Stages


class Oracle(Protocol):
    """What no scheduler of a real cluster can know: a job's true speed and how much it has left."""

    @property
    def application(self) -> Application:
        """Return the properties of the job's application."""

    @property
    def epoch(self) -> int:
        """Return the epoch that the job is in, from 0."""

    @property
    def progress(self) -> float:
        """Return the work done [M0-steps]."""

    @property
    def batch_choice(self) -> BatchChoice:
        """Return how it would split its batch now on the GPUs that its user asked for."""

    def optimiser_step_time(
        self, gpus_by_node: tuple[int, ...], choice: BatchChoice, gpu_type: str | None = None
    ) -> float:
        """Return the true time of one optimiser step on a placement [s]; by default on the type measured first."""

    def remaining_iterations(self, batch_size: int) -> float:
        """Return the optimiser steps to completion at a fixed batch size, by whole epochs."""

    def remaining_time(self, gpus_by_node: tuple[int, ...], choice: BatchChoice, gpu_type: str | None = None) -> float:
        """Return the true time to completion if this placement and batch choice were kept [s]; type as above."""

    def on(self, gpu_type: str) -> Oracle:
        """Return the truth on GPUs of a type, where nothing else is said."""


class Report(NamedTuple):
    """What a job logs as it trains: nothing of it is ahead of now.

    Attributes
    ----------
    epochs
        Statistical epochs done, with the part done of the present one.
    losses
        The loss after each complete epoch, in a unit of its own.
    steps_per_epoch
        Optimiser steps of the last complete epoch at the batch size its user asked for; before there is one, the
        examples of an epoch over that.
    step_time
        Time of an optimiser step on the GPUs it holds, as it is now [s]; None while it does not train.
    last_drop
        What its user said when submitting it: training is complete once the loss falls by less in an epoch.
    """

    epochs: float
    losses: tuple[float, ...]
    steps_per_epoch: float
    step_time: float | None
    last_drop: float


class JobView(Protocol):
    """One job that is submitted and has not ended, as a policy sees it.

    It is a window on the run: it costs nothing until it is looked at, shows the present whenever the policy is asked,
    and raises `ViewClosedError` at any other time. It is read-only: assigning to it raises `AttributeError`.
    `JobSnapshot` is the same as a value.

    Attributes
    ----------
    job_id
        Its name.
    submit_time
        When it was submitted [s].
    num_replicas, batch_size
        GPUs and total batch size its user asked for [1; examples].
    application
        What it trains, by name; all jobs of an application do alike work.
    job_name
        Name that its user gives to like jobs, or the application that a log states; not unique. None if unknown.
    user, queue
        Who pays, and the queue (virtual cluster, partition, tenant) it was submitted to; None if not said.
    priority
        Larger goes first, for policies that look at it; 0 if not said.
    qos
        Quality of service or priority class, by name; None if unknown.
    deadline
        When it should be complete [s since the start of the workload]; None if not said.
    time_limit
        Time of running that its user promised not to exceed [s]; None if not said.
    gpu_types
        Types of GPUs it can use, by name; empty for any.
    stages
        What a step of it takes on which resource; None if not known.
    host
        CPUs and memory that its user asks for, for each GPU; None if not said.
    sensitivity
        How fast it is by CPUs and memory, as users profile what they submit; None if not known.
    min_replicas
        Least GPUs its user lets it run on; None if not said.
    plan
        How it changes its batch size by itself; None for one that does not.
    placement
        The GPUs it holds, empty if none.
    attained_service
        Time held × GPUs so far [GPU s].
    num_restarts
        Re-allocations since its first start.
    max_replicas
        Most GPUs it should be given now, by what its agent has seen and its user allows.
    goodput
        What its agent has learnt of its goodput; None before the first fit, and for jobs that do not adapt. Of several
        GPU types, it is that of the type it ran on last.
    goodputs
        The same by the types of the cluster that it can use: of one that it never ran on, by what it learnt on others
        and the ratio of its speeds on one GPU; None before it ran on any.
    speeds
        How fast it is as its user submitted it, by the types of the cluster that it can use [optimiser steps/s].
    trained
        Work done, as its agent counts it [M0-equivalent examples].
    report
        What it has logged so far; None where nobody knows its losses.
    mixes_types
        Whether it can have GPUs of several of these types at once, as its agent divides its batch among them.
    may_grow
        Whether its user says up to how many GPUs it may have beyond those asked for: as many as `max_replicas`.
    oracle
        The truth, for policies that say openly that they use it.
    """

    @property
    def job_id(self) -> JobId: ...
    @property
    def submit_time(self) -> float: ...
    @property
    def num_replicas(self) -> int: ...
    @property
    def batch_size(self) -> int: ...
    @property
    def application(self) -> str: ...
    @property
    def job_name(self) -> str | None: ...
    @property
    def user(self) -> str | None: ...
    @property
    def queue(self) -> str | None: ...
    @property
    def priority(self) -> float: ...
    @property
    def qos(self) -> str | None: ...
    @property
    def deadline(self) -> float | None: ...
    @property
    def time_limit(self) -> float | None: ...
    @property
    def gpu_types(self) -> tuple[str, ...]: ...
    @property
    def min_replicas(self) -> int | None: ...
    @property
    def plan(self) -> BatchPlan | None: ...
    @property
    def stages(self) -> Stages | None: ...
    @property
    def host(self) -> Host | None: ...
    @property
    def sensitivity(self) -> Sensitivity | None: ...
    @property
    def placement(self) -> Placement: ...
    @property
    def attained_service(self) -> float: ...
    @property
    def num_restarts(self) -> int: ...
    @property
    def max_replicas(self) -> int: ...
    @property
    def goodput(self) -> GoodputModel | None: ...
    @property
    def goodputs(self) -> Mapping[str, Goodput | None]: ...
    @property
    def speeds(self) -> Mapping[str, float]: ...
    @property
    def trained(self) -> float: ...
    @property
    def report(self) -> Report | None: ...
    @property
    def mixes_types(self) -> bool: ...
    @property
    def may_grow(self) -> bool: ...
    @property
    def oracle(self) -> Oracle: ...


class JobSnapshot(NamedTuple):
    """What a `JobView` shows, as a value: for what a policy keeps, and for views made by hand."""

    job_id: JobId
    submit_time: float
    num_replicas: int
    batch_size: int
    placement: Placement
    attained_service: float
    num_restarts: int
    max_replicas: int
    goodput: GoodputModel | None
    oracle: Oracle
    user: str | None = None
    queue: str | None = None
    priority: float = 0.0
    deadline: float | None = None
    time_limit: float | None = None
    gpu_types: tuple[str, ...] = ()
    min_replicas: int | None = None
    goodputs: Mapping[str, Goodput | None] = MappingProxyType({})
    speeds: Mapping[str, float] = MappingProxyType({})
    plan: BatchPlan | None = None
    stages: Stages | None = None
    application: str = ""
    report: Report | None = None
    mixes_types: bool = False
    may_grow: bool = False
    host: Host | None = None
    sensitivity: Sensitivity | None = None
    trained: float = 0.0
    job_name: str | None = None
    qos: str | None = None

    @classmethod
    def of(cls, job: JobView) -> JobSnapshot:
        """Return what a view shows now."""
        return cls(*(getattr(job, name) for name in cls._fields))
