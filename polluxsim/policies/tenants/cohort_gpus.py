"""The GPUs of a cohort of queues: who holds what, what each queue may still get, and whether a job fits.

`CohortGpus` is the state that the moves of `polluxsim.policies.tenants.cohort.Cohort` change. A move removes jobs and
adds jobs (`_remove`, `_add`), which changes the GPUs of queues and nodes. All else that a move changes is for reasons.
`_copied` and `_restore` take whole sequences of moves back.

Invariants: `_free` is the number of GPUs that no job holds. `_used` counts the GPUs of each queue, and `_pool` the GPUs
that all queues together may still borrow. A job that comes back gets the GPUs that it held last, if they are free.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any

from polluxsim.hardware.placements import JobId, Placement
from polluxsim.policies.contract.view import ClusterView, JobView, ReasonKind
from polluxsim.policies.tenants.terms import NEVER, Need, Rules, Terms, held_gpus, jobs_within, need_of
from polluxsim.policies.tools.free_gpus import FreeGpus
from polluxsim.policies.tools.ledger import queue_of

# Attributes that moves change. Copies of them take moves back.
CHANGED = (
    "_free", "_nodes", "_placements", "_last_placements", "_pool", "_used", "_used_at", "_holding", "_waiting",
    "_reason_kinds", "_takers", "_num_reclaims",
)  # fmt: skip


class CohortGpus:
    """The GPUs of all queues during one decision.

    `terms` are the terms of queues by name, and `other` those of all other queues. `start_of` returns the time at which
    a running job got its GPUs [s].
    """

    def __init__(
        self,
        terms: Mapping[str, Terms],
        other: Terms,
        rules: Rules,
        view: ClusterView,
        start_of: Callable[[JobView], float],
    ) -> None:
        self._terms = terms
        self._other = other
        self._rules = rules
        self._view = view
        self._start_of = start_of
        # What stays during a decision. All jobs by priority, then submission, and the place of each job in this order.
        self._order = sorted(view.jobs, key=lambda job: -job.priority)
        self._place = {job.job_id: place for place, job in enumerate(self._order)}
        self._by_queue: dict[str, list[JobView]] = {}
        for job in self._order:
            self._by_queue.setdefault(queue_of(job), []).append(job)
        self._queues = sorted({*terms, *self._by_queue})
        self._need = {job.job_id: need_of(job, view) for job in view.jobs}
        self._ran_before = {job.job_id for job in view.running}
        self._priorities = {job.priority for job in view.jobs}
        # What moves change: `CHANGED` must have these attributes, but for `_within`.
        self._waiting = Counter(self._need[job.job_id] for job in view.waiting)  # number of waiting jobs of each need
        self._free = sum(view.free)
        # The free GPUs of each node. None if GPUs may be anywhere: then their number suffices until the end.
        self._nodes = None if view.shape_rule.anywhere else FreeGpus(view.free)
        self._placements = {job.job_id: job.placement for job in view.running}
        self._last_placements = dict(self._placements)  # also of jobs that lost their GPUs
        self._holding = {job.job_id: job for job in view.running}
        self._used = Counter[str]()  # GPUs of each queue
        self._used_at = Counter[tuple[str, float]]()  # GPUs of each queue for jobs of a priority
        for job in view.running:
            queue = queue_of(job)
            gpus = held_gpus(job)
            self._used[queue] += gpus
            self._used_at[queue, job.priority] += gpus
        self._within: dict[str, set[JobId]] = {}  # jobs within the quota of a queue, until its jobs change
        # GPUs that each queue may borrow and that no queue has borrowed. GPUs without an owner are among these GPUs.
        # After failures, the quotas can come to more than the GPUs that are up.
        owned_gpus = sum(terms_of_queue.quota for terms_of_queue in terms.values())
        self._pool = float(max(view.nominal_gpus, owned_gpus))
        for queue in self._queues:
            self._pool -= max(self._of(queue).reserved, self._used[queue])
        self._reason_kinds: dict[JobId, ReasonKind] = {}  # kinds of the reasons of started jobs
        self._takers: dict[JobId, JobView] = {}  # the job for which each preempted job lost its GPUs last
        self._num_reclaims = 0

    def _copied(self) -> dict[str, Any]:
        """Return a copy of the state that moves change. The jobs in it are not copied."""
        return {name: copy(getattr(self, name)) for name in CHANGED}

    def _restore(self, state: Mapping[str, Any]) -> None:
        """Take moves back: set the state to a copy, which must not be used again."""
        self._within.clear()  # it follows from the rest, and is computed again when needed
        for name, value in state.items():
            setattr(self, name, value)

    def _of(self, queue: str) -> Terms:
        return self._terms.get(queue, self._other)

    def _lower_gpus(self, need: Need) -> int:
        """Return the GPUs of the jobs of its own queue that a job with a need may preempt."""
        if self._rules.within_queue == NEVER:
            return 0
        return sum(self._used_at[need.queue, priority] for priority in self._priorities if priority < need.priority)

    def _share(self, queue: str, more: int = 0) -> float:
        """Return the GPUs of a queue beyond its quota, over its weight, if the queue gets `more` GPUs."""
        return self._of(queue).share(self._used[queue] + more)

    def _available(self, queue: str) -> float:
        """Return the GPUs that a queue may get, including the GPUs that it may borrow."""
        return self._of(queue).available(self._used[queue], self._pool)

    def _fits(self, job: JobView, *, borrowing: bool = True) -> bool:
        """Return whether a job fits now, with `borrowing` also beyond the quota of its queue."""
        queue = queue_of(job)
        gpus = held_gpus(job)
        if gpus > self._free or gpus > self._available(queue):
            return False
        if self._nodes is not None and not self._nodes.fits(self._need[job.job_id].shape):
            return False
        return borrowing or not self._share(queue, gpus)

    def _add(self, job: JobView) -> None:
        need = self._need[job.job_id]
        self._change(need, need.gpus)
        self._holding[job.job_id] = job
        if self._nodes is not None:
            self._placements[job.job_id] = self._placed(job, self._nodes)
        self._waiting[need] -= 1
        if not self._waiting[need]:
            del self._waiting[need]

    def _remove(self, job: JobView) -> None:
        need = self._need[job.job_id]
        self._change(need, -need.gpus)
        self._waiting[need] += 1
        del self._holding[job.job_id]
        if self._nodes is not None:
            placement = self._placements.pop(job.job_id)
            self._last_placements[job.job_id] = placement
            self._nodes.give_back(placement)

    def _placed(self, job: JobView, nodes: FreeGpus) -> Placement:
        """Take GPUs for a job, those that it held last if they are free, and return them."""
        last = self._last_placements.get(job.job_id, ())
        if last and nodes.has(last):
            nodes.take(last)
            return last
        return nodes.pack_shape(self._need[job.job_id].shape) or ()

    def _change(self, need: Need, gpus: int) -> None:
        """Give GPUs to the queue of a job with a need, or take them from it if the number is negative."""
        queue = need.queue
        self._within.pop(queue, None)
        self._used_at[queue, need.priority] += gpus
        reserved = self._of(queue).reserved
        before = max(self._used[queue] - reserved, 0)
        self._used[queue] += gpus
        self._free -= gpus
        self._pool -= max(self._used[queue] - reserved, 0) - before

    def _within_quota(self, queue: str) -> set[JobId]:
        """Return the jobs with GPUs within the quota of a queue."""
        if queue not in self._within:
            holders = [job for job in self._holding.values() if queue_of(job) == queue]
            holders.sort(key=lambda job: self._place[job.job_id])
            self._within[queue] = jobs_within(self._of(queue).quota, holders)
        return self._within[queue]

    def _put_back(self, removed: Sequence[JobView]) -> None:
        """Give removed jobs their GPUs back, the last removed job first, so that each finds its own GPUs free."""
        for victim in reversed(removed):
            self._add(victim)
