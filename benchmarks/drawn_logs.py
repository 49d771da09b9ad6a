"""Draw logs of clusters whose waits have a known cause, as output of sacct, without polluxsim.

python benchmarks/drawn_logs.py --cause user-limits --seed 3 > sacct.txt

A small simulation starts the jobs first come, first served (FIFO) or with EASY backfill, and obeys the cause:

none              every job may use every GPU
user-limits       a user may hold a limited number of GPUs at once; other jobs overtake the jobs that the limit holds
second-partition  two partitions share no GPU, and each has its own queue
cpu-jobs          jobs without GPUs hold nodes too, and wait in the same queue

Arrivals follow the hour, the weekday and a random factor of the day. Users have different shares of the jobs and
different durations. A time limit is a multiple of the duration. Each start is up to 20 s late, as in a real cluster.
Each node has one GPU, so that rules about the nodes of a job do not matter.
"""

from __future__ import annotations

import argparse
import sys
from bisect import insort
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple

import numpy as np

HOUR, DAY = 3600.0, 86400.0
CAUSES = ("none", "user-limits", "second-partition", "cpu-jobs")
FIRST = datetime(2026, 3, 2, tzinfo=UTC)  # a Monday
SIZES, SIZE_SHARES = (1, 2, 4, 8), (0.5, 0.2, 0.2, 0.1)  # GPUs of a job, and the share of the jobs
LATEST = 20.0  # largest delay of a start [s]


class Drawn(NamedTuple):
    """A job of a drawn log."""

    number: int
    submit: float  # [s]
    gpus: int  # GPUs, or nodes without GPUs for a CPU job
    duration: float  # [s]
    limit: float  # time limit [s]
    user: str
    partition: str = "gpu"
    is_cpu: bool = False
    late: float = 0.0  # delay of the start after the decision [s]


@dataclass(frozen=True)
class World:
    """The cluster behind a drawn log."""

    cause: str
    policy: str  # "fifo" or "easy"
    gpus: dict[str, int]  # by partition
    user_limit: float  # GPUs that a user may hold at once
    rates: dict[str, float]  # jobs per day by partition, and of CPU jobs under "cpu"
    users: int
    seed: int
    durations: tuple[float, float] = (1.2 * HOUR, 1.1)  # median [s], and deviation of the logarithm
    days: float = 21.0
    day_spread: float = 0.25  # deviation of the logarithm of a day's arrival rate
    typical: tuple[float, ...] = field(default=(), compare=False)  # factor of the durations by user


def mean_work(world: World) -> float:
    """Return the expected GPU time of a job [GPU s], from a large sample."""
    rng = np.random.default_rng(0)
    jobs = _of_kind(world, "gpu", 20_000 / world.rates["gpu"], rng, day_spread=0.0)
    return float(np.mean([job.gpus * job.duration for job in jobs]))


def draw_world(cause: str, seed: int, days: float = 21.0, policy: str | None = None) -> World:
    """Return a cluster with a cause of waits; the loads are high enough for long waits."""
    rng = np.random.default_rng([CAUSES.index(cause), seed])
    policy = policy or ("fifo", "easy")[int(rng.integers(2))]
    users = int(rng.integers(6, 15))
    typical = tuple(np.exp(rng.normal(0, 0.6, users)).tolist())
    total = int(rng.choice([24, 32, 48]))
    world = World(cause, policy, {"gpu": total}, inf, {"gpu": 100.0}, users, seed, days=days, typical=typical)
    per_job = mean_work(world)

    def rate(load: float, gpus: int) -> float:
        """Return the jobs per day that load a number of GPUs."""
        return load * gpus * DAY / per_job

    # FIFO cannot use all GPUs, because they stay idle for a large job at the head of the queue.
    usable = 0.8 if policy == "fifo" else 1.0
    if cause == "user-limits":
        # The largest user asks for most of the limit; the cluster itself is far from full.
        shares = _user_shares(users)
        load = rng.uniform(0.4, 0.6)
        asked = load * total * float((shares * typical).max() / (shares * typical).sum())
        limit = max(8.0, round(asked / rng.uniform(0.75, 0.95)))
        return replace(world, user_limit=limit, rates={"gpu": rate(load, total)})
    if cause == "second-partition":
        small = total // 3
        gpus = {"gpu": small, "long": total - small}
        rates = {
            "gpu": rate(usable * rng.uniform(0.7, 0.85), small),
            "long": rate(rng.uniform(0.3, 0.5), total - small),
        }
        return replace(world, gpus=gpus, rates=rates)
    if cause == "cpu-jobs":
        rates = {kind: rate(usable * rng.uniform(0.38, 0.48), total) for kind in ("gpu", "cpu")}
        return replace(world, rates=rates)
    return replace(world, rates={"gpu": rate(usable * rng.uniform(0.7, 0.9), total)})


def _user_shares(users: int) -> np.ndarray:
    shares = 1 / np.arange(1, users + 1)
    return shares / shares.sum()


def _of_kind(world: World, kind: str, days: float, rng: np.random.Generator, day_spread: float) -> list[Drawn]:
    """Return the jobs of one kind, "cpu" or the name of a partition, in order of submission."""
    hours = np.arange(round(days * 24))
    weight = 1 + 0.7 * np.sin((hours % 24 - 9) / 24 * 2 * np.pi)
    weight = weight * np.where(hours // 24 % 7 >= 5, 0.6, 1.16)
    by_day = np.exp(rng.normal(-(day_spread**2) / 2, day_spread, int(days) + 1))
    counts = rng.poisson(world.rates[kind] / 24 * weight * by_day[hours // 24])
    times = np.sort(np.repeat(hours, counts) * HOUR + rng.uniform(0, HOUR, int(counts.sum()))).round()
    count = len(times)
    users = rng.choice(world.users, size=count, p=_user_shares(world.users))
    median, spread = world.durations
    typical = np.array(world.typical)[users]
    durations = np.clip(median * typical * np.exp(rng.normal(0, spread, count)), 60, 1.5 * DAY).round()
    limits = (durations * np.exp(np.abs(rng.normal(0, 1, count)))).round() + 60
    gpus = rng.choice(SIZES, size=count, p=SIZE_SHARES)
    late = rng.uniform(0, LATEST, count).round()
    partition = "gpu" if kind == "cpu" else kind
    values = zip(times, gpus, durations, limits, users, late, strict=True)
    return [
        Drawn(0, float(time), int(size), float(duration), float(limit), f"user{user:02d}", partition, kind == "cpu",
              float(delay))
        for time, size, duration, limit, user, delay in values
    ]  # fmt: skip


def draw_jobs(world: World, days: float | None = None, stream: int = 1) -> list[Drawn]:
    """Return the jobs of a world in order of submission. `stream` chooses other draws of the same world."""
    rng = np.random.default_rng([world.seed, stream])
    length = world.days if days is None else days
    jobs = [job for kind in world.rates for job in _of_kind(world, kind, length, rng, world.day_spread)]
    jobs.sort(key=lambda job: job.submit)
    return [job._replace(number=number) for number, job in enumerate(jobs, start=1)]


def starts(world: World, jobs: list[Drawn]) -> list[float]:
    """Return the start of each job [s] under the policy and the cause of a world."""
    found = [0.0] * len(jobs)
    for partition, gpus in world.gpus.items():
        chosen = [index for index, job in enumerate(jobs) if job.partition == partition]
        times = _starts([jobs[index] for index in chosen], gpus, world.policy, world.user_limit)
        for index, time in zip(chosen, times, strict=True):
            found[index] = time
    return found


def _starts(jobs: list[Drawn], gpus: int, policy: str, user_limit: float) -> list[float]:
    """Return the start of each job [s] in one partition with a number of GPUs."""
    found = [0.0] * len(jobs)
    free = gpus
    held: dict[str, int] = {}
    waiting: list[int] = []
    ends: list[tuple[float, int]] = []
    planned: list[tuple[float, int]] = []  # ends by time limits, in order, and the number of the job
    coming = 0

    def start(index: int, now: float) -> None:
        nonlocal free
        job = jobs[index]
        found[index] = now + job.late
        free -= job.gpus
        held[job.user] = held.get(job.user, 0) + job.gpus
        heappush(ends, (now + job.late + job.duration, index))
        insort(planned, (now + job.late + job.limit, index))

    while coming < len(jobs) or waiting:
        now = min(jobs[coming].submit if coming < len(jobs) else inf, ends[0][0] if ends else inf)
        while coming < len(jobs) and jobs[coming].submit <= now:
            waiting.append(coming)
            coming += 1
        while ends and ends[0][0] <= now:
            _, index = heappop(ends)
            free += jobs[index].gpus
            held[jobs[index].user] -= jobs[index].gpus
            planned.remove((found[index] + jobs[index].limit, index))
        shadow, spare = inf, 0  # the reservation of the first job that has to wait for GPUs
        is_blocked = False
        still: list[int] = []
        for index in waiting:
            job = jobs[index]
            if held.get(job.user, 0) + job.gpus > user_limit:
                still.append(index)
            elif not is_blocked and job.gpus <= free:
                start(index, now)
            elif not is_blocked:
                is_blocked = True
                still.append(index)
                if policy == "easy":
                    shadow, spare = _reservation(job.gpus, free, planned, jobs)
            elif policy == "easy" and job.gpus <= free and (now + job.limit <= shadow or job.gpus <= spare):
                spare -= 0 if now + job.limit <= shadow else job.gpus
                start(index, now)
            else:
                still.append(index)
        waiting = still
    return found


def _reservation(gpus: int, free: int, planned: list[tuple[float, int]], jobs: list[Drawn]) -> tuple[float, int]:
    """Return when a number of GPUs is free by the time limits [s], and the GPUs that are free beyond them then."""
    for end, index in planned:
        free += jobs[index].gpus
        if free >= gpus:
            return end, free - gpus
    return inf, 0


def as_sacct(jobs: list[Drawn], begun: list[float]) -> str:
    """Return the output of `sacct --parsable2` about jobs, without the names of the partitions' GPUs."""
    head = (
        "JobID|JobName|User|Account|Partition|State|Submit|Eligible|Start|End|ElapsedRaw|TimelimitRaw|NNodes|AllocTRES"
    )
    lines = [head]
    for job, time in zip(jobs, begun, strict=True):
        submit, start, end = (
            (FIRST + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")
            for seconds in (job.submit, time, time + job.duration)
        )
        tres = f"cpu={job.gpus * 8},node={job.gpus}" + ("" if job.is_cpu else f",gres/gpu={job.gpus}")
        minutes = -(-int(job.limit) // 60)
        words = [job.number, "train", job.user, "lab", job.partition, "COMPLETED", submit, submit, start, end]
        lines.append("|".join(map(str, [*words, int(job.duration), minutes, job.gpus, tres])))
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cause", choices=CAUSES, default="none")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--days", type=float, default=21.0)
    options = parser.parse_args()
    world = draw_world(options.cause, options.seed, options.days)
    jobs = draw_jobs(world)
    print(as_sacct(jobs, starts(world, jobs)), end="")
    print(f"{world.policy} on {world.gpus} GPUs, limit of a user {world.user_limit:g}", file=sys.stderr)


if __name__ == "__main__":
    main()
