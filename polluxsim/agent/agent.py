"""The protocol between engine and agents, and the agents with a fixed or planned batch size."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

from polluxsim.hardware.gpu_types import ANY
from polluxsim.hardware.placements import BatchChoice, Crew, DividedBatch
from polluxsim.models.batch_size import split_batch_size
from polluxsim.models.efficiency import GradientStatistics
from polluxsim.models.known_duration import BatchPlan
from polluxsim.models.profile import Application, StepTime

if TYPE_CHECKING:
    from polluxsim.models.goodput import Goodput, GoodputModel

Divide = Callable[[Crew, int], DividedBatch]
"""Function that divides the batch of an epoch, counted from 0, among the GPUs of several types."""


class Workers(NamedTuple):
    """The GPUs of one type in a job with several GPU types."""

    gpu_type: str
    gpus: int  # number of GPUs
    examples: int  # examples of one pass on each of these GPUs
    time: float  # time of one pass, without a wait for slower types [s]


class Observation(NamedTuple):
    """One observation of a running job by its agent."""

    num_nodes: int  # nodes of the job
    num_replicas: int  # GPUs of the job
    atomic_batch_size: int  # examples per GPU and pass
    step_time: StepTime  # measured times of a pass [s]
    statistics: GradientStatistics  # present values
    gpu_type: str = ANY.name
    epoch: int = 0  # present epoch, counted from 0
    workers: tuple[Workers, ...] = ()  # the GPUs of each type, if the job has several types


class Agent(Protocol):
    """Chooses the batch size of one job."""

    @property
    def learns(self) -> bool:
        """Return whether observations can change its choice.

        The choice of an agent that neither learns nor `plans` can change only when the job gets other GPUs.
        """

    @property
    def plans(self) -> bool:
        """Return whether its choice depends on the epoch."""

    @property
    def max_replicas(self) -> int:
        """Return the present maximum of GPUs for the job."""

    @property
    def goodput(self) -> GoodputModel | None:
        """Return the model of the job's goodput; None before there is one, and for agents that learn nothing."""

    @property
    def divide(self) -> Divide | None:
        """Return the function that divides a batch among GPU types, or None if the job uses one type at a time."""

    def goodput_on(self, gpu_type: str) -> Goodput | None:
        """Return the model of the goodput on a GPU type, fitted there or derived from another type, or None."""

    def observe(self, observation: Observation) -> None:
        """Store an observation of the running job."""

    def choose(self, num_nodes: int, num_replicas: int, gpu_type: str = ANY.name, epoch: int = 0) -> BatchChoice:
        """Return the batch size for a number of nodes and GPUs of a type, in an epoch."""


class FixedBatchAgent:
    """An agent that keeps the requested batch size [examples] and learns nothing.

    `by_type` has the application by GPU type, for types with other limits of the atomic batch size. Without an entry,
    `application` has the limits of the type.
    """

    learns = plans = False
    goodput: ClassVar[None] = None

    def __init__(
        self, application: Application, batch_size: int, by_type: Mapping[str, Application] | None = None
    ) -> None:
        self.application = application
        self._by_type = by_type or {}
        self.batch_size = batch_size
        self.max_replicas = application.most_replicas(batch_size)

    @property
    def divide(self) -> Divide | None:
        """Return None: all GPUs have equal parts, so the job needs GPUs of one type."""
        return None

    def goodput_on(self, gpu_type: str) -> None:
        """Return None, because this agent learns no model."""

    def observe(self, observation: Observation) -> None:
        """Ignore the observation."""

    def choose(self, num_nodes: int, num_replicas: int, gpu_type: str = ANY.name, epoch: int = 0) -> BatchChoice:
        """Split the batch over the GPUs. Their parts are equal and rounded up, so the total can be slightly larger."""
        return split_batch_size(self._by_type.get(gpu_type, self.application), self.batch_size, num_replicas)

    def __deepcopy__(self, memo: dict[int, object]) -> FixedBatchAgent:
        return self  # it never changes


class PlanningAgent(FixedBatchAgent):
    """An agent that takes the batch size of each epoch from the plan of its job. An epoch is a stretch of the plan."""

    plans = True

    def __init__(self, application: Application, batch_size: int, plan: BatchPlan) -> None:
        super().__init__(application, batch_size)
        self._plan = plan

    def choose(self, num_nodes: int, num_replicas: int, gpu_type: str = ANY.name, epoch: int = 0) -> BatchChoice:
        """Return the batch size of the epoch, in one pass; if it does not fit, the last earlier size that fits.

        If no earlier size fits, return the batch size of the epoch.
        """
        sizes = [size for size, _ in self._plan.stretches[epoch::-1]]  # from this epoch back to the first
        # The plan has no speed for a size that does not fit.
        for size in sizes:
            if (gpu_type, size) in self._plan.speeds:
                return BatchChoice(size, 0)
        return BatchChoice(sizes[0], 0)
