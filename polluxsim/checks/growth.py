"""Measure whether decisions of a policy become slow: with the number of jobs, or with the rounds of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf, log
from statistics import median
from time import process_time
from typing import NamedTuple

from polluxsim.checks.driving import AskedEveryRound, FoundError, start_run, take_turn
from polluxsim.checks.findings import Fault, Finding
from polluxsim.checks.worlds import World
from polluxsim.engine.policy_calls import rare_collections
from polluxsim.run.named_policies import NamedPolicy
from polluxsim.workloads.workload import Job

NUM_JOBS = (60, 250, 1000, 4000)  # tried numbers of jobs; the cluster has a quarter of the GPUs that they request
JOBS_PER_GPU = 4
GPUS_PER_NODE = 4

# No larger number of jobs is tried if a decision with its preparation takes longer than the first time, or if the next
# one is expected to take longer than the second time [s].
LONGEST_MEASURED = 0.5
LONGEST_EXPECTED = 1.5

# A fault: the time of a decision exceeds MIN_TIME [s] and grows with a higher power of the number of jobs than
# MAX_POWER. If the power exceeds SUSPECT_POWER, both times are measured REPEATS times more, because the machine may be
# busy.
MAX_POWER = 1.7
MIN_TIME = 0.1
SUSPECT_POWER = 1.2
REPEATS = 4

NUM_ROUNDS = 1500  # rounds of a steady cluster
COMPARED = 100  # number of early and of late rounds that are compared
LONGEST_TOTAL = 20.0  # the rounds end without a finding if their decisions take longer than this in total [s]
# Late decisions may take MAX_RATIO times as long as early ones, or MAX_INCREASE longer [s].
MAX_RATIO = 2.0
MAX_INCREASE = 2e-5

CONFIRMATIONS = 3  # a growth is a fault if this number of measurements in a row show it


class DecisionTimes(NamedTuple):
    """Processor time of a decision, and of the decision with its preparation [s]."""

    seconds: float
    spent: float

    def least(self, other: DecisionTimes) -> DecisionTimes:
        """Return the smaller of both measurements for each of the two times."""
        return DecisionTimes(min(self.seconds, other.seconds), min(self.spent, other.spent))


def growth_findings(guest: NamedPolicy, timeout: float | None = None, *, with_rigid: bool) -> Iterator[Finding]:
    """Yield a finding if the time of a decision grows too fast with the jobs, and one if it grows with the rounds."""
    try:
        yield from _confirmed(lambda: _by_jobs(guest, timeout, with_rigid=with_rigid))
        yield from _confirmed(lambda: _by_rounds(guest, timeout, with_rigid=with_rigid))
    except FoundError as error:  # a random world may show the same fault with fewer jobs
        yield error.finding


def _confirmed(measured: Callable[[], Finding | None]) -> Iterator[Finding]:
    """Yield the finding if `CONFIRMATIONS` measurements in a row show it. A busy machine may be slow once or twice."""
    findings = [measured()]
    while findings[-1] is not None and len(findings) < CONFIRMATIONS:
        findings.append(measured())
    if findings[-1] is not None:
        yield findings[-1]


def _by_jobs(guest: NamedPolicy, timeout: float | None, *, with_rigid: bool) -> Finding | None:
    """Return a finding if the time of a decision grows too fast with the number of jobs."""

    def times_with(size: int) -> DecisionTimes:
        nodes = (GPUS_PER_NODE,) * (size // JOBS_PER_GPU // GPUS_PER_NODE)
        world = World(nodes, tuple(_jobs(size, 600.0, with_rigid=with_rigid)))
        return _second_decision(guest, world, timeout)

    small = 0
    before = DecisionTimes(0.0, inf)
    for size in NUM_JOBS:
        now = times_with(size)
        if not small or now.spent < LONGEST_MEASURED:  # the first measurement may include compilation
            now = now.least(times_with(size))
        if now.seconds > MIN_TIME and small and _power(size, now, small, before) > SUSPECT_POWER:
            for _ in range(REPEATS):  # in turn, because the machine may be slow for some time only
                now = now.least(times_with(size))
                before = before.least(times_with(small))
            power = _power(size, now, small, before)
            if power > MAX_POWER:
                takes = f"with {size} jobs takes {now.seconds:.2g} s, with {small} jobs {before.seconds:.2g} s"
                return Finding(Fault.GROWTH, f"a decision {takes}: it grows with a power of {power:.1f}")
        if now.spent > LONGEST_MEASURED or now.spent * now.spent / before.spent > LONGEST_EXPECTED:
            break
        small = size
        before = now
    return None


def _power(size: int, now: DecisionTimes, small: int, before: DecisionTimes) -> float:
    """Return the power of the number of jobs with which the time grows from `small` to `size` jobs."""
    return log(now.seconds / before.seconds) / log(size / small)


def _second_decision(guest: NamedPolicy, world: World, timeout: float | None) -> DecisionTimes:
    """Return the time of the second decision in a world, about the same jobs as the first, and that of both.

    The second time is that of making the policy and the run, and of both decisions. If the policy rejects every job, no
    second decision follows: the first time is then that of the first decision.
    """
    started = process_time()
    policy = AskedEveryRound(guest.make(afresh=True))
    with rare_collections():  # a garbage collection may take longer than a decision
        run = start_run(world, policy)
        seconds = 0.0
        for _ in range(2):
            view = run.advance()
            if view is not None:
                seconds = take_turn(run, policy, view, timeout)
    return DecisionTimes(seconds, process_time() - started)


def _by_rounds(guest: NamedPolicy, timeout: float | None, *, with_rigid: bool) -> Finding | None:
    """Return a finding if late decisions take longer than early ones about the same jobs."""
    policy = AskedEveryRound(guest.make(afresh=True))
    world = World((2,), tuple(_jobs(3, 2 * NUM_ROUNDS * 60.0, with_rigid=with_rigid)))
    run = start_run(world, policy)
    times: list[float] = []
    spent = 0.0
    while len(times) < NUM_ROUNDS and spent < LONGEST_TOTAL and (view := run.advance()) is not None:
        times.append(take_turn(run, policy, view, timeout))
        spent += times[-1]
    if len(times) < NUM_ROUNDS:
        return None
    # Not the very first ones, which may include compilation.
    early = median(times[COMPARED : 2 * COMPARED])
    late = median(times[-COMPARED:])
    if late <= max(MAX_RATIO * early, early + MAX_INCREASE):
        return None
    becomes_slow = f"after {NUM_ROUNDS} rounds without an event, a decision takes {late:.2g} s instead of {early:.2g} s"
    return Finding(Fault.GROWTH, becomes_slow)


def _jobs(count: int, duration: float, *, with_rigid: bool) -> Iterator[Job]:
    """Yield jobs of one GPU that arrive at once: with a duration [s], or with a profile."""
    for index in range(count):
        if with_rigid:
            yield Job.rigid(f"job-{index}", 0.0, 1, duration)
        else:
            yield Job(f"job-{index}", 0.0, "toy", 1, 10)
