"""The seam between engine and agents, and the agent of a job that keeps its user's batch size."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

from polluxsim.models.batch_size import split_batch_size
from polluxsim.types import BatchChoice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polluxsim.models.efficiency import GradientStatistics
    from polluxsim.models.goodput import GoodputModel
    from polluxsim.models.profile import Application, StepTime


class Observation(NamedTuple):
    """What an agent sees of its running job.

    Attributes
    ----------
    num_nodes, num_replicas
        Where the job runs.
    atomic_batch_size
        Examples per GPU and pass.
    step_time
        Measured times of a pass [s].
    statistics
        Gradient statistics measured now.
    """

    num_nodes: int
    num_replicas: int
    atomic_batch_size: int
    step_time: StepTime
    statistics: GradientStatistics


class Agent(Protocol):
    """Runs beside one job."""

    @property
    def learns(self) -> bool:
        """Return whether observations can change what it says; if not, nothing is asked of it between placements."""
        ...

    @property
    def plans(self) -> bool:
        """Return whether it may choose another batch size in another epoch, though it learns nothing."""
        ...

    @property
    def max_replicas(self) -> int:
        """Return the most GPUs the job may be given now."""
        ...

    @property
    def goodput(self) -> GoodputModel | None:
        """Return what has been learnt, None before the first fit or where nothing is."""
        ...

    def observe(self, observation: Observation) -> None:
        """Take note of how the job runs."""
        ...

    def choose(self, num_nodes: int, num_replicas: int, epoch: int = 0) -> BatchChoice:
        """Return the batch size for a placement on so many nodes and GPUs, in an epoch."""
        ...


class FixedBatchAgent:
    """Keeps the total batch size its user asked for and learns nothing.

    Parameters
    ----------
    application
        Limits of the atomic batch size.
    batch_size
        Total batch size [examples].
    """

    learns: ClassVar[bool] = False
    plans: ClassVar[bool] = False
    goodput: ClassVar[None] = None

    def __init__(self, application: Application, batch_size: int) -> None:
        self.application = application
        self.batch_size = batch_size
        self.max_replicas = application.most_replicas(batch_size)

    def observe(self, observation: Observation) -> None:
        """Ignore the observation: nothing is learnt."""

    def choose(self, num_nodes: int, num_replicas: int, epoch: int = 0) -> BatchChoice:
        """Split the batch over the GPUs."""
        return split_batch_size(self.application, self.batch_size, num_replicas)

    def __deepcopy__(self, memo: dict[int, object]) -> FixedBatchAgent:
        return self  # it never changes


class PlanningAgent(FixedBatchAgent):
    """Chooses the batch size of each epoch as its job planned, and learns nothing.

    Parameters
    ----------
    application, batch_size
        As of `FixedBatchAgent`.
    sizes
        Batch size by epoch [examples on each GPU].
    """

    plans: ClassVar[bool] = True

    def __init__(self, application: Application, batch_size: int, sizes: Sequence[int]) -> None:
        super().__init__(application, batch_size)
        self._sizes = sizes

    def choose(self, num_nodes: int, num_replicas: int, epoch: int = 0) -> BatchChoice:
        """Return the batch size of the epoch, in one pass."""
        return BatchChoice(self._sizes[epoch], 0)
