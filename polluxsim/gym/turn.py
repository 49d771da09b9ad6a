"""One decision in the making: an agent picks one waiting job after the other, while time stands still."""

from __future__ import annotations

from itertools import islice
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from polluxsim.models.batch_size import split_batch_size
from polluxsim.models.profile import ProfileRangeError
from polluxsim.policies.elastic import counts_of
from polluxsim.policies.packing import FreeGpus, remove
from polluxsim.policies.view import Change, Decision
from polluxsim.types import packed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from polluxsim.gym.layout import Layout, Observation
    from polluxsim.policies.view import ClusterView, JobView
    from polluxsim.types import JobId, Placement

NEWS = Change.ARRIVAL | Change.COMPLETION | Change.NODES


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
        return bool(changes.arrived or changes.ended or changes.nodes or changes.evicted)

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
        return Decision(self._picked, others_keep=True, valid_until=until, outdated_by=NEWS)

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
