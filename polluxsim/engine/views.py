"""The read-only views of jobs that a policy gets. The views are open until the policy has decided."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NoReturn

from polluxsim.common.errors import ViewClosedError
from polluxsim.engine.job import ActiveJob
from polluxsim.engine.scenario import Scenario
from polluxsim.engine.sharing import Tenant, tenant_of
from polluxsim.engine.truth import GroundTruth
from polluxsim.hardware.gpu_types import ANY, NodeTypes
from polluxsim.hardware.placements import BatchChoice, Placement, packed
from polluxsim.models.batch_size import BatchLimits, split_batch_size
from polluxsim.models.profile import Application, sensitivity_of
from polluxsim.models.sensitivity import Sensitivity
from polluxsim.policies.contract.view import HEALTHY, Health, JobView, Report, largest_node

if TYPE_CHECKING:
    from polluxsim.models.goodput import Goodput, GoodputModel


REMEDIES = {
    "batch_size": "return a Decision with batch_sizes={job.job_id: BatchSize(total=64)}, or choose agent=NAME",
    "num_replicas": "the user requests this number, and the policy returns GPUs, like {job.job_id: ((0, 2),)}",
    "placement": "return the GPUs of the job, like {job.job_id: ((0, 2),)} for 2 GPUs of node 0",
}
"""Advice to a policy that assigns an attribute of a job."""


class ReadOnly:
    """Base class of views. Assigning to an attribute raises an `AttributeError`.

    The engine sets attributes of views by `set_field`. Reading an attribute is as fast as without this class.
    """

    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> NoReturn:
        remedy = REMEDIES.get(name, "keep values of your own in the policy, by job.job_id")
        raise AttributeError(f"a view is read-only, {name} cannot be assigned; {remedy}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a view is read-only, {name} cannot be deleted; leave it")


set_field = object.__setattr__  # set an attribute of a view, for the engine itself


class ViewValidity:
    """Whether the views of a run are open, and the time [s], the scenario and the nodes that they show."""

    __slots__ = ("_gpus_per_node", "_health", "_node_sizes", "is_open", "scenario", "time")

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.time = 0.0
        self.is_open = False
        self._gpus_per_node: Sequence[int] = ()
        self._health = HEALTHY
        self._node_sizes: dict[str | None, int] = {}

    def open(self, time: float, gpus_per_node: Sequence[int], health: Health) -> None:
        """Open the views, and set the time [s] and the nodes that they show."""
        self.time = time
        self.is_open = True
        if gpus_per_node != self._gpus_per_node or health != self._health:
            self._gpus_per_node = gpus_per_node
            self._health = health
            self._node_sizes = {}

    def node_size(self, gpu_type: str | None) -> int:
        """Return the GPUs of the largest node of a type that is up, or down if none is; with None, of any type."""
        if gpu_type not in self._node_sizes:
            gpus = self._gpus_per_node
            health = self._health
            types = self.scenario.cluster.node_types
            if gpu_type is not None and types:
                gpus = [gpus[node] for node in types.nodes[gpu_type] if node < len(gpus)]
                health = health.of(types.nodes[gpu_type])
            self._node_sizes[gpu_type] = largest_node(gpus, health)
        return self._node_sizes[gpu_type]

    def check(self) -> None:
        """Raise a `ViewClosedError` if the policy has already decided."""
        if not self.is_open:
            problem = "a view is closed after the decision that it was for"
            raise ViewClosedError(f"{problem}: to keep values of a job, copy it by JobSnapshot.of(job)")


class OracleWindow(ReadOnly):
    """An `Oracle` of one job, on one GPU type: values that no scheduler of a real cluster knows."""

    __slots__ = ("_active", "_gpu_type", "_truth", "_validity", "application")

    _active: ActiveJob
    _gpu_type: str | None
    _validity: ViewValidity
    _truth: GroundTruth
    application: Application

    def __init__(self, active: ActiveJob, validity: ViewValidity, gpu_type: str | None = None) -> None:
        truth = active.truth if gpu_type is None else active.truth.for_gpu_type(gpu_type)
        set_field(self, "_active", active)
        set_field(self, "_validity", validity)
        set_field(self, "_gpu_type", gpu_type)
        set_field(self, "_truth", truth)
        set_field(self, "application", truth.application)

    def __deepcopy__(self, memo: dict[int, Any]) -> OracleWindow:
        return OracleWindow(deepcopy(self._active, memo), deepcopy(self._validity, memo), self._gpu_type)

    def on(self, gpu_type: str) -> OracleWindow:
        return OracleWindow(self._active, self._validity, gpu_type)

    @property
    def epoch(self) -> int:
        self._validity.check()
        return self._active.segment.epoch

    @property
    def batch_choice(self) -> BatchChoice:
        asked = self._active.job.num_replicas
        return self._active.agent.choose(1, asked, self._gpu_type or ANY.name, self.epoch)

    @property
    def progress(self) -> float:
        self._validity.check()
        return self._active.progress_at(self._validity.time)

    def time_left(self, gpus: int) -> float:
        """Return the true time to completion at the user's batch size on GPUs of as few nodes as possible [s]."""
        choice = split_batch_size(self.application, self._active.job.batch_size, gpus)
        shape = packed(gpus, self._validity.node_size(self._gpu_type))
        return self._truth.time_left(shape, choice, self.epoch, self.progress)

    def optimiser_step_time(
        self, gpus_by_node: tuple[int, ...], choice: BatchChoice, gpu_type: str | None = None
    ) -> float:
        return self._on(gpu_type).optimiser_step_time(gpus_by_node, choice)

    def remaining_iterations(self, batch_size: int) -> float:
        return self._truth.profile.remaining_iterations(batch_size, self.epoch)

    def remaining_time(self, gpus_by_node: tuple[int, ...], choice: BatchChoice, gpu_type: str | None = None) -> float:
        return self._on(gpu_type).time_left(gpus_by_node, choice, self.epoch, self.progress)

    def _on(self, gpu_type: str | None) -> GroundTruth:
        return self._truth if gpu_type is None else self._truth.for_gpu_type(gpu_type)


class JobWindow(ReadOnly, JobView):
    """The live view of one job. The view is made once, and reads its values from the job.

    It has only the name, the submission time, the GPUs and the batch size itself; `show_request` updates them.
    """

    __slots__ = ("_active", "_validity")

    _active: ActiveJob
    _validity: ViewValidity

    def __init__(self, active: ActiveJob, validity: ViewValidity, submit_time: float) -> None:
        set_field(self, "_active", active)
        set_field(self, "_validity", validity)
        set_field(self, "job_id", active.job.job_id)
        set_field(self, "submit_time", submit_time)
        set_field(self, "num_replicas", active.job.num_replicas)
        set_field(self, "batch_size", active.job.batch_size)

    def show_request(self) -> None:
        """Show the present request of the job, after a change."""
        set_field(self, "num_replicas", self._active.job.num_replicas)
        set_field(self, "batch_size", self._active.job.batch_size)
        set_field(self, "oracle", OracleWindow(self._active, self._validity))

    def __getattr__(self, name: str) -> OracleWindow:
        """Make the oracle when it is first read, because many policies read none. Python calls this only then."""
        if name != "oracle":
            raise AttributeError(f"a view of a job has no attribute {name!r}", name=name, obj=self)
        set_field(self, "oracle", oracle := OracleWindow(self._active, self._validity))
        return oracle

    def __repr__(self) -> str:
        return f"JobView({self.job_id!r})"

    def __deepcopy__(self, memo: dict[int, Any]) -> JobWindow:
        # The submission time is that of another job, if the job overtook that job.
        return JobWindow(deepcopy(self._active, memo), deepcopy(self._validity, memo), self.submit_time)

    def as_tenant(self, node: int, node_types: NodeTypes) -> Tenant:
        """Return the description of the job on GPUs of a node that a sharing model needs."""
        self._validity.check()
        gpus = tuple((node, number) for number in range(self.num_replicas))
        return tenant_of(self._active, gpus, node_types)

    @property
    def sensitivity(self) -> Sensitivity | None:
        job = self._active.job
        return job.sensitivity or (None if job.is_rigid else sensitivity_of(self._active.truth.profile))

    @property
    def placement(self) -> Placement:
        self._validity.check()
        return self._active.holding.placement

    @property
    def attained_service(self) -> float:
        self._validity.check()
        return self._active.holding.attained_service(self._validity.time)

    @property
    def num_restarts(self) -> int:
        self._validity.check()
        return self._active.holding.num_restarts

    @property
    def max_replicas(self) -> int:
        self._validity.check()
        return self._active.max_replicas

    @property
    def goodput(self) -> GoodputModel | None:
        self._validity.check()
        return self._active.agent.goodput

    @property
    def trained(self) -> float:
        return self.oracle.progress * self._active.truth.init_batch_size

    @property
    def report(self) -> Report | None:
        self._validity.check()
        active = self._active
        now = self._validity.time
        truth = active.truth
        epoch = active.segment.epoch
        speed = active.training_speed
        if not truth.losses:
            return None
        start = truth.epoch_ends[epoch - 1] if epoch else 0.0
        part = (active.progress_at(now) - start) / (truth.epoch_ends[epoch] - start)
        if epoch:
            steps = truth.steps_in(epoch - 1, active.job.batch_size)
        else:  # no epoch is complete, but the size of the data is known
            steps = truth.epoch_ends[0] * truth.init_batch_size / active.job.batch_size
        step_time = None
        if speed is not None and active.is_training(now):
            step_time = speed.step.optimiser_step(speed.choice.accumulation_steps) / (1 - active.slowdown)
        return Report(epoch + min(max(part, 0.0), 1.0), tuple(truth.losses[:epoch]), steps, step_time, truth.last_drop)

    @property
    def may_grow(self) -> bool:
        return self._active.job.max_replicas is not None or bool(self._active.job.speeds)

    @property
    def mixes_types(self) -> bool:
        return self._active.agent.divide is not None

    @property
    def speeds(self) -> Mapping[str, float]:
        return self._validity.scenario.speeds_of(self._active.job)

    @property
    def goodputs(self) -> Mapping[str, Goodput | None]:
        self._validity.check()
        return {name: self._active.agent.goodput_on(name) for name in self.speeds}

    @property
    def batch_limits(self) -> Mapping[str, BatchLimits]:
        active = self._active
        if active.job.is_rigid or active.truth.application.fixed_batch_size is not None:
            return {}
        return {name: BatchLimits.of(active.truth.for_gpu_type(name).application) for name in self.speeds}

    @property
    def gang_size(self) -> int | None:
        return self._active.truth.application.gang_size


REQUEST = (
    "application", "deadline", "gpu_types", "gpus_per_task", "host", "job_name", "min_replicas", "num_nodes", "plan",
    "priority", "qos", "queue", "stages", "time_limit", "user",
)  # fmt: skip
"""Attributes of a view that are those of the job's request."""

for _name in REQUEST:
    setattr(JobWindow, _name, property(attrgetter(f"_active.job.{_name}")))


class JobWindows(Sequence["JobView"]):
    """Views of a number of jobs, in order. A list of them is made when the first one is read by its index."""

    __slots__ = ("_list", "_size", "_validity", "_views")

    def __init__(self, validity: ViewValidity, size: int, views: Callable[[], Iterable[JobView]]) -> None:
        self._validity = validity
        self._size = size
        self._views = views
        self._list: list[JobView] | None = None

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[JobView]:
        self._validity.check()
        return iter(self._views())

    def __getitem__(self, index: Any) -> Any:
        self._validity.check()
        if self._list is None:
            self._list = list(self._views())
        return self._list[index]
