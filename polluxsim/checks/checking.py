"""All checks of one policy: in many worlds, on an empty cluster, of decision times, and in a separate process."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import inf, log
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from statistics import median
from time import process_time
from typing import NamedTuple

import numpy as np

from polluxsim.checks.driving import (
    AskedEveryRound,
    FoundError,
    ObservedPolicy,
    decision_of,
    run_policy,
    start_run,
    take_turn,
    with_other_hashes,
)
from polluxsim.checks.findings import Fault, Finding, as_test
from polluxsim.checks.laws import Watch
from polluxsim.checks.parameters import with_parameters
from polluxsim.checks.shrinking import smallest
from polluxsim.checks.worlds import Allowed, World, drawn
from polluxsim.common.errors import PolicyError, PolluxSimError, short
from polluxsim.engine.policy_calls import rare_collections
from polluxsim.policies.contract.view import ClusterView, Policy, traits_of
from polluxsim.policies.elastic.cluster_size import PendingGpus, Scaled
from polluxsim.records.results import Result, Status
from polluxsim.run.composing import NamedPolicy, named_policy
from polluxsim.run.interrupt import ending_at_once, ending_with
from polluxsim.run.workers import begin_worker, fresh, starting
from polluxsim.workloads.workload import Job

Make = Callable[..., Policy]

SIZES = (60, 250, 1000, 4000)  # Numbers of jobs. The cluster has a quarter of the GPUs that they request.
PATIENCE = 0.5  # no larger size is tried if a decision and its preparation take longer than this [s]

JOBS_PER_GPU, GPUS_PER_NODE = 4, 4

STEEPEST, SHORTEST = 1.7, 0.1
"""A fault: decision times that grow with a higher power of the jobs than STEEPEST, and exceed SHORTEST [s]."""

SUSPECT, AGAIN = 1.2, 4
"""If the power exceeds `SUSPECT`, both times are measured `AGAIN` times more, because the machine may be busy."""

MEASURED = 3  # a growth is a fault if this number of measurements in a row show it

ROUNDS, WINDOW = 1500, 100
"""Number of rounds of a steady cluster, and number of early and of late rounds that are compared."""

LONGEST = 1.5  # no larger size is tried if it is expected to take longer than this [s]

ALL_ROUNDS = 20.0
"""The check of many rounds ends without a finding if their decisions take longer than this in total [s]."""

SLOWER, LEAST = 2.0, 2e-5  # late decisions may take `SLOWER` times as long as early ones, or `LEAST` longer [s]


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
    """Yield the finding if `MEASURED` measurements in a row show it. A busy machine may be slow once or twice."""
    for left in reversed(range(MEASURED)):
        if (finding := measured()) is None:
            return
        if not left:
            yield finding


def _by_jobs(guest: NamedPolicy, timeout: float | None, *, with_rigid: bool) -> Finding | None:
    def times_with(size: int) -> DecisionTimes:
        world = World(
            (GPUS_PER_NODE,) * (size // JOBS_PER_GPU // GPUS_PER_NODE), tuple(_jobs(size, 600.0, with_rigid=with_rigid))
        )
        return _second_decision(guest, world, timeout)

    small, before = 0, DecisionTimes(0.0, inf)
    for size in SIZES:
        now = times_with(size)
        if not small or now.spent < PATIENCE:  # the first measurement may include compilation
            now = now.least(times_with(size))
        if now.seconds > SHORTEST and small and _power(size, now, small, before) > SUSPECT:
            for _ in range(AGAIN):  # in turn, because the machine may be slow for some time only
                now = now.least(times_with(size))
                before = before.least(times_with(small))
            if (power := _power(size, now, small, before)) > STEEPEST:
                what = f"with {size} jobs takes {now.seconds:.2g} s, with {small} jobs {before.seconds:.2g} s"
                return Finding(Fault.GROWTH, f"a decision {what}: it grows with a power of {power:.1f}")
        if now.spent > PATIENCE or now.spent * now.spent / before.spent > LONGEST:
            break
        small, before = size, now
    return None


def _power(size: int, now: DecisionTimes, small: int, before: DecisionTimes) -> float:
    return log(now.seconds / before.seconds) / log(size / small)


def _second_decision(guest: NamedPolicy, world: World, timeout: float | None) -> DecisionTimes:
    """Return the time of the second decision in a world, about the same jobs as the first."""
    started = process_time()
    policy = AskedEveryRound(guest.make(afresh=True))
    with rare_collections():  # a garbage collection may take longer than a decision
        run = start_run(world, policy)
        for _ in range(2):
            seconds = take_turn(run, policy, run.advance(), timeout)  # type: ignore[arg-type]
    return DecisionTimes(seconds, process_time() - started)


def _by_rounds(guest: NamedPolicy, timeout: float | None, *, with_rigid: bool) -> Finding | None:
    policy = AskedEveryRound(guest.make(afresh=True))
    world = World((2,), tuple(_jobs(3, 2 * ROUNDS * 60.0, with_rigid=with_rigid)))
    run = start_run(world, policy)
    times: list[float] = []
    spent = 0.0
    while len(times) < ROUNDS and spent < ALL_ROUNDS and (view := run.advance()) is not None:
        times.append(take_turn(run, policy, view, timeout))
        spent += times[-1]
    if len(times) < ROUNDS:
        return None
    early, late = median(times[WINDOW : 2 * WINDOW]), median(times[-WINDOW:])
    if late <= max(SLOWER * early, early + LEAST):
        return None
    what = f"after {ROUNDS} rounds without an event, a decision takes {late:.2g} s instead of {early:.2g} s"
    return Finding(Fault.GROWTH, what)


def _jobs(count: int, duration: float, *, with_rigid: bool) -> Iterator[Job]:
    for index in range(count):
        if with_rigid:
            yield Job.rigid(f"job-{index}", 0.0, 1, duration)
        else:
            yield Job(f"job-{index}", 0.0, "toy", 1, 10)


ALL, MOST = frozenset(Fault), frozenset(Fault) - {Fault.ORDER}
RUNS = {fault: (fault,) for fault in (Fault.CHANCE, Fault.MEMORY, Fault.STANDING, Fault.ORDER)}
"""Values of `faults` for `checked_world` that require further runs."""

FEW, TRIES = 4, 12
"""In worlds of at most `FEW` jobs, a search for chance makes `TRIES` further runs, because chance may not show."""

SALTS, SALTED = (1, 2, 3), 4
"""Number of alternative hashes of names to try, and the distance between the worlds in which they are tried."""


def check(policy: str | NamedPolicy, worlds: int = 1000, *, timeout: float | None = None) -> list[Finding]:
    """Drive a policy through drawn worlds; return its faults, each in the smallest world that shows it.

    Parameters
    ----------
    policy
        Name of a shipped policy, or a user's class as `mine.py:Mine`.
    worlds
        Number of worlds.
    timeout
        Longest time of a decision [s]; None for no limit.

    Raises
    ------
    InvalidConfigError
        If the policy does not exist or cannot be made.
    """
    return list(found(policy, range(worlds), timeout))


def found(
    policy: str | NamedPolicy,
    worlds: Iterable[int],
    timeout: float | None = None,
    begins: Callable[[int], object] = lambda number: None,
) -> Iterator[Finding]:
    """Yield the findings of `check` one by one; call `begins` with the number of each world before it starts."""
    guest = named_policy(policy) if isinstance(policy, str) else policy
    known = set()
    for finding in _all_findings(guest, worlds, timeout, begins):
        if finding.kind not in known:
            known.add(finding.kind)
            again = partial(checked_world, guest, timeout=timeout, faults=RUNS.get(finding.fault, ()))
            yield finding if finding.world is None else smallest(finding, finding.world, again)
            if finding.fault is Fault.HANG:  # each further finding of this kind would take as long as the first
                return


def _all_findings(
    guest: NamedPolicy, worlds: Iterable[int], timeout: float | None, begins: Callable[[int], object]
) -> Iterator[Finding]:
    allowed = Allowed.under(traits_of(guest.make()))
    yield from _on_empty_cluster(guest, timeout)
    for number in worlds:
        begins(number)
        world = with_parameters(drawn(number, allowed), guest, number)
        yield from checked_world(guest, world, timeout=timeout, faults=ALL if number % SALTED == 0 else MOST)
    yield from growth_findings(guest, timeout, with_rigid=allowed.rigid)


def checked_world(
    policy: str | NamedPolicy, world: World, *, timeout: float | None = None, faults: Collection[Fault] = ALL
) -> list[Finding]:
    """Return the faults that a policy shows in one world; arguments as of `check`.

    Faults that need further runs are searched for only if they are among `faults`.
    """
    guest = named_policy(policy) if isinstance(policy, str) else policy
    make = partial(_made, guest, world)
    try:
        run = partial(run_policy, world, timeout=timeout)
        observed = ObservedPolicy(make(afresh=True))
        watch = Watch(world, observed.policy)
        once = run(observed, watch=watch)
        shown = [*_starvation(once)]
        if Fault.CHANCE in faults:
            shown += _differing_runs(make, run, once, TRIES if len(world.jobs) <= FEW else 1)
        elif Fault.MEMORY in faults:
            shown += _differing_runs(make, run, once, 1)
        if Fault.STANDING in faults and observed.had_lasting_decision and not shown:
            asked = run(AskedEveryRound(make(afresh=True)))
            if _course(asked) != _course(once):
                what = "before valid_until, it decides otherwise when it is called again"
                shown.append(Finding(Fault.STANDING, what))
        if Fault.ORDER in faults and not shown:
            shown += _order_dependence(make, world, timeout)
        shown += watch.findings.values()
    except FoundError as error:
        shown = [error.finding]
    return [replace(finding, world=world) for finding in shown]


def _made(guest: NamedPolicy, world: World, *, afresh: bool = False) -> Policy:
    """Return a new policy with the parameters of a world, inside an autoscaler if the world has one."""
    policy = guest.make(afresh=afresh, parameters=dict(world.parameters))
    return Scaled(policy, PendingGpus()) if world.is_scaled else policy


def _differing_runs(make: Make, run: Callable[[Policy], Result], once: Result, tries: int) -> Iterator[Finding]:
    if any(run(make(afresh=True)) != once for _ in range(tries)):
        yield Finding(Fault.CHANCE, "two runs with the same seed differ: draw from rng, and use no clock")
    elif run(make()) != once:
        yield Finding(Fault.MEMORY, "a second run in one process differs: remember things in the policy only")


def _course(result: Result) -> tuple[object, object]:
    """Return the allocations of a run and the ends of its jobs. Sums over time differ by rounding with the calls."""
    jobs = [(job.job, job.status, job.start_time, job.end_time, job.num_restarts) for job in result.job_records]
    return result.allocation_records, jobs


def _order_dependence(make: Make, world: World, timeout: float | None) -> Iterator[Finding]:
    with suppress(FoundError):  # the policy may need names that are plain strings
        results = [run_policy(with_other_hashes(world, salt), make(), timeout) for salt in SALTS]
        if any(result != results[0] for result in results):
            yield Finding(Fault.ORDER, "the result depends on the order of a set of names, which no seed fixes")


def _starvation(result: Result) -> Iterator[Finding]:
    left = [job.job for job in result.job_records if job.status is Status.CUT_OFF]
    if left:
        late = f"{len(left)} jobs, the first is {left[0]!r}, are not complete at {result.end_time:g} s"
        yield Finding(Fault.STARVATION, result.standstill or late)


def _on_empty_cluster(guest: NamedPolicy, timeout: float | None) -> Iterator[Finding]:
    view = ClusterView(0.0, (4, 2), [], round_interval=60.0)
    try:
        answer = decision_of(guest.make(afresh=True), view, np.random.default_rng(0), timeout)
    except FoundError as error:
        yield Finding(Fault.EMPTY, f"without jobs: {error.finding.message}")
        return
    given = getattr(answer, "allocation", answer)
    if not isinstance(given, Mapping) or any(given.values()):
        yield Finding(Fault.EMPTY, f"without jobs, it answers {short(given)}")


BEGINS, FOUND_FAULT, FAILED, DONE = range(4)  # kinds of messages from the other process


def found_apart(policy: str, worlds: int, timeout: float | None = None) -> Iterator[tuple[str, str] | int]:
    """Yield the number of each world that begins, and each finding as a sentence and a test."""
    guest = named_policy(policy)  # here, because the other process does not know the user's configuration folders
    receiver, sender = Pipe(duplex=False)
    process = fresh().Process(target=_work, args=(sender, dict(os.environ), guest, worlds, timeout))
    world = 0
    with ending_at_once(), ending_with(lambda: process.kill() if process.is_alive() else None):
        with starting():
            process.start()
        sender.close()
        while True:
            try:
                kind, told = receiver.recv()
            except EOFError:
                process.join()
                or_hangs = "" if timeout is None else f", or could not be stopped after {timeout:g} s"
                where = f"in world {world}: polluxsim.checks.worlds.drawn({world}, …)"
                what = f"policy {policy} ended the process with status {process.exitcode}{or_hangs}"
                raise PolicyError(f"{what}, {where}") from None
            if kind == FAILED:
                raise PolluxSimError(told)
            if kind == DONE:
                return
            world = told if kind == BEGINS else world
            yield told


def _work(
    sender: Connection, environment: Mapping[str, str], policy: NamedPolicy, worlds: int, timeout: float | None
) -> None:
    begin_worker(environment)
    try:
        for finding in found(policy, range(worlds), timeout, lambda number: sender.send((BEGINS, number))):
            sender.send((FOUND_FAULT, (f"{finding.fault}: {finding.message}", as_test(finding, policy.name))))
        sender.send((DONE, None))
    except PolluxSimError as error:
        sender.send((FAILED, str(error)))
