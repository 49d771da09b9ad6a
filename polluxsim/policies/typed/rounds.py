"""Rounds in which jobs get their shares of time: the job that has received the least of its share goes first.

A rule of `polluxsim.policies.typed.rules` decides the shares. `RoundsOfShares` decides which jobs run in this round,
and on which GPU type. The order of events in a round is:

1. The times that jobs have had are brought up to date, and new jobs get accounts.
2. If jobs or nodes have changed, and the last computation is old enough, the rule computes shares anew.
3. Each GPU type has a queue of all jobs, by share over time had. Types take turns, and gangs take what is left.

Invariants: a job runs on one type at a time, on all GPUs that its user requests or on none.

Trap: a job has an account for each type. What it has had on one type does not change its place on another one.

Source: Narayanan et al., "Gavel" (OSDI '20), §5.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Annotated, ClassVar, NamedTuple

import numpy as np

from polluxsim.common.instants import sort_key
from polluxsim.common.values import OneOf, Range
from polluxsim.common.written import Seconds, takes_settings
from polluxsim.hardware.placements import JobId
from polluxsim.policies.contract.policy import Policy
from polluxsim.policies.contract.view import ClusterView, Decision, JobView, Reason, Traits
from polluxsim.policies.tools.free_gpus import place_gangs
from polluxsim.policies.tools.gang_places import none_up
from polluxsim.policies.tools.gangs import NEAREST
from polluxsim.policies.tools.ledger import Ledger
from polluxsim.policies.tools.reason_kinds import BEHIND_HEAD_OF_LINE, GANG_DOES_NOT_FIT, GANG_FITS
from polluxsim.policies.typed.linear_programmes import SOLVERS, gpus_by_type, speeds_on
from polluxsim.policies.typed.reason_kinds import AWAITS_SHARES
from polluxsim.policies.typed.rules import Rule

Pair = tuple[JobId, str]  # a job and a GPU type

LEAST_TIME_HAD = 1e-9  # time that a job counts as having had at least, so that a share can be divided by it [s]


class NearestAhead(NamedTuple):
    """The nearest job ahead of a job that gets its gang."""

    time_share: float  # share of the time
    time_had: float  # time that it has had since shares were computed [s]
    time_lacked: float  # time that it lacked before, below 0 for time that it had too much [s]
    is_equal: bool  # whether its share over the time that it has had equals that of the job


class Turn(NamedTuple):
    """The turn of a job in the queue of a GPU type."""

    gpu_type: str
    position: int  # position of the job in the queue, from 1
    # GPUs of the type that were left for the job, or for `head`; 0 if the job could not use the type with all nodes up.
    gpus_left: int
    can_use: bool  # whether the job can use the type
    is_taken: bool  # whether the job gets its gang on the type
    ahead: tuple[JobId, ...]  # the nearest jobs ahead that get their gangs
    nearest: NearestAhead | None  # the nearest job ahead that gets its gang; None without one
    time_had: float  # time that the job has had on the type since shares were computed [s]
    head: JobView | None  # the job ahead that does not fit and that no job may overtake, or None


@takes_settings("policy")
@dataclass
class RoundsOfShares(Policy):
    """Schedule gangs in rounds, so that each job has its share of the time on each GPU type in the long run.

    Parameters
    ----------
    shares
        Rule that computes the shares.
    reset_interval
        Minimum time between computations of shares, which follow changes of jobs or nodes [s]. A computation resets the
        times that jobs have had; time that a job lacks carries over, and decides among equal jobs.
    idle_newcomers
        Whether jobs that arrived after the last computation of shares wait for the next one, as published. Their GPUs
        stay idle.
    overtaking
        Whether a gang that fits may overtake a gang that does not fit.
    solver
        Choice among optimal shares: `centre`, the one in the middle, or `vertex`, a corner.

    Source: Narayanan et al., Gavel (OSDI '20), §5, as Shockwave's simulator (NSDI '23) runs it.
    """

    shares: Rule
    reset_interval: Annotated[Seconds, Range(least=0)] = 1000.0
    idle_newcomers: bool = False
    overtaking: bool = True
    solver: Annotated[str, OneOf(*SOLVERS)] = "centre"
    traits: ClassVar[Traits] = Traits(slices_time=True)
    # Share of the time of each job on each type.
    _time_shares: Mapping[JobId, Mapping[str, float]] = field(default_factory=dict, init=False, repr=False)
    # Time of each job on each type since shares were computed, and time that it lacked before [s].
    _time: Ledger[Pair] = field(default_factory=Ledger, init=False, repr=False)
    _deficit: dict[Pair, float] = field(default_factory=dict, init=False, repr=False)
    _reset: float = field(default=-inf, init=False, repr=False)  # time of the last computation of shares [s]
    _is_stale: bool = field(default=True, init=False, repr=False)  # whether jobs or nodes have changed since then

    @property
    def scales_with_time(self) -> bool:
        """Return whether the decisions do not depend on the unit of time."""
        return self.shares.scales_with_time

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Give GPUs to the jobs that are furthest below their shares, type by type, the fastest type first."""
        self._take_note(view)
        if self._is_stale and view.has_come(self._reset + self.reset_interval):
            self._compute(view)
        types = self._ordered_types(view, rng)
        turns = self._all_turns(view, types)
        taken = {job.job_id: job for job in view.jobs if turns[job.job_id].is_taken}
        # Only jobs with GPUs: the gang of a newcomer may stay idle.
        running = {job: turns[job].gpu_type for job in taken if not self._stays_idle(job)}
        holders: dict[JobId, tuple[JobView, Pair]] = {}
        for job_id, gpu_type in running.items():
            holders[job_id] = (taken[job_id], (job_id, gpu_type))
        self._time.hold(view.time, holders, view.delay_of)
        jobs = {job.job_id: job for job in view.jobs}
        placements = place_gangs(view, running, taken)
        return Decision(
            placements,
            explain=lambda asked: {job: self._reason(view, turns[job], jobs[job], len(types)) for job in asked},
        )

    def _ordered_types(self, view: ClusterView, rng: np.random.Generator) -> list[str]:
        """Return the GPU types in the order of their turns: by mean speed, or at random if the rule ignores types."""
        types = list(gpus_by_type(view))
        if len(types) == 1:
            return types
        if self.shares.agnostic:
            rng.shuffle(types)
            return types
        fastest_speeds = [max(job.speeds.values(), default=1.0) for job in view.jobs]

        def speed_of(gpu_type: str) -> float:
            """Return the sum over jobs of the speed on a type, each relative to the job's fastest type."""
            return sum(
                job.speeds.get(gpu_type, 0.0) / fastest for job, fastest in zip(view.jobs, fastest_speeds, strict=True)
            )

        types.sort(key=lambda gpu_type: -sort_key(speed_of(gpu_type)))
        return types

    def _all_turns(self, view: ClusterView, types: Sequence[str]) -> dict[JobId, Turn]:
        """Return the turn of each job: the one in which it gets GPUs, or the one on the first type that it can use."""
        taken: dict[JobId, Turn] = {}
        while True:
            turns = dict(taken)
            taken_before = len(taken)
            for gpu_type in types:
                for job, turn in self._turns(view, gpu_type, taken):
                    if job not in turns:
                        turns[job] = turn
                        continue
                    gets_gpus = turn.is_taken and job not in taken
                    is_first_usable = turn.can_use and not turns[job].can_use
                    if gets_gpus or is_first_usable:
                        turns[job] = turn
                taken = {job: turn for job, turn in turns.items() if turn.is_taken}
            # A job that blocked other jobs on one type may have got GPUs of a later type. Then the other jobs move up.
            if self.overtaking or len(types) == 1 or len(taken) == taken_before:
                return turns

    def _stays_idle(self, job: JobId) -> bool:
        """Return whether the GPUs of a job stay idle, because it has no share yet."""
        return self.idle_newcomers and job not in self._time_shares

    def _take_note(self, view: ClusterView) -> None:
        """Charge jobs that lost their GPUs, and open and close accounts."""
        self._time.settle(view)
        if view.changes.jobs_or_nodes:
            self._is_stale = True
        types = list(gpus_by_type(view))
        pairs: list[Pair] = []
        for job in view.jobs:
            pairs += [(job.job_id, gpu_type) for gpu_type in types]
        self._time.keep(pairs)
        for pair in pairs:
            if pair not in self._deficit:
                # Half a round, as published: a time of 0 would put all new jobs first, whatever their shares are.
                self._time.set_balance(pair, view.round_interval / 2, view.time)
        self._deficit = {pair: self._deficit.get(pair, 0.0) for pair in pairs}

    def _compute(self, view: ClusterView) -> None:
        """Compute shares, and carry over the time that jobs lack."""
        half_round = view.round_interval / 2  # every account begins with it
        elapsed = 0.0
        if self._time_shares:
            elapsed = view.time - self._reset
        for job, gpu_type in self._deficit:
            pair = (job, gpu_type)
            time_due = self._time_shares.get(job, {}).get(gpu_type, 0.0) * elapsed
            time_had = self._time.balance(pair, view.time) - half_round
            self._deficit[pair] += time_due - time_had
            self._time.set_balance(pair, half_round, view.time)
        self._time_shares = self.shares.shares(view, self.solver)
        self._reset = view.time
        self._is_stale = False

    def _turns(self, view: ClusterView, gpu_type: str, taken: Mapping[JobId, Turn]) -> Iterator[tuple[JobId, Turn]]:
        """Yield the turns of all jobs on a type. `taken` has the turns in which this decision gave jobs GPUs so far."""
        num_gpus = gpus_by_type(view)[gpu_type]
        gpus_left = num_gpus
        for job in view.jobs:
            if job.job_id in taken and taken[job.job_id].gpu_type == gpu_type:
                gpus_left -= job.num_replicas
        speeds: dict[JobId, float] = {}
        times_had: dict[JobId, float] = {}
        for job, speed in zip(view.jobs, speeds_on(view, gpu_type), strict=True):
            speeds[job.job_id] = speed
            times_had[job.job_id] = self._time.balance((job.job_id, gpu_type), view.time)
        ranks = {job.job_id: self._rank(view, (job.job_id, gpu_type), speeds[job.job_id]) for job in view.jobs}
        queue = sorted(view.jobs, key=lambda job: ranks[job.job_id])
        ahead: list[JobId] = []
        head: JobView | None = None  # from this job on, no job gets GPUs
        for position, job in enumerate(queue, start=1):
            has_gpus = job.job_id in taken
            can_use = speeds[job.job_id] > 0
            may_take = can_use and not has_gpus and head is None
            is_taken = may_take and job.num_replicas <= gpus_left
            is_behind_head = head is not None
            # Too few GPUs are up. Those that are up are left all the same, so the reason states them.
            lacks_nodes = gpu_type in job.speeds and job.num_replicas > num_gpus
            nearest: NearestAhead | None = None
            if ahead:
                name = ahead[-1]
                lacked = self._deficit[name, gpu_type]
                is_equal = ranks[name][0] == ranks[job.job_id][0]
                nearest = NearestAhead(self._share(name, gpu_type), times_had[name], lacked, is_equal)
            turn = Turn(
                gpu_type,
                position,
                gpus_left=gpus_left if can_use or is_behind_head or lacks_nodes else 0,
                can_use=can_use,
                is_taken=is_taken,
                ahead=tuple(ahead[: -NEAREST - 1 : -1]),  # the nearest first
                nearest=nearest,
                time_had=times_had[job.job_id],
                head=head,
            )
            yield job.job_id, turn
            if is_taken:
                gpus_left -= job.num_replicas
                ahead.append(job.job_id)
            elif may_take and not self.overtaking:
                head = job

    def _share(self, job: JobId, gpu_type: str) -> float:
        """Return the share of the time of a job on a type, 0 if it has none."""
        return self._time_shares.get(job, {}).get(gpu_type, 0.0)

    def _rank(self, view: ClusterView, pair: Pair, speed: float) -> tuple[float, float, float]:
        """Return the sort key of a job in the queue of a type, on which it has a speed [steps/s]."""
        job, gpu_type = pair
        share = self._share(job, gpu_type)
        time_had = self._time.balance(pair, view.time)
        priority = share / max(time_had, LEAST_TIME_HAD) if speed > 0 else 0.0
        return -sort_key(priority), -sort_key(self._deficit[pair], view.time), -sort_key(share)

    def _reason(self, view: ClusterView, turn: Turn, job: JobView, num_types: int) -> Reason:
        """Return the reason of a job on a cluster of `num_types` GPU types."""
        if self._stays_idle(job.job_id):
            return Reason(AWAITS_SHARES, {"shares_due": self._reset + self.reset_interval})
        numbers: dict[str, float] = {
            "position": turn.position,
            "gpus_needed": job.num_replicas,
            "gpus_left": turn.gpus_left,
            **none_up(view, turn.head or job),
        }
        if job.job_id in self._time_shares:
            lacked = self._deficit.get((job.job_id, turn.gpu_type), 0.0)
            numbers |= {
                "time_share": self._time_shares[job.job_id].get(turn.gpu_type, 0.0),
                "time_had": turn.time_had,
                "time_lacked": lacked,
                "time_ahead": -lacked,
            }
            shares_on_type = {sort_key(shares.get(turn.gpu_type, 0.0)) for shares in self._time_shares.values()}
            numbers["equal_shares"] = float(len(shares_on_type) == 1)
        else:
            numbers["shares_due"] = self._reset + self.reset_interval
        if num_types > 1:
            numbers[f"queue_type {turn.gpu_type}"] = turn.gpus_left
            numbers["other_types"] = len(job.speeds.keys() - {turn.gpu_type})
        if turn.head is not None:
            numbers["head_gpus_needed"] = turn.head.num_replicas
            return Reason(BEHIND_HEAD_OF_LINE, numbers, (turn.head.job_id,))
        if turn.is_taken:
            return Reason(GANG_FITS, numbers)
        if turn.nearest is not None:
            numbers |= {
                "ahead_share": turn.nearest.time_share,
                "ahead_had": turn.nearest.time_had,
                "ahead_lacked": turn.nearest.time_lacked,
                "ahead_too_much": -turn.nearest.time_lacked,
                "ahead_is_equal": float(turn.nearest.is_equal),
            }
        return Reason(GANG_DOES_NOT_FIT, numbers, turn.ahead)
