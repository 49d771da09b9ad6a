"""What an agent sees and may do: a window of the queue, the running jobs and the cluster, as numbers from 0 to 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from polluxsim.durations import HOUR
from polluxsim.errors import InvalidConfigError, short
from polluxsim.types import num_replicas, packed

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from polluxsim.policies.view import ClusterView, JobView

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
