"""Observations and actions of a learner at a scheduling round, and the policy made of a learned function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import inf
from typing import Annotated, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from polluxsim.common.durations import HOUR
from polluxsim.common.errors import InvalidConfigError, short
from polluxsim.common.values import Range
from polluxsim.common.written import takes_settings
from polluxsim.hardware.placements import JobId, Placement, num_replicas, packed
from polluxsim.models.batch_size import split_batch_size
from polluxsim.models.profile import ProfileRangeError
from polluxsim.policies.contract.policy import Policy
from polluxsim.policies.contract.view import Change, ClusterView, Decision, JobView
from polluxsim.policies.tools.free_gpus import FreeGpus, remove
from polluxsim.policies.tools.gpu_counts import counts_of

Observation: TypeAlias = "dict[str, NDArray[np.float32]]"

QUEUE = ("present", "gpus_asked", "most_gpus", "batch_size", "waited", "time_limit", "to_deadline", "time_left")
RUNNING = ("present", "gpus", "time_held", "time_limit", "time_left")
CLUSTER = ("free", "free_on_one_node", "waiting", "running", "gpus_wanted", "nodes_down")

USUAL_BATCH = 1024  # batch size that an observation shows as ½ [examples]
ROWS = Range(least=1, most=10_000)
AS_REQUESTED = 0  # stands for the number of GPUs that the user of a job requests


@takes_settings("{}")
@dataclass(frozen=True)
class Layout:
    """Number of jobs in an observation, and the numbers of GPUs that actions give to a job.

    An observation has three float32 arrays with values in [0, 1]. Rows without a job are 0. A time t [s] is scaled to
    t / (t + 1 h), and a number n of jobs to n / (n + rows).

    - `queue`, shape (`queue`, 8), the first waiting jobs in order of submission: present (1); requested GPUs, and most
      GPUs that the job can use (of all GPUs); requested batch size b as b / (b + 1024); time since submission; time
      limit, and time to the deadline (0 without one, or after it); time left on the requested GPUs (0 unless `oracle`).
    - `running`, shape (`running`, 5), the first running jobs in order of submission: present (1); GPUs of the job (of
      all GPUs); its GPU time divided by these GPUs; time limit; time left on the requested GPUs (0 unless `oracle`).
    - `cluster`, shape (6,): free GPUs (of all GPUs); most free GPUs of a node (of the largest node); waiting and
      running jobs; GPUs w that waiting jobs request, as w / (w + all GPUs); nodes that are down (of all nodes).

    Actions are whole numbers. Action 0 lets time pass. Action 1 + i · len(`gpus`) + k gives row i of the queue
    `gpus[k]` GPUs on the emptiest nodes.

    Parameters
    ----------
    queue, running
        Numbers of rows for waiting and for running jobs.
    gpus
        Numbers of GPUs to choose from, rising. 0 means the requested number. On a cluster with several GPU
        types, only the requested number is valid.
    oracle
        Whether observations include the remaining times of jobs. Real schedulers do not know it.
    """

    queue: Annotated[int, ROWS] = 16
    running: Annotated[int, ROWS] = 16
    gpus: Sequence[int] = (AS_REQUESTED,)
    oracle: bool = False

    def __post_init__(self) -> None:
        numbers: list[int] = []
        if isinstance(self.gpus, Sequence):
            numbers = list(self.gpus)
        # True is a whole number for Python.
        are_whole = all(isinstance(number, int) and not isinstance(number, bool) for number in numbers)
        if not numbers or not are_whole or sorted(set(numbers)) != numbers or numbers[0] < 0:
            raise InvalidConfigError(f"gpus is {short(self.gpus)}, must be rising whole numbers of at least 0")
        if not isinstance(self.oracle, bool):
            raise InvalidConfigError(f"oracle is {short(self.oracle)}, must be True or False")
        object.__setattr__(self, "gpus", tuple(numbers))  # the class is frozen, and a list could change

    @property
    def num_actions(self) -> int:
        """Return the number of actions, including action 0."""
        return 1 + self.queue * len(self.gpus)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of an observation's arrays."""
        return {
            "queue": (self.queue, len(QUEUE)),
            "running": (self.running, len(RUNNING)),
            "cluster": (len(CLUSTER),),
        }

    def waiting_row(self, view: ClusterView, job: JobView, num_gpus: int) -> tuple[float, ...]:
        """Return the row of a waiting job in an observation, shape (8,), on a cluster with `num_gpus` GPUs."""
        deadline = job.deadline
        return (
            1.0,
            min(job.num_replicas / num_gpus, 1.0),
            min(job.max_replicas / num_gpus, 1.0),
            job.batch_size / (job.batch_size + USUAL_BATCH),
            _scaled(view.time - job.submit_time),
            _scaled(job.time_limit or 0.0),
            0.0 if deadline is None else _scaled(max(deadline - view.time, 0.0)),
            self._time_left(view, job),
        )

    def running_row(self, view: ClusterView, job: JobView, num_gpus: int) -> tuple[float, ...]:
        """Return the row of a running job in an observation, shape (5,), on a cluster with `num_gpus` GPUs."""
        gpus = num_replicas(job.placement)
        mean_held_time = job.attained_service / gpus
        limit = job.time_limit or 0.0
        return 1.0, gpus / num_gpus, _scaled(mean_held_time), _scaled(limit), self._time_left(view, job)

    def _time_left(self, view: ClusterView, job: JobView) -> float:
        """Return the scaled time left on the requested GPUs, or 0 without the oracle."""
        if not self.oracle:
            return 0.0
        return _scaled(time_left(view, job))


def time_left(view: ClusterView, job: JobView) -> float:
    """Return the true time to completion of a job on the requested number of GPUs, on as few nodes as possible [s]."""
    shape = packed(job.num_replicas, max(view.gpus_per_node))
    return job.oracle.remaining_time(shape, job.oracle.batch_choice)


def _scaled(time: float) -> float:
    """Return a time [s] scaled to [0, 1); an hour is ½."""
    return time / (time + HOUR)


class LearnerTurn:
    """Observation and valid actions at one scheduling round, and the decision so far."""

    def __init__(self, layout: Layout, view: ClusterView) -> None:
        self.view = view
        self._layout = layout
        self._num_gpus = view.num_gpus
        self._free: Sequence[int] = view.free
        self._num_waiting = len(view.waiting)
        self._wanted = view.demand - sum(job.num_replicas for job in view.running)
        self._picked: dict[JobId, Placement] = {}
        self._coming = iter(view.waiting)  # of which the rows of the queue take the next job when one is picked
        self._queue = list(islice(self._coming, layout.queue))
        self._rows: dict[JobId, tuple[float, ...]] = {}
        self._choices = self._valid()

    @property
    def is_news(self) -> bool:
        """Return whether an event has happened that ends a decision, or a fork altered jobs."""
        changes = self.view.changes
        return bool(changes.jobs_or_nodes or changes.evicted)

    @property
    def can_pick(self) -> bool:
        """Return whether a job among the rows of the queue can start."""
        return any(self._choices)

    @property
    def mask(self) -> NDArray[np.int8]:
        """Return 1 for each valid action, shape (actions,).

        Letting time pass is invalid if no job runs or was picked, and the learner could start one.
        """
        mask = np.zeros(self._layout.num_actions, np.int8)
        mask[0] = self._has_running or not self.can_pick
        mask[1 : 1 + len(self._choices)] = [gpus > 0 for gpus in self._choices]
        return mask

    @property
    def observation(self) -> Observation:
        """Return the arrays that `Layout` describes."""
        arrays = {name: np.zeros(shape, np.float32) for name, shape in self._layout.shapes.items()}
        if self._queue:
            arrays["queue"][: len(self._queue)] = [self._row(self._layout.waiting_row, job) for job in self._queue]
        running = list(islice(self.view.running, self._layout.running))
        if running:
            arrays["running"][: len(running)] = [self._row(self._layout.running_row, job) for job in running]
        arrays["cluster"][:] = self._cluster()
        return arrays

    def pick(self, action: int) -> bool:
        """Start the job of an action; return False for an action that lets time pass, also an invalid one."""
        if not 1 <= action <= len(self._choices):
            return False
        gpus = self._choices[action - 1]
        if gpus == 0:
            return False
        job = self._queue.pop((action - 1) // len(self._layout.gpus))
        placement = self._place(job, gpus)
        self._picked[job.job_id] = placement
        self._free = remove(self._free, placement)
        self._num_waiting -= 1
        self._wanted -= job.num_replicas
        self._queue.extend(islice(self._coming, 1))
        # Fewer GPUs are free, and the rows stand for other jobs.
        self._choices = self._valid()
        return True

    def decision(self) -> Decision:
        """Return the decision: picked jobs start, and running jobs keep their GPUs.

        The decision is valid until an event; if jobs wait and none runs, until the next round.
        """
        until = inf
        # No event would come by itself, so that the run would stand still.
        if self._num_waiting and not self._has_running:
            until = -inf
        return Decision(self._picked, others_keep=True, valid_until=until, outdated_by=Change.JOBS_OR_NODES)

    @property
    def _has_running(self) -> bool:
        """Return whether a job runs, or will after the decision."""
        return bool(self._picked) or len(self.view.running) > 0

    def _row(self, row_of: Callable[[ClusterView, JobView, int], tuple[float, ...]], job: JobView) -> Sequence[float]:
        """Return the row of a job, computed once."""
        if job.job_id not in self._rows:
            self._rows[job.job_id] = row_of(self.view, job, self._num_gpus)
        return self._rows[job.job_id]

    def _valid(self) -> list[int]:
        """Return the GPUs that each action besides 0 gives; 0 for an invalid action."""
        num_free = sum(self._free)
        if num_free == 0:  # on a full cluster, which is common, no job needs to be looked at
            return []
        counts = []
        for job in self._queue:
            for gpus in self._layout.gpus:
                counts.append(self._count(job, gpus, num_free))
        return counts

    def _count(self, job: JobView, gpus: int, free: int) -> int:
        """Return the GPUs that a choice gives to a job; 0 if the GPUs are not free, or the job cannot run on them."""
        wanted = gpus or job.num_replicas
        is_requested = wanted == job.num_replicas
        if wanted > free:
            return 0
        # The free GPUs can be of several types, of which none has enough.
        if len(self.view.types) > 1 and not (is_requested and self._place(job, wanted)):
            return 0
        if not is_requested and not self._runs_on(job, wanted):
            return 0
        return wanted

    def _runs_on(self, job: JobView, gpus: int) -> bool:
        """Return whether a job can run on a number of GPUs at the user's batch size."""
        if gpus not in counts_of(job, self._num_gpus):
            return False
        try:
            choice = split_batch_size(job.oracle.application, job.batch_size, gpus)
            job.oracle.optimiser_step_time(packed(gpus, max(self.view.gpus_per_node)), choice)
        except ProfileRangeError:
            return False
        return True

    def _place(self, job: JobView, gpus: int) -> Placement:
        """Return free GPUs for a job, of the fastest type that has enough GPUs; none if no type has enough."""
        nodes_by_type: Mapping[str, Sequence[int]] = {}
        # On a cluster of one type, all nodes together are searched, which is faster.
        if len(self.view.types) > 1:
            nodes_by_type = self.view.node_types.nodes
        return FreeGpus(self._free, nodes_by_type=nodes_by_type).pack_job(job, gpus) or ()

    def _cluster(self) -> tuple[float, ...]:
        """Return the row of the cluster in an observation, shape (6,)."""
        view = self.view
        free = sum(self._free)
        layout = self._layout
        num_running = len(view.running) + len(self._picked)
        return (
            free / self._num_gpus,
            max(self._free) / max(view.gpus_per_node),
            self._num_waiting / (self._num_waiting + layout.queue),
            num_running / (num_running + layout.running),
            self._wanted / (self._wanted + self._num_gpus),
            len(view.health.down) / len(view.gpus_per_node),
        )


class LearnedFunction(Protocol):
    """Function that chooses actions, trained or not."""

    def __call__(self, observation: Observation, mask: NDArray[np.int8]) -> int:
        """Return an action that the mask marks as valid."""


@dataclass(frozen=True)
class AgentPolicy(Policy):
    """Policy that starts the jobs that a learned function chooses, for `simulate`, `sweep` and `compare`."""

    agent: LearnedFunction
    layout: Layout = field(default_factory=Layout)

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Call the learned function after an event, until it lets time pass or no job can start."""
        turn = LearnerTurn(self.layout, view)
        # As in the environment: without an event the learner is asked only while no job runs.
        is_due = turn.is_news or not view.running
        while is_due and turn.can_pick:
            action = self.agent(turn.observation, turn.mask)
            if not turn.pick(action):
                break
        return turn.decision()
