"""What an agent sees and may do at a scheduling round, and an agent as a policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np

from polluxsim.common.durations import HOUR
from polluxsim.common.errors import InvalidConfigError, short
from polluxsim.hardware.placements import num_replicas, packed
from polluxsim.models.batch_size import split_batch_size
from polluxsim.models.profile import ProfileRangeError
from polluxsim.policies.contract.view import Change, Decision
from polluxsim.policies.tools.free_gpus import FreeGpus, remove
from polluxsim.policies.tools.gpu_counts import counts_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from polluxsim.hardware.placements import JobId, Placement
    from polluxsim.policies.contract.view import ClusterView, JobView

Observation: TypeAlias = "dict[str, NDArray[np.float32]]"

QUEUE = ("present", "gpus_asked", "most_gpus", "batch_size", "waited", "time_limit", "to_deadline", "time_left")
RUNNING = ("present", "gpus", "time_held", "time_limit", "time_left")
CLUSTER = ("free", "free_on_one_node", "waiting", "running", "gpus_wanted", "nodes_down")

USUAL_BATCH = 1024
"""The batch size that is seen as ½ [examples]."""

AS_ASKED = 0
"""Stands for the GPUs that a job's user asked for."""


@dataclass(frozen=True)
class Layout:
    """How many jobs an agent sees, and between which numbers of GPUs it chooses.

    An observation has three arrays of float32, every number in [0, 1]; rows without a job are 0. A time t [s] is seen
    as t / (t + 1 h), a number n of jobs as n / (n + rows), so that nothing is cut off.

    - `queue`, shape (`queue`, 8), the first waiting jobs in order of submission: present (1); GPUs asked for, and most
      it can use (of all GPUs); batch size b asked for, b / (b + 1024); time since submission; time limit, and time to
      the deadline (0 if its user said none, or it is past); time left on the GPUs asked for (0 unless `oracle`).
    - `running`, shape (`running`, 5), the first jobs that hold GPUs in order of submission: present (1); GPUs it holds
      (of all GPUs); GPU time it had over those GPUs; time limit; time left on the GPUs asked for (0 unless `oracle`).
    - `cluster`, shape (6,): free GPUs (of all GPUs); most free on one node (of the largest node); waiting and running
      jobs; GPUs w that waiting jobs ask for, w / (w + all GPUs); nodes that are down (of all nodes).

    Actions are whole numbers: 0 lets time go on; 1 + i · len(`gpus`) + k gives row i of the queue `gpus[k]` GPUs on the
    emptiest nodes.

    Parameters
    ----------
    queue, running
        Rows for waiting and for running jobs.
    gpus
        Numbers of GPUs to choose from, rising; 0 stands for as many as its user asked for, which are the only ones
        allowed on a cluster of several GPU types.
    oracle
        Whether it sees how long jobs still take, which no real scheduler knows.
    """

    queue: int = 16
    running: int = 16
    gpus: Sequence[int] = (AS_ASKED,)
    oracle: bool = False

    def __post_init__(self) -> None:
        for name in ("queue", "running"):
            if not _is_whole(rows := getattr(self, name)) or not 1 <= rows <= 10_000:
                raise InvalidConfigError(f"{name} is {short(rows)}, allowed is a whole number from 1 to 10000")
        numbers = self.gpus if isinstance(self.gpus, Sequence) else ()
        if not numbers or not all(map(_is_whole, numbers)) or sorted({*numbers}) != [*numbers] or numbers[0] < 0:
            raise InvalidConfigError(f"gpus is {short(self.gpus)}, allowed are rising whole numbers ≥ 0")
        if not isinstance(self.oracle, bool):
            raise InvalidConfigError(f"oracle is {short(self.oracle)}, allowed is True or False")
        object.__setattr__(self, "gpus", tuple(numbers))

    @property
    def num_actions(self) -> int:
        """Return the number of actions."""
        return 1 + self.queue * len(self.gpus)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of an observation's arrays."""
        return {"queue": (self.queue, len(QUEUE)), "running": (self.running, len(RUNNING)), "cluster": (len(CLUSTER),)}

    def waiting_row(self, view: ClusterView, job: JobView, num_gpus: int) -> tuple[float, ...]:
        """Return what is seen of a job that waits."""
        asked, deadline = job.num_replicas, job.deadline
        return (
            1.0,
            min(asked / num_gpus, 1.0),
            min(job.max_replicas / num_gpus, 1.0),
            job.batch_size / (job.batch_size + USUAL_BATCH),
            _seen(view.time - job.submit_time),
            _seen(job.time_limit or 0.0),
            0.0 if deadline is None else _seen(max(deadline - view.time, 0.0)),
            self._time_left(view, job),
        )

    def running_row(self, view: ClusterView, job: JobView, num_gpus: int) -> tuple[float, ...]:
        """Return what is seen of a job that holds GPUs."""
        gpus = num_replicas(job.placement)
        held, limit = job.attained_service / gpus, job.time_limit or 0.0
        return 1.0, gpus / num_gpus, _seen(held), _seen(limit), self._time_left(view, job)

    def _time_left(self, view: ClusterView, job: JobView) -> float:
        return _seen(time_left(view, job)) if self.oracle else 0.0


def time_left(view: ClusterView, job: JobView) -> float:
    """Return the true time to completion of a job on the GPUs that its user asked for, close together [s]."""
    shape = packed(job.num_replicas, max(view.gpus_per_node))
    return job.oracle.remaining_time(shape, job.oracle.batch_choice)


def _seen(time: float) -> float:
    """Return a time [s] as an agent sees it, ½ for an hour."""
    return time / (time + HOUR)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


class Turn:
    """What an agent sees and may pick at one scheduling round."""

    def __init__(self, layout: Layout, view: ClusterView) -> None:
        self.view = view
        self._layout = layout
        self._num_gpus = view.num_gpus
        self._free: Sequence[int] = view.free
        self._num_waiting = len(view.waiting)
        self._wanted = view.demand - sum(job.num_replicas for job in view.running)
        self._picked: dict[JobId, Placement] = {}
        self._coming = iter(view.waiting)
        self._queue = list(islice(self._coming, layout.queue))
        self._rows: dict[JobId, tuple[float, ...]] = {}
        self._choices = self._allowed()

    @property
    def is_news(self) -> bool:
        """Return whether something happened that ends a decision."""
        changes = self.view.changes
        return bool(changes.jobs_or_nodes or changes.evicted)

    @property
    def can_pick(self) -> bool:
        """Return whether there is a job in the queue's window that could start."""
        return any(self._choices)

    @property
    def mask(self) -> NDArray[np.int8]:
        """Return which actions are allowed, 1 or 0; 0 is not where nobody runs and somebody could start."""
        mask = np.zeros(self._layout.num_actions, np.int8)
        mask[0] = self._somebody_runs or not self.can_pick
        mask[1 : 1 + len(self._choices)] = [gpus > 0 for gpus in self._choices]
        return mask

    @property
    def observation(self) -> Observation:
        """Return what the agent sees."""
        seen = {name: np.zeros(shape, np.float32) for name, shape in self._layout.shapes.items()}
        if self._queue:
            seen["queue"][: len(self._queue)] = [self._row(self._layout.waiting_row, job) for job in self._queue]
        if running := list(islice(self.view.running, self._layout.running)):
            seen["running"][: len(running)] = [self._row(self._layout.running_row, job) for job in running]
        seen["cluster"][:] = self._cluster()
        return seen

    def pick(self, action: int) -> bool:
        """Start a job; return whether that was done: what is not allowed lets time go on, as 0 does."""
        if not 1 <= action <= len(self._choices) or not (gpus := self._choices[action - 1]):
            return False
        job = self._queue.pop((action - 1) // len(self._layout.gpus))
        self._picked[job.job_id] = placement = self._place(job, gpus)
        self._free = remove(self._free, placement)
        self._num_waiting -= 1
        self._wanted -= job.num_replicas
        self._queue.extend(islice(self._coming, 1))
        self._choices = self._allowed()
        return True

    def decision(self) -> Decision:
        """Return the decision: who was picked starts, others keep their GPUs; it stands until something happens."""
        until = inf if self._somebody_runs or not self._num_waiting else -inf
        return Decision(self._picked, others_keep=True, valid_until=until, outdated_by=Change.JOBS_OR_NODES)

    @property
    def _somebody_runs(self) -> bool:
        return bool(self._picked) or len(self.view.running) > 0

    def _row(self, seen_of: Callable[[ClusterView, JobView, int], tuple[float, ...]], job: JobView) -> Sequence[float]:
        """Return what is seen of a job, worked out once."""
        if (row := self._rows.get(job.job_id)) is None:
            row = self._rows[job.job_id] = seen_of(self.view, job, self._num_gpus)
        return row

    def _allowed(self) -> list[int]:
        """Return the GPUs that each action but 0 gives, 0 where it is not allowed."""
        free, sizes = sum(self._free), self._layout.gpus
        return [self._count(job, gpus, free) for job in self._queue for gpus in sizes] if free else []

    def _count(self, job: JobView, gpus: int, free: int) -> int:
        """Return how many GPUs a choice means for a job, 0 where they are not free or it cannot run on them."""
        wanted, several = gpus or job.num_replicas, len(self.view.types) > 1
        if wanted > free or (several and not (wanted == job.num_replicas and self._place(job, wanted))):
            return 0
        return wanted if wanted == job.num_replicas or self._runs_on(job, wanted) else 0

    def _runs_on(self, job: JobView, gpus: int) -> bool:
        if gpus not in counts_of(job, self._num_gpus):
            return False
        try:
            choice = split_batch_size(job.oracle.application, job.batch_size, gpus)
            job.oracle.optimiser_step_time(packed(gpus, max(self.view.gpus_per_node)), choice)
        except ProfileRangeError:
            return False
        return True

    def _place(self, job: JobView, gpus: int) -> Placement:
        """Return free GPUs for a job, of the fastest type that has them; none if none has."""
        free, types = FreeGpus(self._free), self.view.types
        if len(types) == 1:
            return free.pack(gpus) or ()
        fastest = sorted(job.speeds, key=job.speeds.__getitem__, reverse=True)
        found = (free.pack(gpus, self.view.nodes_of(name)) for name in fastest)
        return next((placement for placement in found if placement), ())

    def _cluster(self) -> tuple[float, ...]:
        view, free, layout = self.view, sum(self._free), self._layout
        num_running = len(view.running) + len(self._picked)
        return (
            free / self._num_gpus,
            max(self._free) / max(view.gpus_per_node),
            self._num_waiting / (self._num_waiting + layout.queue),
            num_running / (num_running + layout.running),
            self._wanted / (self._wanted + self._num_gpus),
            len(view.health.down) / len(view.gpus_per_node),
        )


class Agent(Protocol):
    """Chooses an action."""

    def __call__(self, observation: Observation, mask: NDArray[np.int8]) -> int:
        """Return one of the actions that the mask allows, by what is seen."""


@dataclass(frozen=True)
class AgentPolicy:
    """Starts the jobs that an agent picks, for `simulate`, `sweep` and `compare`."""

    agent: Agent
    layout: Layout = field(default_factory=Layout)

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Let the agent pick until it stops, or nothing is left that could start; it is asked when there is news."""
        turn = Turn(self.layout, view)
        is_due = turn.is_news or not view.running
        while is_due and turn.can_pick and turn.pick(self.agent(turn.observation, turn.mask)):
            pass
        return turn.decision()
