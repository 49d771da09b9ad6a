"""All checks of one policy: in one world, in many worlds, on an empty cluster, and of the time of decisions."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from polluxsim.checks.driving import AskedEveryRound, FoundError, Noted, decided, driven, salted
from polluxsim.checks.findings import Fault, Finding
from polluxsim.checks.growth import growing
from polluxsim.checks.laws import Watch
from polluxsim.checks.parameters import with_parameters
from polluxsim.checks.shrinking import smallest
from polluxsim.checks.worlds import Allowed, drawn
from polluxsim.errors import short
from polluxsim.policies.scaling import PendingGpus, Scaled
from polluxsim.policies.view import ClusterView, traits_of
from polluxsim.records import Status
from polluxsim.run.named_policy import NamedPolicy, named_policy

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from polluxsim.checks.worlds import World
    from polluxsim.policies.view import Policy
    from polluxsim.records import Result

    Make = Callable[..., Policy]

ALL, MOST = frozenset(Fault), frozenset(Fault) - {Fault.ORDER}
RUNS = {fault: (fault,) for fault in (Fault.CHANCE, Fault.MEMORY, Fault.STANDING, Fault.ORDER)}
"""Faults that need further runs, as the faults of `checked_world` that search for them."""

FEW, TRIES = 4, 12
"""In worlds of at most `FEW` jobs, a search for chance makes `TRIES` further runs, because chance may not show."""

SALTS, SALTED = (1, 2, 3), 4
"""Hashes of names that are tried, and the distance between the worlds in which they are tried."""


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
    """Yield the findings of `check` one by one; call `begins` with the number of each world before it begins."""
    guest = named_policy(policy) if isinstance(policy, str) else policy
    known = set()
    for finding in _everywhere(guest, worlds, timeout, begins):
        if finding.kind not in known:
            known.add(finding.kind)
            again = partial(checked_world, guest, timeout=timeout, faults=RUNS.get(finding.fault, ()))
            yield finding if finding.world is None else smallest(finding, finding.world, again)
            if finding.fault is Fault.HANG:  # each further finding of this kind would take as long
                return


def _everywhere(
    guest: NamedPolicy, worlds: Iterable[int], timeout: float | None, begins: Callable[[int], object]
) -> Iterator[Finding]:
    allowed = Allowed.under(traits_of(guest.make()))
    yield from _on_empty(guest, timeout)
    for number in worlds:
        begins(number)
        world = with_parameters(drawn(number, allowed), guest, number)
        yield from checked_world(guest, world, timeout=timeout, faults=ALL if number % SALTED == 0 else MOST)
    yield from growing(guest, timeout, with_rigid=allowed.rigid)


def checked_world(
    policy: str | NamedPolicy, world: World, *, timeout: float | None = None, faults: Collection[Fault] = ALL
) -> list[Finding]:
    """Return the faults that a policy shows in one world; arguments as of `check`.

    Faults that need further runs are searched for only if they are among `faults`.
    """
    guest = named_policy(policy) if isinstance(policy, str) else policy
    make = partial(_made, guest, world)
    try:
        run = partial(driven, world, timeout=timeout)
        noted = Noted(make(afresh=True))
        watch = Watch(world, noted.policy)
        once = run(noted, watch=watch)
        shown = [*_starving(once)]
        if Fault.CHANCE in faults:
            shown += _differing(make, run, once, TRIES if len(world.jobs) <= FEW else 1)
        elif Fault.MEMORY in faults:
            shown += _differing(make, run, once, 1)
        if Fault.STANDING in faults and noted.stood and not shown:
            shown += _wavering(make, run, once)
        if Fault.ORDER in faults and not shown:
            shown += _by_order(make, world, timeout)
        shown += watch.findings.values()
    except FoundError as error:
        shown = [error.finding]
    return [replace(finding, world=world) for finding in shown]


def _made(guest: NamedPolicy, world: World, *, afresh: bool = False) -> Policy:
    """Return a new policy with the parameters of a world, inside an autoscaler if the world has one."""
    policy = guest.make(afresh=afresh, parameters=dict(world.parameters))
    return Scaled(policy, PendingGpus()) if world.is_scaled else policy


def _differing(make: Make, run: Callable[[Policy], Result], once: Result, tries: int) -> Iterator[Finding]:
    if any(run(make(afresh=True)) != once for _ in range(tries)):
        yield Finding(Fault.CHANCE, "two runs with the same seed differ: draw from rng, and use no clock")
    elif run(make()) != once:
        yield Finding(Fault.MEMORY, "a second run in one process differs: remember things in the policy only")


def _wavering(make: Make, run: Callable[[Policy], Result], once: Result) -> Iterator[Finding]:
    if run(AskedEveryRound(make(afresh=True))) != once:
        yield Finding(Fault.STANDING, "before valid_until, it decides otherwise when it is called again")


def _by_order(make: Make, world: World, timeout: float | None) -> Iterator[Finding]:
    with suppress(FoundError):  # the policy may need names that are plain strings
        results = [driven(salted(world, salt), make(), timeout) for salt in SALTS]
        if any(result != results[0] for result in results):
            yield Finding(Fault.ORDER, "the result depends on the order of a set of names, which no seed fixes")


def _starving(result: Result) -> Iterator[Finding]:
    left = [job.job for job in result.job_records if job.status is Status.CUT_OFF]
    if left:
        late = f"{len(left)} jobs, the first is {left[0]!r}, are not complete at {result.end_time:g} s"
        yield Finding(Fault.STARVATION, result.standstill or late)


def _on_empty(guest: NamedPolicy, timeout: float | None) -> Iterator[Finding]:
    view = ClusterView(0.0, (4, 2), [], 30.0, round_interval=60.0)
    try:
        answer = decided(guest.make(afresh=True), view, np.random.default_rng(0), timeout)
    except FoundError as error:
        yield Finding(Fault.EMPTY, f"without jobs: {error.finding.message}")
        return
    given = getattr(answer, "allocation", answer)
    if not isinstance(given, Mapping) or any(given.values()):
        yield Finding(Fault.EMPTY, f"without jobs, it answers {short(given)}")
