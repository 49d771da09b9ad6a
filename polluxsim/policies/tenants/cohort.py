"""A cohort of queues with quotas: borrowing, lending, and the choice of jobs to preempt, as in Kueue."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from math import inf
from typing import NamedTuple

from polluxsim.hardware.placements import JobId, Placement, num_replicas
from polluxsim.policies.contract.view import ClusterView, JobView, Reason
from polluxsim.policies.tools.free_gpus import FreeGpus
from polluxsim.policies.tools.ledger import queue_of

ANY, LOWER_PRIORITY, NEVER = "any", "lower-priority", "never"  # jobs that may be preempted


class Terms(NamedTuple):
    """Terms of a queue in the cohort."""

    quota: int = 0  # GPUs that the queue owns
    borrowing_limit: float = inf  # most GPUs that the queue may hold beyond its quota
    lending_limit: float = inf  # most GPUs of the quota that other queues may borrow
    weight: float = 1.0  # for fair sharing

    @property
    def reserved(self) -> float:
        """Return the GPUs of the quota that other queues cannot borrow."""
        return max(self.quota - self.lending_limit, 0)


class Rules(NamedTuple):
    """Rules of preemption. The parameters of `Quotas` describe them."""

    within_queue: str = LOWER_PRIORITY
    reclaim: str = ANY
    fair_sharing: bool = False


def most_gpus(terms: Mapping[str, Terms], queue: str, num_gpus: int) -> float:
    """Return the most of `num_gpus` GPUs that a queue can hold if all other queues are idle."""
    mine = terms.get(queue, Terms())
    reserved = sum(each.reserved for name, each in terms.items() if name != queue)
    return min(mine.quota + mine.borrowing_limit, num_gpus - reserved)


def _gpus(job: JobView) -> int:
    """Return the GPUs of a running job, which differ from its request after a fork from an elastic policy."""
    return num_replicas(job.placement) or job.num_replicas


class Cohort:
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
        self._terms, self._other, self._rules, self._view = terms, other, rules, view
        self._start_of = start_of
        self._free = sum(view.free)
        self._holding = {job.job_id: job for job in view.running}
        # Lower bound of the priorities of the jobs with GPUs.
        self._lowest = min((job.priority for job in view.running), default=inf)
        self._used = Counter[str]()
        for job in view.running:
            self._used[queue_of(job)] += _gpus(job)
        # GPUs that each queue may borrow and that no queue has borrowed. GPUs without an owner are among these GPUs.
        self._pool = float(max(view.nominal_gpus, sum(each.quota for each in terms.values())))
        for queue in {*terms, *self._used}:
            self._pool -= max(self._of(queue).reserved, self._used[queue])
        self.started: dict[JobId, JobView] = {}  # waiting jobs that get GPUs
        self._kinds: dict[JobId, str] = {}  # kinds of the reasons of started jobs
        self.preempted: dict[JobId, JobView] = {}  # the job for which each preempted job loses its GPUs
        # Jobs for which no preemption makes room now, as (queue, GPUs, priority), and the number of changes so far that
        # may have made room for them.
        self._hopeless: set[tuple[str, int, float]] = set()
        self._num_chances = 0

    def admit(self, waiting: Sequence[JobView]) -> None:
        """Start waiting jobs, with preemption, until no further job can start."""
        if not waiting:
            return
        before = -1
        preempts = bool(self._rules.fair_sharing or self._terms) or (
            self._rules.within_queue != NEVER and any(job.priority > self._lowest for job in waiting)
        )
        while before < self._num_chances and (self._free or preempts):
            before = self._num_chances
            for job in self._in_turn([job for job in waiting if job.job_id not in self.started]):
                if not preempts and job.num_replicas > self._free:
                    continue
                if job.job_id not in self.preempted and (self._fits(job) or (preempts and self._preempt_for(job))):
                    self._start(job)
                    if not self._free and not preempts:
                        return

    def placements(self) -> dict[JobId, Placement]:
        """Return the changed placements: none for preempted jobs, the nodes with most free GPUs for started jobs."""
        view = self._view
        free, changed = FreeGpus(view.free), dict[JobId, Placement]()
        if self.preempted:
            changed = {job.job_id: () for job in view.running if job.job_id in self.preempted}
            in_use = view.sharing.in_use(job for job in view.running if job.job_id not in changed)
            free = FreeGpus([gpus - in_use[node] for node, gpus in enumerate(view.gpus_per_node)])
        for job in self.started.values():
            changed[job.job_id] = free.pack(job.num_replicas) or ()
        return changed

    def reasons(self, asked: Iterable[JobId]) -> dict[JobId, Reason]:
        """Return the reasons for jobs, with the use of their queues' quotas.

        Kinds: `within-quota` and `borrows` for started jobs; `runs-on`; `no-quota-left` for waiting jobs; `reclaimed`
        and `preempted`, with the job of another or of the same queue that takes the GPUs.
        """
        wanted = set(asked)
        return {job.job_id: self._reason(job) for job in self._view.jobs if job.job_id in wanted}

    def _reason(self, job: JobView) -> Reason:
        queue = queue_of(job)
        quota = self._of(queue).quota
        numbers = {
            "gpus_needed": job.num_replicas,
            "quota": quota,
            "queue_gpus": self._used[queue],
            "gpus_free": self._free,
            "gpus_available": self._available(queue),
        }
        if job.placement and (taker := self.preempted.get(job.job_id)) is not None:
            return Reason("preempted" if queue_of(taker) == queue else "reclaimed", numbers, (taker.job_id,))
        if job.job_id in self.started:
            return Reason(self._kinds[job.job_id], numbers)
        return Reason("runs-on" if job.placement else "no-quota-left", numbers)

    def _of(self, queue: str) -> Terms:
        return self._terms.get(queue, self._other)

    def _in_turn(self, waiting: Iterable[JobView]) -> Iterator[JobView]:
        """Yield waiting jobs. In a queue, the jobs are in order of priority, then submission.

        Among the first jobs of the queues, those within quotas come first; with fair sharing, the job whose queue
        would have the smallest share. Then jobs come in order of priority and submission.
        """
        queues: dict[str, deque[tuple[int, JobView]]] = {}
        for position, job in enumerate(sorted(waiting, key=lambda job: -job.priority)):
            queues.setdefault(queue_of(job), deque()).append((position, job))
        if len(queues) == 1:
            yield from (job for _, job in next(iter(queues.values())))
            return
        heads = [(self._rank(queue, jobs[0][1]), jobs[0][0], queue) for queue, jobs in queues.items()]
        heapify(heads)
        while heads:
            _, _, queue = heappop(heads)
            jobs = queues[queue]
            yield jobs.popleft()[1]
            if jobs:
                heappush(heads, (self._rank(queue, jobs[0][1]), jobs[0][0], queue))

    def _rank(self, queue: str, job: JobView) -> float:
        """Return the sort key of a queue whose next job this is."""
        share = self._share(queue, job.num_replicas)
        return share if self._rules.fair_sharing else float(share > 0)

    def _share(self, queue: str, more: int = 0) -> float:
        """Return the GPUs of a queue beyond its quota, over its weight, if the queue gets `more` GPUs."""
        terms = self._of(queue)
        return max(self._used[queue] + more - terms.quota, 0) / terms.weight

    def _available(self, queue: str) -> float:
        """Return the GPUs that a queue may get, including the GPUs that it may borrow."""
        terms, used = self._of(queue), self._used[queue]
        own = max(terms.reserved - used, 0)
        lent = terms.quota - terms.reserved  # part of its quota in the common pool
        from_pool = max(used - terms.reserved, 0)
        return own + min(lent - from_pool + terms.borrowing_limit, self._pool)

    def _fits(self, job: JobView, *, borrowing: bool = True) -> bool:
        """Return whether a job fits now, with `borrowing` also beyond the quota of its queue."""
        queue, gpus = queue_of(job), job.num_replicas
        if gpus > self._free or gpus > self._available(queue):
            return False
        return borrowing or not self._share(queue, gpus)

    def _add(self, job: JobView) -> None:
        self._change(queue_of(job), _gpus(job))
        self._holding[job.job_id] = job
        self._lowest = min(self._lowest, job.priority)

    def _remove(self, job: JobView) -> None:
        self._change(queue_of(job), -_gpus(job))
        del self._holding[job.job_id]

    def _change(self, queue: str, gpus: int) -> None:
        """Give GPUs to a queue, or take GPUs from it if the number is negative."""
        reserved = self._of(queue).reserved
        before = max(self._used[queue] - reserved, 0)
        self._used[queue] += gpus
        self._free -= gpus
        self._pool -= max(self._used[queue] - reserved, 0) - before

    def _start(self, job: JobView) -> None:
        self._add(job)
        self.started[job.job_id] = job
        self._kinds[job.job_id] = "borrows" if self._share(queue_of(job)) else "within-quota"
        if self._rules.fair_sharing:  # other queues may now have a smaller share
            self._give_chance()

    def _preempt_for(self, job: JobView) -> bool:
        """Preempt running jobs for a waiting job; return whether the job then fits."""
        queue = queue_of(job)
        if self._used[queue] >= self._of(queue).quota and not self._rules.fair_sharing and job.priority <= self._lowest:
            return False
        kind = queue, job.num_replicas, job.priority
        if kind in self._hopeless:
            return False
        victims = self._victims(job)
        if not victims:
            self._hopeless.add(kind)
            return False
        for victim in victims:
            self.preempted[victim.job_id] = job
            self.started.pop(victim.job_id, None)
        self._give_chance()
        return True

    def _give_chance(self) -> None:
        """Let all jobs try to preempt again."""
        self._num_chances += 1
        self._hopeless.clear()

    def _victims(self, job: JobView) -> list[JobView]:
        """Remove and return the jobs that Kueue would preempt for a job. Remove no job if the new job cannot fit."""
        queue = queue_of(job)
        own, others = self._candidates(job)
        if others and self._rules.fair_sharing:
            return self._fewest(job, self._by_fair_sharing(job, [*others, *own]), borrowing=True)
        victims: list[JobView] = []
        if others and self._used[queue] < self._of(queue).quota:
            victims = self._fewest(job, [*others, *own], borrowing=False)
        return victims or self._fewest(job, own, borrowing=True)

    def _candidates(self, job: JobView) -> tuple[list[JobView], list[JobView]]:
        """Return the jobs of the same queue and of other queues that may be preempted, in the order of preemption.

        The job with the lowest priority comes first; among equal priorities, the job that was admitted last.
        """
        rules, queue = self._rules, queue_of(job)
        own, others = [], []
        may_reclaim = rules.fair_sharing or self._used[queue] < self._of(queue).quota
        for victim in reversed(self._holding.values()):
            is_own = queue_of(victim) == queue
            rule = rules.within_queue if is_own else rules.reclaim
            if rule == NEVER or (rule == LOWER_PRIORITY and victim.priority >= job.priority):
                continue
            if is_own:
                own.append(victim)
            elif may_reclaim and self._share(queue_of(victim)) > 0:
                others.append(victim)

        def order(victim: JobView) -> tuple[float, float]:
            start = self._view.time if victim.job_id in self.started else self._start_of(victim)
            return victim.priority, -start

        return sorted(own, key=order), sorted(others, key=order)

    def _fewest(self, job: JobView, candidates: Iterable[JobView], *, borrowing: bool) -> list[JobView]:
        """Remove candidates in order until a job fits, then put back those whose removal is not needed."""
        removed: list[JobView] = []
        for victim in candidates:
            if queue_of(victim) != queue_of(job) and not self._share(queue_of(victim)):
                continue
            self._remove(victim)
            removed.append(victim)
            if self._fits(job, borrowing=borrowing):
                return self._filled_back(job, removed, borrowing=borrowing)
        for victim in reversed(removed):
            self._add(victim)
        return []

    def _filled_back(self, job: JobView, removed: Sequence[JobView], *, borrowing: bool) -> list[JobView]:
        """Put back each removed job whose removal is not needed; return the jobs that stay removed."""
        victims = [removed[-1]]  # without its removal the job did not fit
        for victim in reversed(removed[:-1]):
            self._add(victim)
            if not self._fits(job, borrowing=borrowing):
                self._remove(victim)
                victims.append(victim)
        return victims

    def _by_fair_sharing(self, job: JobView, candidates: Iterable[JobView]) -> Iterator[JobView]:
        """Yield candidates in the order of Kueue's fair sharing.

        The caller removes each job before it asks for the next.

        First come jobs whose queue keeps at least the share that the queue of the new job will have, then one job of
        each queue whose share now exceeds the share that the other will have.
        """
        queue = queue_of(job)
        queues: dict[str, list[JobView]] = {}
        for victim in candidates:
            queues.setdefault(queue_of(victim), []).append(victim)
        refused: dict[str, JobView] = {}
        while queues:
            name = max(queues, key=self._share)
            victim = queues[name].pop(0)
            share = max(self._used[name] - _gpus(victim) - self._of(name).quota, 0) / self._of(name).weight
            if name == queue or self._share(queue, job.num_replicas) <= share:
                yield victim
            else:
                refused.setdefault(name, victim)
            if not queues[name] or (name != queue and not self._share(name)):
                del queues[name]
        for name in sorted(refused, key=self._share, reverse=True):
            if self._share(queue, job.num_replicas) < self._share(name):
                yield refused[name]
