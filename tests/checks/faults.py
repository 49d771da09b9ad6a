"""Policies with one fault each, planted for `polluxsim check`; `EXPECTED` says which it is."""

from __future__ import annotations

import random
import time
from math import inf
from statistics import mean
from types import MappingProxyType
from typing import ClassVar

from polluxsim.checks.findings import Fault
from polluxsim.policies.contract.view import Change, Decision, Reason, Traits
from polluxsim.policies.deadlines.reason_kinds import PLANNED
from polluxsim.policies.reserving.easy import Easy
from polluxsim.policies.tools.free_gpus import FreeGpus, pack, pack_gang, remove
from polluxsim.policies.tools.reason_kinds import BEHIND_HEAD_OF_LINE

calls = []


def fitted(view, order=None):
    """Return gangs in order of submission, without any fault."""
    free, allocation = view.gpus_per_node, {}
    for job in view.jobs if order is None else order:
        if placement := pack_gang(view, free, job):
            allocation[job.job_id] = placement
            free = remove(free, placement)
    return allocation


def place(job):
    return job.submit_time, job.num_replicas, job.job_id


class Sound:
    """The policy that the others break."""

    def allocate(self, view, rng):
        return fitted(view)


class GivesTwice:
    def allocate(self, view, rng):
        return {job.job_id: pack(view.gpus_per_node, job.num_replicas, job.placement) or () for job in view.jobs}


class KnowsOnlyItsOwnStarts:
    """It takes GPUs for free that jobs hold since before the start of the run."""

    def __init__(self):
        self.held = {}

    def allocate(self, view, rng):
        lost = {job.job_id for job in view.jobs if job.job_id in self.held and not job.placement}
        here = {job.job_id for job in view.jobs}
        self.held = {name: gpus for name, gpus in self.held.items() if name in here - lost}
        free = FreeGpus.of(view)
        for placement in self.held.values():
            free.take(placement)
        for job in view.jobs:
            if job.job_id not in self.held and (placement := pack_gang(view, free.gpus, job)):
                free.take(placement)
                self.held[job.job_id] = placement
        return Decision(self.held, others_keep=True)


class GivesNodesThatAreDown:
    def __init__(self):
        self.nodes = ()

    def allocate(self, view, rng):
        self.nodes = tuple(map(max, zip(self.nodes or view.gpus_per_node, view.gpus_per_node, strict=False)))
        free, allocation = self.nodes, {}
        for job in view.jobs:
            if placement := pack(free, job.num_replicas, keep=job.placement):
                allocation[job.job_id] = placement
                free = remove(free, placement)
        return allocation


class NamesANodeTooMany:
    def allocate(self, view, rng):
        return {job.job_id: ((len(view.gpus_per_node) - (len(view.jobs) < 3), 1),) for job in list(view.jobs)[:1]}


class NamesJobsThatAreGone:
    def __init__(self):
        self.last = {}

    def allocate(self, view, rng):
        self.last = {**self.last, **fitted(view)}
        return self.last


class BreaksGangs:
    def allocate(self, view, rng):
        free, allocation = view.gpus_per_node, {}
        for job in view.jobs:
            if placement := pack(free, min(job.num_replicas, max(sum(free), 1)), keep=job.placement):
                allocation[job.job_id] = placement
                free = remove(free, placement)
        return allocation


class GivesMoreThanAUserAllows:
    def allocate(self, view, rng):
        first = next(
            (job for job in view.jobs if job.goodput is None and job.oracle.application.gang_size is None), None
        )
        if first is None or len(view.jobs) > 1:
            return fitted(view)
        return {first.job_id: pack(view.gpus_per_node, view.num_gpus)}


class GivesFractions:
    def allocate(self, view, rng):
        return {name: [(node, gpus / 1) for node, gpus in held] for name, held in fitted(view).items()}


class AnswersNothing:
    def allocate(self, view, rng):
        return fitted(view) if len(view.jobs) < 3 else None


class KnowsNoTies:
    def allocate(self, view, rng):
        by_time = {job.submit_time: job for job in view.jobs}
        return fitted(view, [by_time.pop(job.submit_time) for job in view.jobs])


class NeedsTwoGpus:
    def allocate(self, view, rng):
        share = 1 / (view.num_gpus - 1)
        return fitted(view, sorted(view.jobs, key=lambda job: job.num_replicas * share))


class NeedsAJob:
    def allocate(self, view, rng):
        longest = max(job.num_replicas for job in view.jobs)
        return fitted(view, sorted(view.jobs, key=lambda job: longest - job.num_replicas))


class EndsTheProgram:
    def allocate(self, view, rng):
        raise SystemExit(0)


class Interrupts:
    def allocate(self, view, rng):
        raise KeyboardInterrupt


class WritesIntoViews:
    def allocate(self, view, rng):
        view.gpus_per_node = (64,)
        return fitted(view)


class DrawsFromTheGlobalGenerator:
    def allocate(self, view, rng):
        return fitted(view, sorted(view.jobs, key=lambda job: random.random()))


class GoesByTheClock:
    def allocate(self, view, rng):
        return fitted(view, sorted(view.jobs, key=lambda job: time.perf_counter_ns() % 7))


class GoesByASet:
    def allocate(self, view, rng):
        jobs = {job.job_id: job for job in view.jobs}
        return fitted(view, [jobs[name] for name in set(jobs)])


class RemembersInItsClass:
    seen: ClassVar[list[float]] = []

    def allocate(self, view, rng):
        self.seen.append(view.time)
        return fitted(view, sorted(view.jobs, key=lambda job: -job.num_replicas) if len(self.seen) > 40 else None)


class RemembersInItsModule:
    def allocate(self, view, rng):
        calls.append(view.time)
        return fitted(view, sorted(view.jobs, key=lambda job: -job.num_replicas) if len(calls) > 40 else None)


class StarvesTheLarge:
    def allocate(self, view, rng):
        return fitted(view, [job for job in view.jobs if job.num_replicas <= max(view.num_gpus - 1, 1)])


class StandsForEver:
    def allocate(self, view, rng):
        order = sorted(view.jobs, key=lambda job: job.attained_service // 600)
        return Decision(fitted(view, order), valid_until=inf)


class StandsThroughArrivals:
    def allocate(self, view, rng):
        order = sorted(view.jobs, key=lambda job: job.num_replicas)
        return Decision(fitted(view, order), valid_until=inf, outdated_by=Change.COMPLETION | Change.NODES)


class ComparesEachWithEach:
    def allocate(self, view, rng):
        jobs = list(view.jobs)
        ranks = {job.job_id: sum(place(other) < place(job) for other in jobs) for job in jobs}
        return fitted(view, sorted(jobs, key=lambda job: ranks[job.job_id]))


class GoesThroughItsHistory:
    def __init__(self):
        self.history = []

    def allocate(self, view, rng):
        self.history.append(view.num_gpus)
        most = max(mean(self.history), view.num_gpus)
        return fitted(view, [job for job in view.jobs if job.num_replicas <= most])


class Hangs:
    def allocate(self, view, rng):
        while len(view.jobs) > 2:
            pass
        return fitted(view)


class EndsTheProcess:
    def allocate(self, view, rng):
        import os

        os._exit(0)


class LeavesGpusIdle:
    def allocate(self, view, rng):
        return fitted(view, list(view.jobs)[:1])


class GivesAFalseReason:
    def allocate(self, view, rng):
        given = fitted(view, list(view.jobs)[:1])
        reason = Reason(BEHIND_HEAD_OF_LINE, {}, tuple(given))
        return Decision(given, explain=lambda jobs: dict.fromkeys(jobs, reason))


class DelaysItsReservations:
    def __init__(self):
        self.easy = Easy()

    traits = Traits(one_type_as="has one pool of GPUs")

    def allocate(self, view, rng):
        decision = self.easy.allocate(view, rng)
        free, more = FreeGpus(view.free), dict(decision.allocation)
        for placement in more.values():
            free.take(placement)
        for job in view.waiting:
            if job.job_id not in more and (placement := free.pack(job.num_replicas)):
                more[job.job_id] = placement
        return Decision(more, others_keep=True, explain=decision.explain)


class DoesNotTakeBackQuotas:
    def __init__(self, gpus=MappingProxyType({})):
        self.gpus = gpus

    takes_back = True

    @property
    def quota_rules(self):
        return self

    def can_ever_hold(self, job, gpu_type, num_gpus=inf):
        return True

    def quota_of(self, queue, gpu_type):
        return self.gpus.get(queue or "none", 0)

    def allocate(self, view, rng):
        return fitted(view, [*view.running, *view.waiting])


class MisspellsAMember:
    kernels_slow = ()

    def allocate(self, view, rng):
        return fitted(view, [*view.running, *view.waiting])


class AdmitsEveryDeadline:
    def allocate(self, view, rng):
        reason = Reason(PLANNED, {})
        return Decision(fitted(view), explain=lambda jobs: dict.fromkeys(jobs, reason))


class CountsFromTimeZero:
    """Small jobs first in the first ten hours after time 0, and large jobs first later."""

    def allocate(self, view, rng):
        sign = 1 if view.time < 36_000.0 else -1
        waiting = sorted(view.waiting, key=lambda job: (sign * job.num_replicas, job.submit_time, job.job_id))
        return fitted(view, [*view.running, *waiting])


class GivesLessThanAUserAllows:
    def allocate(self, view, rng):
        free, allocation = view.gpus_per_node, {}
        for job in view.jobs:
            is_gang = job.oracle.application.gang_size is not None
            least = job.num_replicas if is_gang else 1
            if placement := pack(free, least, keep=job.placement):
                allocation[job.job_id] = placement
                free = remove(free, placement)
        return allocation

    traits = Traits(one_type_as="has one pool of GPUs")


class ComparesTimesExactly:
    scales_with_time = True
    traits = Traits(slices_time=True)

    def allocate(self, view, rng):
        return fitted(view, sorted(view.jobs, key=lambda job: job.attained_service // (5 * view.round_interval)))


class TakesTurns:
    """Runs the first jobs in even rounds and the last jobs in odd rounds, but does not declare that it slices time."""

    def allocate(self, view, rng):
        is_odd = round(view.time / view.round_interval) % 2
        return fitted(view, list(view.jobs)[:: -1 if is_odd else 1])


class MovesToAndFro:
    def allocate(self, view, rng):
        free, allocation = FreeGpus(view.gpus_per_node), {}
        nodes = sorted(range(len(view.gpus_per_node)), reverse=round(view.time / view.round_interval) % 2 == 1)
        for job in view.jobs:
            placement = pack_in_order(free.gpus, nodes, job.num_replicas)
            if placement:
                free.take(placement)
                allocation[job.job_id] = placement
        return allocation

    traits = Traits(one_type_as="has one pool of GPUs")


def pack_in_order(free, nodes, gpus):
    """Return GPUs of nodes in order, or none if too few are free."""
    placement = []
    for node in nodes:
        if taken := min(free[node], gpus):
            placement.append((node, taken))
            gpus -= taken
    return () if gpus else tuple(placement)


class PreemptsInSpiteOfItsPromise:
    traits = Traits(never_preempts=True)

    def allocate(self, view, rng):
        return fitted(view, sorted(view.jobs, key=lambda job: job.num_replicas))


class MovesInSpiteOfItsPromise:
    """Packs the running jobs anew when a job has ended, but preempts no job."""

    traits = Traits(one_type_as="has one pool of GPUs", never_preempts=True)

    def allocate(self, view, rng):
        free, allocation = FreeGpus(view.gpus_per_node), {}
        for job in [*view.running, *view.waiting]:
            if placement := free.pack(job.num_replicas):
                allocation[job.job_id] = placement
        return allocation


EXPECTED = {
    "GivesTwice": Fault.OVER_ALLOCATION,
    "KnowsOnlyItsOwnStarts": Fault.OVER_ALLOCATION,
    "GivesNodesThatAreDown": Fault.OVER_ALLOCATION,
    "NamesANodeTooMany": Fault.ANSWER,
    "NamesJobsThatAreGone": Fault.ANSWER,
    "BreaksGangs": Fault.GANG,
    "GivesMoreThanAUserAllows": Fault.ANSWER,
    "GivesFractions": Fault.ANSWER,
    "AnswersNothing": Fault.ANSWER,
    "KnowsNoTies": Fault.ERROR,
    "NeedsTwoGpus": Fault.ERROR,
    "NeedsAJob": Fault.EMPTY,
    "MisspellsAMember": Fault.MEMBER,
    "EndsTheProgram": Fault.ERROR,
    "Interrupts": Fault.ERROR,
    "WritesIntoViews": Fault.ERROR,
    "DrawsFromTheGlobalGenerator": Fault.CHANCE,
    "GoesByTheClock": Fault.CHANCE,
    "GoesByASet": Fault.ORDER,
    "RemembersInItsClass": Fault.MEMORY,
    "RemembersInItsModule": Fault.MEMORY,
    "StarvesTheLarge": Fault.STARVATION,
    "StandsForEver": Fault.STANDING,
    "StandsThroughArrivals": Fault.STANDING,
    "ComparesEachWithEach": Fault.GROWTH,
    "GoesThroughItsHistory": Fault.GROWTH,
    "Hangs": Fault.HANG,
    "LeavesGpusIdle": Fault.IDLE,
    "GivesAFalseReason": Fault.IDLE,
    "DelaysItsReservations": Fault.RESERVATION,
    "DoesNotTakeBackQuotas": Fault.QUOTA,
    "AdmitsEveryDeadline": Fault.DEADLINE,
    "CountsFromTimeZero": Fault.ORIGIN,
    "GivesLessThanAUserAllows": Fault.MIN_REPLICAS,
    "ComparesTimesExactly": Fault.CLOCK,
    "TakesTurns": Fault.CYCLE,
    "MovesToAndFro": Fault.CYCLE,
    "PreemptsInSpiteOfItsPromise": Fault.PREEMPTION,
    "MovesInSpiteOfItsPromise": Fault.PREEMPTION,
}
