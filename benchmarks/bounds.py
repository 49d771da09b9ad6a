"""Compare bounds with the best schedules of tiny worlds, and with runs in random worlds.

    python benchmarks/bounds.py [--tiny N] [--worlds N]

`--tiny N` finds the best schedule of N rigid and N elastic worlds by trying all schedules that change at whole units of
time. It prints the gaps, and exits with 1 if a bound is above a best schedule, or if the median gap of rigid worlds
exceeds 5 %. 300 worlds of each kind take two minutes.

`--worlds N` runs each shipped policy in random worlds of `polluxsim check`, with failures and GPU types, N worlds in
total. It exits with 1 if a run is below its bound. 1,000 worlds take some minutes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import product
from statistics import median

import numpy as np
from check_worlds import SHIPPED

from polluxsim.checks.checking import made
from polluxsim.checks.driving import FoundError, run_policy
from polluxsim.checks.law_of_bounds import BestPossible
from polluxsim.checks.parameters import with_parameters
from polluxsim.checks.random_worlds import Allowed, random_world
from polluxsim.policies.contract.policy import traits_of
from polluxsim.run.named_policies import NamedPolicy, named_policy
from polluxsim.statistics.bounds.bounding import MetricBound, bounds_of
from polluxsim.statistics.bounds.measures import measures_of
from polluxsim.statistics.bounds.problem import BoundProblem, Capacity, JobLimits
from polluxsim.statistics.bounds.speeds import SpeedBounds

UNIT = 60.0  # length of the unit of time of tiny worlds [s]
TOLERANCE = 1e-6
MOST_MEDIAN_GAP = 0.05  # of rigid worlds
TIME_LIMIT = 1.0  # of the search for prices in a tiny world [s]
SEARCH = 0.2  # of the search for prices in a random world [s]


@dataclass(frozen=True)
class TinyJob:
    """A job that does the work of its stretches in turn."""

    arrival: int  # [units of time]
    stretches: tuple[tuple[int, tuple[tuple[tuple[int, int], int], ...]], ...]  # work and rates of each stretch
    deadline: int  # [units of time]

    @property
    def works(self) -> tuple[Fraction, ...]:
        """Return the work of the stretches."""
        return tuple(Fraction(work) for work, _ in self.stretches)


@dataclass(frozen=True)
class TinyWorld:
    """A few jobs, and the GPUs of each pool in each unit of time; the last numbers hold for ever."""

    jobs: tuple[TinyJob, ...]
    gpus: tuple[tuple[int, ...], ...]  # by unit of time and pool

    def problem(self) -> BoundProblem:
        """Return the world as the bounds see it."""
        jobs = tuple(self._limits(job) for job in self.jobs)
        times = np.array([-np.inf, *(UNIT * time for time in range(1, len(self.gpus)))])
        return BoundProblem(jobs, Capacity(times, np.array(self.gpus, float).T))

    def _limits(self, job: TinyJob) -> JobLimits:
        pools = sorted({mode[0] for _, rates in job.stretches for mode, _ in rates})
        speeds = {}
        for pool in pools:
            counts = sorted({mode[1] for _, rates in job.stretches for mode, _ in rates if mode[0] == pool})
            table = [[dict(rates).get((pool, count), 0) / UNIT for count in counts] for _, rates in job.stretches]
            speeds[pool] = SpeedBounds(tuple(counts), np.array(table))
        measures = measures_of(np.array([float(work) for work, _ in job.stretches]), speeds)
        submit = job.arrival * UNIT
        return JobLimits(submit, submit, measures[0].work, measures, job.deadline * UNIT)


def rigid_world(number: int) -> TinyWorld:
    """Return a random world of rigid jobs; in every third world, nodes are down for a time or there are two pools."""
    rng = np.random.default_rng([1, number])
    most = int(rng.integers(2, 5))
    pools = 2 if number % 6 == 5 else 1
    gpus = [(most,) * pools]
    if number % 3 == 1:
        gpus = [(int(rng.integers(0, most + 1)),) for _ in range(4)] + gpus
    jobs = []
    for _ in range(int(rng.integers(2, 5 if pools == 1 else 4))):
        count = int(rng.integers(1, most + 1))
        rates = tuple(((pool, count), int(rng.integers(1, 3)) if pools > 1 else 1) for pool in range(pools))
        arrival = int(rng.integers(0, 9))
        work = int(rng.integers(1, 5))
        jobs.append(TinyJob(arrival, ((work, rates),), arrival + work + int(rng.integers(0, 4))))
    return TinyWorld(tuple(jobs), tuple(gpus))


def elastic_world(number: int) -> TinyWorld:
    """Return a random world of jobs of one or two stretches with speeds by number of GPUs."""
    rng = np.random.default_rng([2, number])
    most = int(rng.integers(2, 4))
    gpus = [(most,)]
    if number % 4 == 1:
        gpus = [(int(rng.integers(0, most + 1)),) for _ in range(3)] + gpus
    jobs = []
    count = int(rng.integers(2, 4))
    for _ in range(count):
        stretches = []
        for _ in range(1 if count == 3 else int(rng.integers(1, 3))):
            speeds = rng.choice([1, 2, 4], most).tolist()
            rates = tuple(((0, gpus_held + 1), speed) for gpus_held, speed in enumerate(speeds))
            stretches.append((int(rng.integers(2, 7)), rates))
        arrival = int(rng.integers(0, 3))
        jobs.append(TinyJob(arrival, tuple(stretches), arrival + int(rng.integers(1, 8))))
    return TinyWorld(tuple(jobs), tuple(gpus))


def best(world: TinyWorld) -> dict[str, float]:
    """Return the best mean JCT [s], makespan [s] and number of deadlines of all schedules with changes at whole units.

    A job may end between two units; its GPUs are then idle until the next unit.
    """
    jobs = world.jobs
    first = min(job.arrival for job in jobs)

    def search(objective: str) -> float:
        @cache
        def cost(time: int, left: tuple[tuple[Fraction, ...], ...]) -> Fraction:
            if not any(left):
                return Fraction(0)
            least = None
            for after, ends in steps(world, time, left):
                if after == left and all(job.arrival <= time for job in jobs) and time >= len(world.gpus):
                    continue  # a unit in which nothing runs is never needed when nothing changes any more
                later = cost(time + 1, after)
                if objective == "avg_jct":
                    total = later + sum(end - jobs[job].arrival for job, end in ends)
                elif objective == "makespan":
                    total = max([later, *(end - first for _, end in ends)])
                else:
                    total = later - sum(end <= jobs[job].deadline for job, end in ends)
                if least is None or total < least:
                    least = total
            assert least is not None
            return least

        return float(cost(first, tuple(job.works for job in jobs)))

    return {
        "avg_jct": search("avg_jct") / len(jobs) * UNIT,
        "makespan": search("makespan") * UNIT,
        "deadlines_met": -search("deadlines_met"),
    }


def steps(
    world: TinyWorld, time: int, left: tuple[tuple[Fraction, ...], ...]
) -> Iterator[tuple[tuple[tuple[Fraction, ...], ...], list[tuple[int, Fraction]]]]:
    """Yield the work that is left after a unit of time, and the jobs that end in it with their ends."""
    up = world.gpus[min(time, len(world.gpus) - 1)]
    choices: list[Sequence[tuple[int, int] | None]] = []
    for job, works in zip(world.jobs, left, strict=True):
        modes: list[tuple[int, int] | None] = [None]
        if works and job.arrival <= time:
            modes += [mode for mode, _ in job.stretches[-1][1]]
        choices.append(modes)
    for chosen in product(*choices):
        used = [0] * len(up)
        for mode in chosen:
            if mode is not None:
                used[mode[0]] += mode[1]
        if any(use > there for use, there in zip(used, up, strict=True)):
            continue
        after = []
        ends = []
        for number, (job, works, mode) in enumerate(zip(world.jobs, left, chosen, strict=True)):
            rest, end = (works, None) if mode is None else advanced(job, works, mode, time)
            after.append(rest)
            if end is not None:
                ends.append((number, end))
        yield tuple(after), ends


def advanced(
    job: TinyJob, works: tuple[Fraction, ...], mode: tuple[int, int], time: int
) -> tuple[tuple[Fraction, ...], Fraction | None]:
    """Return the work of a job that is left after a unit of time, and its end if it ends."""
    passed = Fraction(0)
    rest = list(works)
    while rest:
        rates = dict(job.stretches[len(job.stretches) - len(rest)][1])
        need = rest[0] / rates[mode]
        if passed + need > 1:
            rest[0] -= (1 - passed) * rates[mode]
            return tuple(rest), None
        passed += need
        rest.pop(0)
        if not rest:
            return (), time + passed
    return (), None


def above_the_best(world: TinyWorld) -> tuple[list[str], dict[str, MetricBound], dict[str, float]]:
    """Return the metrics of a world whose bound is better than the best schedule, all bounds, and the best values."""
    bounds = bounds_of(world.problem(), time_limit=TIME_LIMIT)
    values = best(world)
    return [name for name, value in values.items() if bounds[name].is_broken_by(value, TOLERANCE)], bounds, values


def tiny(count: int) -> bool:
    """Compare bounds with the best schedules of tiny worlds, and return whether all is well."""
    is_well = True
    for kind, make in (("rigid", rigid_world), ("elastic", elastic_world)):
        gaps = []
        for number in range(count):
            world = make(number)
            broken, bounds, values = above_the_best(world)
            if broken:
                print(f"{kind} world {number}: the bounds on {', '.join(broken)} are better than the best schedule")
                for name in broken:
                    print(f"    {name}: {dict(bounds[name].parts)}, best {values[name]}")
                is_well = False
            gaps.append(values["avg_jct"] / bounds["avg_jct"].value - 1)
        print(f"{count} {kind} worlds: gap of the mean JCT: median {median(gaps):.1%}, largest {max(gaps):.1%}")
        if kind == "rigid" and median(gaps) > MOST_MEDIAN_GAP:
            is_well = False
    return is_well


@cache
def shipped(policy: str) -> NamedPolicy:
    """Return a shipped policy."""
    return named_policy(policy)


def below_the_bound(policy: str, number: int, time_limit: float) -> list[str] | None:
    """Return sentences on the metrics in which the run of a policy in a random world is better than its bound.

    None if the policy does not complete the world.
    """
    guest = shipped(policy)
    world = with_parameters(random_world(number, Allowed.under(traits_of(guest.make()))), guest, number)
    try:
        result = run_policy(world, made(guest, world))
    except FoundError:
        return None
    law = BestPossible(world, guest.make(), time_limit)
    return [finding.message for finding in law.check_end(result)]


def worlds(count: int) -> bool:
    """Run the shipped policies in turn in random worlds, and return whether no run is below its bound."""
    broken = 0
    incomplete = 0
    for number in range(count):
        policy = SHIPPED[number % len(SHIPPED)]
        messages = below_the_bound(policy, number, SEARCH)
        if messages is None:
            incomplete += 1
            continue
        for message in messages:
            print(f"{policy} in world {number}: {message}")
        broken += bool(messages)
    print(f"{count} random worlds, {len(SHIPPED)} policies: {broken} runs below a bound, {incomplete} did not complete")
    return not broken


def main() -> None:
    """Compare, and exit with 1 if a bound is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", type=int, default=0, metavar="N", help="tiny worlds of each kind")
    parser.add_argument("--worlds", type=int, default=0, metavar="N", help="random worlds of polluxsim check")
    options = parser.parse_args()
    is_well = True
    if options.tiny:
        is_well &= tiny(options.tiny)
    if options.worlds:
        is_well &= worlds(options.worlds)
    sys.exit(0 if is_well else 1)


if __name__ == "__main__":
    main()
