"""How the time of a decision grows, with the jobs that wait and with the rounds that are over."""

from __future__ import annotations

from math import inf, log
from statistics import median
from time import process_time
from typing import TYPE_CHECKING, NamedTuple

from polluxsim.checks.driving import AskedEveryRound, FoundError, begun, take_turn
from polluxsim.checks.findings import Fault, Finding
from polluxsim.checks.worlds import World
from polluxsim.engine.policy_calls import rare_collections
from polluxsim.workloads.workload import Job

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from polluxsim.run.named_policy import NamedPolicy

SIZES = (60, 250, 1000, 4000)
"""Jobs on a quarter of the GPUs that they ask for."""

PATIENCE = 0.5
"""Where getting to a decision takes longer than this, no more jobs are tried [s]."""

SHARE, GPUS = 4, 4

STEEPEST = 1.7
"""Decisions whose time grows with a higher power of the jobs are found …"""

SHORTEST = 0.1
"""… where they take longer than this [s]."""

SUSPECT, AGAIN = 1.2, 4
"""From this power on both are measured so many times more: a busy machine may have made either decision long."""

MEASURED = 3
"""Times that a growth is to be found one after the other."""

ROUNDS, WINDOW = 1500, 100
"""A steady cluster is looked at for so long, and its last so many rounds are compared with early ones."""

LONGEST = 1.5
"""What seems to take longer than this is not waited for [s]."""

ALL_ROUNDS = 20.0
"""Rounds whose decisions take longer than this together are not waited for [s]."""

SLOWER, LEAST = 2.0, 2e-5
"""Late decisions may take so many times as long as early ones, and so much longer [s]."""


class Decided(NamedTuple):
    """Processor time of a decision, and all that went into getting there [s]."""

    seconds: float
    spent: float

    def least(self, other: Decided) -> Decided:
        """Return the least of each."""
        return Decided(min(self.seconds, other.seconds), min(self.spent, other.spent))


def growing(guest: NamedPolicy, timeout: float | None = None, *, with_rigid: bool) -> Iterator[Finding]:
    """Yield what is found of a policy's decision times; arguments as of `checking.found` and `worlds.drawn`."""
    try:
        yield from _confirmed(lambda: _by_jobs(guest, timeout, with_rigid=with_rigid))
        yield from _confirmed(lambda: _by_rounds(guest, timeout, with_rigid=with_rigid))
    except FoundError as error:  # a drawn world may show it smaller
        yield error.finding


def _confirmed(measured: Callable[[], Finding | None]) -> Iterator[Finding]:
    """Yield what is found each time that it is measured: a busy machine may be slow for once, or for twice."""
    for left in reversed(range(MEASURED)):
        if (finding := measured()) is None:
            return
        if not left:
            yield finding


def _by_jobs(guest: NamedPolicy, timeout: float | None, *, with_rigid: bool) -> Finding | None:
    def decided(size: int) -> Decided:
        world = World((GPUS,) * (size // SHARE // GPUS), tuple(_jobs(size, 600.0, with_rigid=with_rigid)))
        return _second_decision(guest, world, timeout)

    small, before = 0, Decided(0.0, inf)
    for size in SIZES:
        now = decided(size)
        if not small or now.spent < PATIENCE:  # the first may have had to compile
            now = now.least(decided(size))
        if now.seconds > SHORTEST and small and _power(size, now, small, before) > SUSPECT:
            for _ in range(AGAIN):  # in turn, the small one last, as a machine that was slow may be fast from now on
                now = now.least(decided(size))
                before = before.least(decided(small))
            if (power := _power(size, now, small, before)) > STEEPEST:
                what = f"of {size} jobs takes {now.seconds:.2g} s, of {small} {before.seconds:.2g} s"
                return Finding(Fault.GROWTH, f"a decision {what}: by a power of {power:.1f}")
        if now.spent > PATIENCE or now.spent * now.spent / before.spent > LONGEST:
            break
        small, before = size, now
    return None


def _power(size: int, now: Decided, small: int, before: Decided) -> float:
    return log(now.seconds / before.seconds) / log(size / small)


def _second_decision(guest: NamedPolicy, world: World, timeout: float | None) -> Decided:
    """Return the time of a decision about jobs that are known already."""
    started = process_time()
    policy = AskedEveryRound(guest.make(afresh=True))
    with rare_collections():  # going through what others hold may take longer than a decision
        run = begun(world, policy)
        for _ in range(2):
            seconds = take_turn(run, policy, run.advance(), timeout)  # type: ignore[arg-type]
    return Decided(seconds, process_time() - started)


def _by_rounds(guest: NamedPolicy, timeout: float | None, *, with_rigid: bool) -> Finding | None:
    policy = AskedEveryRound(guest.make(afresh=True))
    world = World((2,), tuple(_jobs(3, 2 * ROUNDS * 60.0, with_rigid=with_rigid)))
    run = begun(world, policy)
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
    what = f"nothing happens for {ROUNDS} rounds, and a decision takes {late:.2g} s instead of {early:.2g} s"
    return Finding(Fault.GROWTH, what)


def _jobs(count: int, duration: float, *, with_rigid: bool) -> Iterator[Job]:
    for index in range(count):
        if with_rigid:
            yield Job.rigid(f"job-{index}", 0.0, 1, duration)
        else:
            yield Job(f"job-{index}", 0.0, "toy", 1, 10)
