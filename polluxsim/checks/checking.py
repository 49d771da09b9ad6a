"""All checks of one policy: in many worlds, on an empty cluster, and in a separate process."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection

import numpy as np

from polluxsim.checks.clocks import CLOCKS, difference_on_clock, scales_with_time
from polluxsim.checks.driving import (
    AskedEveryRound,
    FoundError,
    ObservedPolicy,
    decision_of,
    run_policy,
    with_other_hashes,
)
from polluxsim.checks.findings import Fault, Finding, as_test
from polluxsim.checks.growth import growth_findings
from polluxsim.checks.laws import Watch
from polluxsim.checks.origin import origin_dependence
from polluxsim.checks.parameters import by_clock, with_parameters
from polluxsim.checks.shrinking import smallest
from polluxsim.checks.worlds import Allowed, World, drawn
from polluxsim.common.errors import PolicyError, PolluxSimError, short
from polluxsim.policies.contract.view import ClusterView, Policy, traits_of
from polluxsim.policies.elastic.cluster_size import IDLE_TIME, PendingGpus, Scaled
from polluxsim.records.results import Result, Status
from polluxsim.run.composing import NamedPolicy, named_policy
from polluxsim.run.interrupt import ending_at_once, ending_with
from polluxsim.run.workers import begin_worker, fresh, kill_worker, starting

Make = Callable[..., Policy]

ALL_FAULTS = frozenset(Fault)

# Values of `faults` for `checked_world` that require further runs.
RUNS = {
    fault: (fault,) for fault in (Fault.CHANCE, Fault.MEMORY, Fault.STANDING, Fault.ORDER, Fault.CLOCK, Fault.ORIGIN)
}

# In worlds of at most FEW_JOBS jobs, a search for chance makes MORE_RUNS further runs, because chance may not show.
FEW_JOBS, MORE_RUNS = 4, 12

SALTS = (1, 2, 3)  # alternative hashes of names
CLOCKED_WORLDS = 3  # other clocks are tried in every world whose number is a multiple of this

SALTED_WORLDS = 4  # the alternative hashes are tried in every world whose number is a multiple of this
SHIFTED_WORLDS = 4  # another origin of time is tried in every world whose number is one less than a multiple of this


def check(policy: str | NamedPolicy, worlds: int = 1000, *, timeout: float | None = None) -> list[Finding]:
    """Drive a policy through drawn worlds; return its faults, each in the smallest world that shows it.

    Parameters
    ----------
    policy
        Name of a shipped policy, or a user's class as `mine.py:Mine`.
    worlds
        Number of worlds.
    timeout
        Longest time of a decision [s]; None for no limit. It needs the main thread on Linux or macOS. A decision that
        cannot be stopped, as in compiled code, ends the process 2 s later.

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
    allowed = Allowed.under(traits_of(guest.make(afresh=True)))
    yield from _on_empty_cluster(guest, timeout)
    for number in worlds:
        begins(number)
        world = with_parameters(drawn(number, allowed), guest, number)
        faults = set(ALL_FAULTS)
        if number % SALTED_WORLDS:
            faults.discard(Fault.ORDER)
        if number % CLOCKED_WORLDS:
            faults.discard(Fault.CLOCK)
        if (number + 1) % SHIFTED_WORLDS:
            faults.discard(Fault.ORIGIN)
        yield from checked_world(guest, world, timeout=timeout, faults=faults)
    yield from growth_findings(guest, timeout, with_rigid=allowed.rigid)


def checked_world(
    policy: str | NamedPolicy, world: World, *, timeout: float | None = None, faults: Collection[Fault] = ALL_FAULTS
) -> list[Finding]:
    """Return the faults that a policy shows in one world; arguments as of `check`.

    Faults that need further runs are searched for only if they are among `faults`.
    """
    guest = named_policy(policy) if isinstance(policy, str) else policy
    make = partial(made, guest, world)
    try:
        run = partial(run_policy, world, timeout=timeout)
        observed = ObservedPolicy(make(afresh=True))
        watch = Watch(world, observed.policy)
        once = run(observed, watch=watch)
        shown = [*_starvation(once)]
        if Fault.CHANCE in faults:
            shown += _differing_runs(make, run, once, MORE_RUNS if len(world.jobs) <= FEW_JOBS else 1)
        elif Fault.MEMORY in faults:
            shown += _differing_runs(make, run, once, 1)
        if Fault.STANDING in faults and observed.had_lasting_decision and not shown:
            asked = run(AskedEveryRound(make(afresh=True)))
            if _course(asked) != _course(once):
                what = "before valid_until, it decides otherwise when it is called again"
                shown.append(Finding(Fault.STANDING, what))
        if Fault.ORDER in faults and not shown:
            shown += _order_dependence(make, world, timeout)
        if Fault.CLOCK in faults and not shown and scales_with_time(world, observed.policy):
            shown += _clock_dependence(guest, world, once, timeout)
        is_movable = all(job.past is None for job in world.jobs)
        if Fault.ORIGIN in faults and is_movable and not shown and not observed.traits.follows_clock:
            shown += origin_dependence(world, lambda other: run_policy(other, make(afresh=True), timeout))
        shown += watch.findings.values()
    except FoundError as error:
        shown = [error.finding]
    return [replace(finding, world=world) for finding in shown]


def made(guest: NamedPolicy, world: World, *, afresh: bool = False) -> Policy:
    """Return a new policy with the parameters of a world, inside an autoscaler if the world has one."""
    policy = guest.make(afresh=afresh, parameters=by_clock(world, guest))
    return Scaled(policy, PendingGpus(), idle_time=IDLE_TIME * world.clock) if world.is_scaled else policy


def _differing_runs(make: Make, run: Callable[[Policy], Result], once: Result, tries: int) -> Iterator[Finding]:
    """Yield a finding if one of `tries` further runs differs from the first, or a run in a used process does."""
    if any(run(make(afresh=True)) != once for _ in range(tries)):
        yield Finding(Fault.CHANCE, "two runs with the same seed differ: draw from rng, and use no clock")
    elif run(make()) != once:
        yield Finding(Fault.MEMORY, "a second run in one process differs: remember things in the policy only")


def _course(result: Result) -> tuple[object, object]:
    """Return the allocations of a run and the ends of its jobs. Sums over time differ by rounding with the calls."""
    jobs = [(job.job, job.status, job.start_time, job.end_time, job.num_restarts) for job in result.job_records]
    return result.allocation_records, jobs


def _clock_dependence(guest: NamedPolicy, world: World, once: Result, timeout: float | None) -> Iterator[Finding]:
    """Yield a finding if the run differs in more than the times where all times are multiplied by a factor."""
    for clock in CLOCKS:
        slower = replace(world, clock=clock)
        result = run_policy(slower, made(guest, slower, afresh=True), timeout)
        if (difference := difference_on_clock(once, result, clock)) is not None:
            what = f"with all times multiplied by {clock:.4g}, {difference}"
            yield Finding(Fault.CLOCK, f"{what}: compare computed times by view.has_come and view.reaches")
            return


def _order_dependence(make: Make, world: World, timeout: float | None) -> Iterator[Finding]:
    """Yield a finding if the result depends on the hashes of the names of jobs."""
    with suppress(FoundError):  # the policy may need names that are plain strings
        results = [run_policy(with_other_hashes(world, salt), make(), timeout) for salt in SALTS]
        if any(result != results[0] for result in results):
            yield Finding(Fault.ORDER, "the result depends on the order of a set of names, which no seed fixes")


def _starvation(result: Result) -> Iterator[Finding]:
    """Yield a finding if jobs are not complete at the end of a run."""
    left = [job.job for job in result.job_records if job.status is Status.CUT_OFF]
    if left:
        late = f"{len(left)} jobs, the first is {left[0]!r}, are not complete at {result.end_time:g} s"
        yield Finding(Fault.STARVATION, result.standstill or late)


def _on_empty_cluster(guest: NamedPolicy, timeout: float | None) -> Iterator[Finding]:
    """Yield a finding if the policy fails, or gives GPUs, while there are no jobs."""
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
    """Check a policy in a separate process. Yield the number of each world, and each finding as (sentence, test).

    Raises
    ------
    PolicyError
        If the policy ends the process.
    PolluxSimError
        If the check raises an error in the other process.
    """
    guest = named_policy(policy)  # here, because the other process does not know the user's configuration folders
    receiver, sender = Pipe(duplex=False)
    process = fresh().Process(target=_send_findings, args=(sender, dict(os.environ), guest, worlds, timeout))
    world = 0
    with ending_at_once(), ending_with(lambda: kill_worker(process) if process.is_alive() else None):
        with starting():
            process.start()
        sender.close()
        while True:
            try:
                kind, content = receiver.recv()
            except EOFError:
                process.join()
                or_hangs = "" if timeout is None else f", or could not be stopped after {timeout:g} s"
                where = f"in world {world}: polluxsim.checks.worlds.drawn({world}, …)"
                what = f"policy {policy} ended the process with status {process.exitcode}{or_hangs}"
                raise PolicyError(f"{what}, {where}") from None
            if kind == FAILED:
                raise PolluxSimError(content)
            if kind == DONE:
                return
            world = content if kind == BEGINS else world
            yield content


def _send_findings(
    sender: Connection, environment: Mapping[str, str], policy: NamedPolicy, worlds: int, timeout: float | None
) -> None:
    """Check a policy in this process, and send messages as pairs (kind, content)."""
    begin_worker(environment)
    try:
        for finding in found(policy, range(worlds), timeout, lambda number: sender.send((BEGINS, number))):
            sender.send((FOUND_FAULT, (f"{finding.fault}: {finding.message}", as_test(finding, policy.name))))
        sender.send((DONE, None))
    except PolluxSimError as error:
        sender.send((FAILED, str(error)))
