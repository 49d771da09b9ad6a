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
from polluxsim.checks.law_of_bounds import BestPossible
from polluxsim.checks.laws import RunLaws
from polluxsim.checks.origin import origin_dependence
from polluxsim.checks.parameters import by_clock, with_parameters
from polluxsim.checks.random_worlds import Allowed, random_world
from polluxsim.checks.shrinking import smallest
from polluxsim.checks.worlds import World
from polluxsim.common.errors import PolicyError, PolluxSimError, short
from polluxsim.engine.scenario import for_cluster
from polluxsim.policies.contract.policy import Policy, misspelt_members, traits_of
from polluxsim.policies.contract.view import ClusterView
from polluxsim.policies.elastic.cluster_size import IDLE_TIME, PendingGpus, Scaled
from polluxsim.records.results import Result, Status
from polluxsim.run.interrupt import ending_at_once, ending_with
from polluxsim.run.named_policies import NamedPolicy, named_policy
from polluxsim.run.workers import begin_worker, fresh, kill_worker, starting

Make = Callable[..., Policy]

ALL_FAULTS = frozenset(Fault)

# Values of `faults` for `checked_world` that require further runs or, for bounds, much time.
RUNS = {
    fault: (fault,)
    for fault in (Fault.CHANCE, Fault.MEMORY, Fault.STANDING, Fault.ORDER, Fault.CLOCK, Fault.ORIGIN, Fault.BOUND)
}

# In worlds of at most FEW_JOBS jobs, a search for chance makes MORE_RUNS further runs, because chance may not show.
FEW_JOBS = 4
MORE_RUNS = 12

SALTS = (1, 2, 3)  # alternative hashes of names
CLOCKED_WORLDS = 3  # other clocks are tried in every world whose number is a multiple of this

SALTED_WORLDS = 4  # the alternative hashes are tried in every world whose number is a multiple of this
BOUNDED_WORLDS = 5  # bounds are computed in every world whose number is a multiple of this
SHIFTED_WORLDS = 4  # another origin of time is tried in every world whose number is one less than a multiple of this


def check(policy: str | NamedPolicy, worlds: int = 1000, *, timeout: float | None = None) -> list[Finding]:
    """Run a policy in random worlds, and return its faults, one of each kind, each in a small world that shows it.

    The search for a small world has limits of time and tries. After a decision that takes longer than `timeout`, no
    further faults are searched for.

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
    """Yield the findings of `check` one by one, in the worlds of some numbers.

    `begins` is called with the number of each world before its runs.
    """
    guest = named_policy(policy) if isinstance(policy, str) else policy
    reported_kinds = set()
    for finding in _all_findings(guest, worlds, timeout, begins):
        if finding.kind in reported_kinds:
            continue
        reported_kinds.add(finding.kind)
        if finding.world is None:
            yield finding
        else:
            # The search for a smaller world repeats only the runs that can show this fault.
            again = partial(checked_world, guest, timeout=timeout, faults=RUNS.get(finding.fault, ()))
            yield smallest(finding, finding.world, again)
        if finding.fault is Fault.HANG:  # each further finding of this kind would take as long as the first
            return


def _all_findings(
    guest: NamedPolicy, worlds: Iterable[int], timeout: float | None, begins: Callable[[int], object]
) -> Iterator[Finding]:
    """Yield all findings of a policy, of one kind several times; arguments as of `found`."""
    policy = guest.make(afresh=True)
    allowed = Allowed.under(traits_of(policy))
    # First the faults that take no run to find, and the growth last, because it takes the most time.
    sentences = misspelt_members(policy)
    if sentences:
        yield Finding(Fault.MEMBER, "; ".join(sentences))
    yield from _on_empty_cluster(guest, timeout)
    for number in worlds:
        begins(number)
        world = with_parameters(random_world(number, allowed), guest, number)
        # Each of these faults takes further runs, and most faults show in many worlds.
        faults = set(ALL_FAULTS)
        if number % SALTED_WORLDS:
            faults.discard(Fault.ORDER)
        if number % CLOCKED_WORLDS:
            faults.discard(Fault.CLOCK)
        if (number + 1) % SHIFTED_WORLDS:
            faults.discard(Fault.ORIGIN)
        if number % BOUNDED_WORLDS:
            faults.discard(Fault.BOUND)
        yield from checked_world(guest, world, timeout=timeout, faults=faults)
    yield from growth_findings(guest, timeout, with_rigid=allowed.rigid)


def checked_world(
    policy: str | NamedPolicy, world: World, *, timeout: float | None = None, faults: Collection[Fault] = ALL_FAULTS
) -> list[Finding]:
    """Return the faults that a policy shows in one world; arguments as of `check`.

    The faults of `RUNS`, which need further runs or bounds, are searched for only if they are among `faults`, and those
    that compare runs only as long as no fault is found before. If the policy fails, this is the only finding.
    """
    guest = named_policy(policy) if isinstance(policy, str) else policy
    make = partial(made, guest, world)
    try:
        run = partial(run_policy, world, timeout=timeout)
        observed = ObservedPolicy(make(afresh=True))
        laws = RunLaws(world, observed.policy)
        once = run(observed, laws=laws)
        findings = list(_starvation(once))
        if Fault.CHANCE in faults:
            tries = MORE_RUNS if len(world.jobs) <= FEW_JOBS else 1
            findings += _differing_runs(make, run, once, tries)
        elif Fault.MEMORY in faults:
            findings += _differing_runs(make, run, once, 1)
        # Each further check compares another run with the first one. Chance or memory makes the runs differ anyway, so
        # a check is made only if the checks before it found nothing.
        if Fault.STANDING in faults and observed.had_lasting_decision and not findings:
            asked_every_round = run(AskedEveryRound(make(afresh=True)))
            if _course(asked_every_round) != _course(once):
                message = "before valid_until, it decides otherwise when it is called again"
                findings.append(Finding(Fault.STANDING, message))
        if Fault.ORDER in faults and not findings:
            findings += _order_dependence(make, world, timeout)
        if Fault.CLOCK in faults and not findings and scales_with_time(world, observed.policy):
            findings += _clock_dependence(guest, world, once, timeout)
        # Jobs from before the run fix its start at 0 s.
        is_movable = all(job.past is None for job in world.jobs)
        if Fault.ORIGIN in faults and is_movable and not findings and not observed.traits.follows_clock:
            findings += origin_dependence(world, lambda other: run_policy(other, make(afresh=True), timeout))
        findings += laws.findings.values()
        if Fault.BOUND in faults:
            findings += BestPossible(world, observed.policy).check_end(once)
    except FoundError as error:
        findings = [error.finding]
    return [replace(finding, world=world) for finding in findings]


def made(guest: NamedPolicy, world: World, *, afresh: bool = False) -> Policy:
    """Return a new policy with the parameters of a world, inside an autoscaler if the world has one."""
    policy = guest.make(afresh=afresh, parameters=by_clock(world, guest))
    if world.is_scaled:
        policy = Scaled(policy, PendingGpus(), idle_time=IDLE_TIME * world.clock)
    return for_cluster(policy, world.cluster)


def _differing_runs(make: Make, run: Callable[[Policy], Result], once: Result, tries: int) -> Iterator[Finding]:
    """Yield a finding if one of `tries` further runs differs from the first, or a run that reuses the modules does."""
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
        difference = difference_on_clock(once, result, clock)
        if difference is not None:
            differs = f"with all times multiplied by {clock:.4g}, {difference}"
            yield Finding(Fault.CLOCK, f"{differs}: compare computed times by view.has_come and view.reaches")
            return


def _order_dependence(make: Make, world: World, timeout: float | None) -> Iterator[Finding]:
    """Yield a finding if the result depends on the hashes of the names of jobs."""
    with suppress(FoundError):  # the policy may need names that are plain strings
        results = [run_policy(with_other_hashes(world, salt), make(), timeout) for salt in SALTS]
        if any(result != results[0] for result in results):
            yield Finding(Fault.ORDER, "the result depends on the order of a set of names, which no seed fixes")


def _starvation(result: Result) -> Iterator[Finding]:
    """Yield a finding if the end of a run cuts off jobs."""
    incomplete = [job.job for job in result.job_records if job.status is Status.CUT_OFF]
    if incomplete:
        late = f"{len(incomplete)} jobs, the first is {incomplete[0]!r}, are not complete at {result.end_time:g} s"
        yield Finding(Fault.STARVATION, result.standstill or late)


def _on_empty_cluster(guest: NamedPolicy, timeout: float | None) -> Iterator[Finding]:
    """Yield a finding if the policy fails, returns no mapping or gives GPUs while there are no jobs."""
    view = ClusterView(0.0, (4, 2), [], round_interval=60.0)
    try:
        answer = decision_of(guest.make(afresh=True), view, np.random.default_rng(0), timeout)
    except FoundError as error:
        yield Finding(Fault.EMPTY, f"without jobs: {error.finding.message}")
        return
    allocation = getattr(answer, "allocation", answer)
    if not isinstance(allocation, Mapping) or any(allocation.values()):
        yield Finding(Fault.EMPTY, f"without jobs, it answers {short(allocation)}")


BEGINS, FOUND_FAULT, FAILED, DONE = range(4)  # kinds of messages from the other process


def found_apart(policy: str, worlds: int, timeout: float | None = None) -> Iterator[tuple[str, str] | int]:
    """Check a policy in a separate process. Yield the number of each world, and each finding as (sentence, test).

    `worlds` is the number of worlds.

    Raises
    ------
    PolicyError
        If the policy ends the process.
    PolluxSimError
        If the policy does not exist, or the check raises an error in the other process.
    """
    # Looked up here, because the other process does not know the user's configuration folders.
    guest = named_policy(policy)
    receiver, sender = Pipe(duplex=False)
    process = fresh().Process(target=_send_findings, args=(sender, dict(os.environ), guest, worlds, timeout))
    world = 0
    with ending_at_once(), ending_with(lambda: kill_worker(process) if process.is_alive() else None):
        with starting():
            process.start()
        # The other process has its own copy. While this one is open, `recv` would not notice the end of the process.
        sender.close()
        while True:
            try:
                kind, content = receiver.recv()
            except EOFError:
                process.join()
                ended = f"policy {policy} ended the process with status {process.exitcode}"
                if timeout is not None:
                    ended += f", or could not be stopped after {timeout:g} s"
                where = f"in world {world}: polluxsim.checks.random_worlds.random_world({world}, …)"
                raise PolicyError(f"{ended}, {where}") from None
            if kind == FAILED:
                raise PolluxSimError(content)
            if kind == DONE:
                return
            if kind == BEGINS:
                world = content
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
