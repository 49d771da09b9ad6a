"""Rounds in which jobs get their shares of time: who has had least of what it should have goes first."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from polluxsim.errors import check_choice, check_number
from polluxsim.policies.gangs import NEAREST
from polluxsim.policies.packing import fits, pack
from polluxsim.policies.shares.demand import gpus_by_type, speed
from polluxsim.policies.shares.solving import SOLVERS
from polluxsim.policies.view import Decision, Reason

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy as np

    from polluxsim.policies.shares.rules import Rule
    from polluxsim.policies.view import ClusterView, JobView
    from polluxsim.types import JobId, Placement

    Pair = tuple[JobId, str]


class Turn(NamedTuple):
    """What a job met when its turn came in the queue of a type."""

    gpu_type: str
    position: int  # its place in the queue, from 1
    left: int  # GPUs of the type that were left
    is_taken: bool  # whether it gets its gang there
    ahead: tuple[JobId, ...]  # the nearest jobs ahead that were taken


@dataclass
class RoundsOfShares:
    """Gang-schedule jobs round by round such that each has, in the long run, its share of the time on each GPU type.

    Parameters
    ----------
    shares
        Who is to have how much.
    reset_interval
        Time for which shares stand at least once jobs have come or gone; then what everybody has had is counted anew,
        and what it had too little goes first among equals [s].
    idle_newcomers
        Whether GPUs stay idle that a job would get which has come since shares were last computed, as published; else
        it gets them.
    overtaking
        Whether a gang that fits may go ahead of one that does not.
    solver
        Which of all optimal shares are taken: `centre`, the one in the middle, or `vertex`, a corner.

    Source: Narayanan et al., Gavel (OSDI '20), §5, as Shockwave's simulator (NSDI '23) runs it.
    """

    shares: Rule
    reset_interval: float = 1000.0
    idle_newcomers: bool = False
    overtaking: bool = True
    solver: str = "centre"
    _wanted: Mapping[JobId, Mapping[str, float]] = field(default_factory=dict, init=False, repr=False)
    # Time that a job has had on a type since shares were computed, and what it had too little before [s].
    _time: dict[Pair, float] = field(default_factory=dict, init=False, repr=False)
    _deficit: dict[Pair, float] = field(default_factory=dict, init=False, repr=False)
    _running: dict[JobId, str] = field(default_factory=dict, init=False, repr=False)
    _began: dict[JobId, float] = field(default_factory=dict, init=False, repr=False)
    _asked: float = field(default=0.0, init=False, repr=False)
    _reset: float = field(default=-inf, init=False, repr=False)
    _is_stale: bool = field(default=True, init=False, repr=False)

    def __post_init__(self) -> None:
        check_number("policy.reset_interval", self.reset_interval, self.reset_interval >= 0, "a number ≥ 0")
        check_choice("policy.solver", self.solver, SOLVERS)

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Give GPUs to those who have had least of their shares, type by type, the fastest first."""
        self._take_note(view)
        if self._is_stale and view.time - self._reset >= self.reset_interval:
            self._compute(view)
        types = list(gpus_by_type(view))
        if self.shares.agnostic and len(types) > 1:
            rng.shuffle(types)
        elif len(types) > 1:
            types.sort(key=lambda name: -sum(_relative_speed(job, name) for job in view.jobs))
        turns: dict[JobId, Turn] = {}
        for name in types:
            turns |= {job: turn for job, turn in self._turns(view, name, turns) if job not in turns or turn.is_taken}
        taken = {job.job_id: job for job in view.jobs if turns[job.job_id].is_taken}
        running = {job: turns[job].gpu_type for job in taken if not self._stays_idle(job)}
        self._began = {job: view.delay_of(taken[job]) for job in running if job not in self._running}
        self._running, self._asked = running, view.time
        placements = placements_by_type(view, running, taken)
        return Decision(placements, explain=partial(self._reasons, turns, {job.job_id: job for job in view.jobs}))

    def _stays_idle(self, job: JobId) -> bool:
        return self.idle_newcomers and job not in self._wanted

    def _take_note(self, view: ClusterView) -> None:
        """Add up the round that is over, and see who came and went."""
        had, active = view.time - self._asked, {job.job_id for job in view.jobs}
        for job, name in self._running.items():
            self._time[job, name] += had - min(self._began.get(job, 0.0), had)
        if view.changes.arrived or view.changes.ended or view.changes.nodes:
            self._is_stale = True
        pairs = [(job.job_id, name) for job in view.jobs for name in gpus_by_type(view)]
        self._time = {pair: self._time.get(pair, view.round_interval / 2) for pair in pairs}
        self._deficit = {pair: self._deficit.get(pair, 0.0) for pair in pairs}
        self._running = {job: name for job, name in self._running.items() if job in active}

    def _compute(self, view: ClusterView) -> None:
        """Compute shares, and carry over what jobs had too little."""
        half = view.round_interval / 2
        for job, name in self._time:
            due = self._wanted.get(job, {}).get(name, 0.0) * (view.time - self._reset) if self._wanted else 0.0
            self._deficit[job, name] += due - (self._time[job, name] - half)
            self._time[job, name] = half
        self._wanted = self.shares.shares(view, self.solver)
        self._reset, self._is_stale = view.time, False

    def _turns(self, view: ClusterView, name: str, taken: Mapping[JobId, Turn]) -> Iterator[tuple[JobId, Turn]]:
        """Go through the queue of a type, and say what each job meets there."""
        left, ahead, is_over = gpus_by_type(view)[name], list[str](), False
        speeds = {job.job_id: speed(view, job, name) for job in view.jobs}
        queue = sorted(view.jobs, key=lambda job: self._rank(job.job_id, name, speeds[job.job_id]))
        for position, job in enumerate(queue, start=1):
            is_elsewhere = job.job_id in taken and taken[job.job_id].is_taken
            is_taken = not is_elsewhere and not is_over and job.num_replicas <= left and speeds[job.job_id] > 0
            yield job.job_id, Turn(name, position, left, is_taken, tuple(ahead[: -NEAREST - 1 : -1]))
            if is_taken:
                left -= job.num_replicas
                ahead.append(job.job_id)
            is_over = is_over or not (is_taken or is_elsewhere or self.overtaking)

    def _rank(self, job: JobId, name: str, speed: float) -> tuple[float, float, float]:
        share, pair = self._wanted.get(job, {}).get(name, 0.0), (job, name)
        priority = share / max(self._time[pair], 1e-9) if speed > 0 else 0.0
        return -priority, -self._deficit[pair], -share

    def _reasons(
        self, turns: Mapping[JobId, Turn], jobs: Mapping[JobId, JobView], asked: Sequence[JobId]
    ) -> dict[JobId, Reason]:
        """Say of the jobs asked about what they met in the queue. Kinds: those of gangs, and `awaits-shares`."""
        return {job: self._reason(turns[job], jobs[job]) for job in asked}

    def _reason(self, turn: Turn, job: JobView) -> Reason:
        if self._stays_idle(job.job_id):
            return Reason("awaits-shares", {"shares_due": self._reset + self.reset_interval})
        numbers: dict[str, float] = {"position": turn.position, "gpus_needed": job.num_replicas, "gpus_left": turn.left}
        numbers |= {
            "time_share": self._wanted.get(job.job_id, {}).get(turn.gpu_type, 0.0),
            "time_had": self._time[job.job_id, turn.gpu_type],
        }
        kind = "gang-fits" if turn.is_taken else "gang-does-not-fit"
        return Reason(kind, numbers, () if turn.is_taken else turn.ahead)


def _relative_speed(job: JobView, gpu_type: str) -> float:
    """Return how fast a job is on a type, over that on the fastest it can use; 0 where it cannot run."""
    return job.speeds.get(gpu_type, 0.0) / max(job.speeds.values(), default=1.0)


def placements_by_type(
    view: ClusterView, running: Mapping[JobId, str], jobs: Mapping[JobId, JobView]
) -> dict[JobId, Placement]:
    """Return placements on the types that jobs are to run on: first who can keep its own, then the widest."""
    placements: dict[JobId, Placement] = {}
    for name in gpus_by_type(view):
        nodes = set(view.nodes_of(name))
        free = [gpus if node in nodes else 0 for node, gpus in enumerate(view.gpus_per_node)]
        here = sorted((jobs[job] for job in running if running[job] == name), key=lambda job: -job.num_replicas)
        kept = [job for job in here if job.placement and fits(free, job.placement)]
        for job in kept + [job for job in here if job not in kept]:
            keep = job.placement if job in kept else ()
            if (found := pack(free, job.num_replicas, keep)) is not None:
                placements[job.job_id] = found
                for node, gpus in found:
                    free[node] -= gpus
    return placements
