"""The seam between engine and agents, and the agent of a job that keeps its user's batch size."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

from polluxsim.hardware.gpu_types import ANY
from polluxsim.hardware.placements import BatchChoice
from polluxsim.models.batch_size import split_batch_size

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from polluxsim.hardware.placements import Crew, DividedBatch
    from polluxsim.models.efficiency import GradientStatistics
    from polluxsim.models.goodput import Goodput, GoodputModel
    from polluxsim.models.known_duration import BatchPlan
    from polluxsim.models.profile import Application, StepTime

    # From a job's GPUs of several types at once, and its epoch.
    Divide = Callable[[Crew, int], DividedBatch]


class Workers(NamedTuple):
    """The GPUs of one type, of a job that has several at once."""

    gpu_type: str
    gpus: int
    examples: int  # on each of them in a pass
    time: float  # of a pass, if the others were no slower [s]


class Observation(NamedTuple):
    """What an agent sees of its running job."""

    # Where the job runs.
    num_nodes: int
    num_replicas: int
    atomic_batch_size: int  # examples per GPU and pass
    step_time: StepTime  # measured times of a pass [s]
    statistics: GradientStatistics  # measured now
    gpu_type: str = ANY.name
    epoch: int = 0  # from 0
    workers: tuple[Workers, ...] = ()  # the GPUs of each type, where it has several at once


class Agent(Protocol):
    """Runs beside one job."""

    @property
    def learns(self) -> bool:
        """Return whether observations can change what it says; if not, nothing is asked of it between placements."""

    @property
    def plans(self) -> bool:
        """Return whether it may choose another batch size in another epoch, though it learns nothing."""

    @property
    def max_replicas(self) -> int:
        """Return the most GPUs the job may be given now."""

    @property
    def goodput(self) -> GoodputModel | None:
        """Return what has been learnt, None before the first fit or where nothing is."""

    @property
    def divide(self) -> Divide | None:
        """Return what divides a batch among GPUs of several types; None where a job has those of one at a time."""

    def goodput_on(self, gpu_type: str) -> Goodput | None:
        """Return what has been learnt of a GPU type, or can be said of it by what was learnt of others."""

    def observe(self, observation: Observation) -> None:
        """Take note of how the job runs."""

    def choose(self, num_nodes: int, num_replicas: int, gpu_type: str = ANY.name, epoch: int = 0) -> BatchChoice:
        """Return the batch size for a placement on so many nodes and GPUs of a type, in an epoch."""


class FixedBatchAgent:
    """Keeps the total batch size its user asked for [examples] and learns nothing.

    Limits of the atomic batch size are the application's, or on each type of GPU, by name, others where they differ.
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
        """Return None: its workers have equal parts, which is for GPUs of one type."""
        return None

    def goodput_on(self, gpu_type: str) -> None:
        """Return nothing: nothing is learnt."""

    def observe(self, observation: Observation) -> None:
        """Ignore the observation: nothing is learnt."""

    def choose(self, num_nodes: int, num_replicas: int, gpu_type: str = ANY.name, epoch: int = 0) -> BatchChoice:
        """Split the batch over the GPUs."""
        return split_batch_size(self._by_type.get(gpu_type, self.application), self.batch_size, num_replicas)

    def __deepcopy__(self, memo: dict[int, object]) -> FixedBatchAgent:
        return self  # it never changes


class PlanningAgent(FixedBatchAgent):
    """Chooses the batch size of each epoch, a stretch of what its job planned, and learns nothing."""

    plans = True

    def __init__(self, application: Application, batch_size: int, plan: BatchPlan) -> None:
        super().__init__(application, batch_size)
        self._plan = plan

    def choose(self, num_nodes: int, num_replicas: int, gpu_type: str = ANY.name, epoch: int = 0) -> BatchChoice:
        """Return the batch size of the epoch, in one pass; where it does not fit, the last before it that does."""
        sizes = [size for size, _ in self._plan.stretches[epoch::-1]]
        fitting = (size for size in sizes if (gpu_type, size) in self._plan.speeds)
        return BatchChoice(next(fitting, sizes[0]), 0)
