"""One job under each agent, beside what the noise scale allows at best.

    python benchmarks/agents.py [--gpus 4] [--data ../shared/data] [--mixed]

By the cards that come with polluxsim, or by measurements where --data is given. Every application has its GPUs on one
node to itself, and starts at its initial batch size, or the least that so many GPUs can have. Per agent: the time of
training, without the wait for the first round and the start, over the least time that any batch sizes give, chosen anew
for every epoch; optimiser steps and examples; and the examples over the least that any batch sizes need for so many
steps. That frontier of steps and examples is the one of McCandlish et al. (2018), with a noise scale for every epoch
(and batch size, where a profile knows it).

With --mixed, on a node of so many T4 and one of so many A100, by the cards: the time of training at half the largest
batch size on each of them alone, on both with equal parts and under OmniLearn, all over the least that any parts give.
"""

from __future__ import annotations

import argparse
from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

import polluxsim
from polluxsim.agent.rules import FixedBatch, OmniLearn
from polluxsim.applications.folder import ProfileFolder
from polluxsim.hardware.clusters import Cluster
from polluxsim.hardware.placements import BatchChoice
from polluxsim.look.job_progress import progress_of
from polluxsim.models.batch_size import split_by_weight
from polluxsim.models.efficiency import gain
from polluxsim.models.profile import ProfileRangeError, by_type
from polluxsim.workloads.workload import Job, Workload

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from polluxsim.agent.rules import BatchRule
    from polluxsim.hardware.placements import Placement
    from polluxsim.models.profile import Profile
    from polluxsim.policies.contract.view import ClusterView
    from polluxsim.records.results import Result

TYPES = ("t4", "a100-40")
AGENTS = ("fixed", "adabatch", "kungfu", "pollux")
DELAY = 30.0


class Cost(NamedTuple):
    """Time of training [s], optimiser steps, and examples of a whole training."""

    time: float
    steps: float
    examples: float


def cost_of(result: Result, profile: Profile) -> Cost:
    """Return what a job that never changed its GPUs took, worked out from the records of its run."""
    (job,) = result.job_records
    rows = list(result.allocation_records)
    life, times = progress_of(result, job, profile, DELAY), [row.time for row in rows]
    examples, steps, init = 0.0, 0.0, profile.application.init_batch_size
    pieces = zip(life.edges, life.efficiency, pairwise(life.progress), strict=False)
    for begin, efficiency, (low, high) in pieces:
        if high > low:
            examples += (high - low) * init / efficiency
            steps += (high - low) * init / efficiency / rows[bisect_right(times, begin) - 1].batch_size
    return Cost(job.completion_time - job.start_time - DELAY, steps, examples)


class Bound:
    """What any choice of batch sizes, epoch by epoch, needs at least on GPUs of one node."""

    def __init__(self, profile: Profile, gpus: int) -> None:
        limits, self._gpus = profile.application, gpus
        found = list(_choices(profile, gpus))
        sizes = np.array([size for size, _ in found], dtype=float)
        epochs = range(limits.num_epochs)
        gains = np.array([
            [gain(profile.gradient_statistics(size, epoch), size / limits.init_batch_size) for size, _ in found]
            for epoch in epochs
        ])  # fmt: skip
        lengths = np.diff([0.0, *map(profile.epoch_end, epochs)])
        self.steps: NDArray[np.float64] = lengths[:, None] / gains  # of each epoch at each batch size
        self.examples = self.steps * sizes
        self.time = float((self.steps * np.array([time for _, time in found])).min(axis=1).sum())

    def least_examples(self, steps: float) -> float:
        """Return the least examples of a training of at most so many steps."""
        low, high = 1e-12, 1e12  # what a step is worth in examples; few enough steps at the high end
        for _ in range(200):
            price = (low * high) ** 0.5
            best = (self.examples + price * self.steps).argmin(axis=1)[:, None]
            used = np.take_along_axis(self.steps, best, 1).sum()
            low, high = (low, price) if used <= steps * (1 + 1e-9) else (price, high)
        # Between two prices nothing is cheaper: a line from one choice to the other is below whatever there is.
        cost = self.examples + low * self.steps
        return float(cost.min(axis=1).sum() - low * steps)


def _choices(profile: Profile, gpus: int) -> Iterator[tuple[int, float]]:
    """Yield batch sizes with the time of an optimiser step [s]: every atomic one, with all passes it takes."""
    limits = profile.application
    for passes in range(1, limits.max_batch_size // limits.min_atomic_batch_size // gpus + 1):
        first = limits.min_atomic_batch_size if passes == 1 else limits.max_atomic_batch_size // 2
        for atomic in range(first, limits.max_atomic_batch_size + 1, max(limits.max_atomic_batch_size // 200, 1)):
            size = BatchChoice(atomic, passes - 1).batch_size(gpus)
            try:
                if limits.init_batch_size <= size <= limits.max_batch_size:
                    yield size, profile.step_time((gpus,), atomic).optimiser_step(passes - 1)
            except ProfileRangeError:
                continue


def run(profile: Profile, agent: str, gpus: int) -> Result:
    limits = profile.application
    batch_size = max(limits.init_batch_size, limits.min_atomic_batch_size * gpus)
    jobs = Workload((Job("job", 0.0, limits.name, gpus, batch_size),))
    return polluxsim.simulate(jobs, policy="fifo", agent=agent, profiles={limits.name: profile}, progress=False).result


@dataclass
class Given:
    """Gives its only job these GPUs."""

    placement: Placement

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> dict[str, Placement]:
        return {job.job_id: self.placement for job in view.jobs}


def mixed_times(profile: Profile, gpus: int) -> tuple[float, dict[str, float]]:
    """Return the least time of training on GPUs of two types [s], and the times under each way over it."""
    limits, slow, fast = profile.application, *(by_type(profile)[name] for name in TYPES)
    size = limits.max_batch_size // 2
    cluster = Cluster.of_groups([[1, gpus, name] for name in TYPES])
    job = Workload((Job("job", 0.0, limits.name, gpus, size),))

    def time(agent: BatchRule, *nodes: int) -> float:
        policy = Given(tuple((node, gpus) for node in nodes))
        profiles = {limits.name: profile}
        run = polluxsim.simulate(job, policy=policy, agent=agent, cluster=cluster, profiles=profiles, progress=False)
        (record,) = run.result.job_records
        return (record.completion_time or np.nan) - (record.start_time or np.nan) - DELAY

    ways = {
        "T4": time(FixedBatch(), 0),
        "A100": time(FixedBatch(), 1),
        "equal parts": (equal := time(OmniLearn(gain=0.0), 0, 1)),
        "omnilearn": time(OmniLearn(), 0, 1),
    }
    least = min(_step_times(slow, fast, gpus, size))
    even = split_by_weight([slow.application, fast.application], size, (gpus, gpus), (1.0, 1.0))
    steps = [p.step_time((gpus, gpus), part) for p, (_, part) in zip((slow, fast), even.parts, strict=True)]
    present = max(step.optimiser_step(even.accumulation_steps) for step in steps)
    return equal * least / present, {name: taken / (equal * least / present) for name, taken in ways.items()}


def _step_times(slow: Profile, fast: Profile, gpus: int, size: int) -> Iterator[float]:
    """Yield the times of a step with all parts of a batch that whole examples allow [s]."""
    for passes in range(1, 17):
        each = -(-size // (gpus * passes))
        for part in range(1, each):
            try:
                steps = [slow.step_time((gpus, gpus), part), fast.step_time((gpus, gpus), each - part)]
            except ProfileRangeError:
                continue
            yield max(step.optimiser_step(passes - 1) for step in steps)


def print_mixed(profiles: Mapping[str, Profile], gpus: int) -> None:
    print(f"{gpus} T4 and {gpus} A100   least time [s]   T4  A100  equal parts  omnilearn, over it")
    for application, profile in sorted(profiles.items()):
        if not by_type(profile).keys() >= set(TYPES):
            continue
        least, times = mixed_times(profile, gpus)
        print(f"{application:20} {least:12,.0f}  " + "  ".join(f"{time:6.2f}" for time in times.values()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=4)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--mixed", action="store_true")
    options = parser.parse_args()
    if options.mixed:
        print_mixed(ProfileFolder(None).load(), options.gpus)
        return
    profiles = ProfileFolder(None if options.data is None else str(options.data / "osdi21" / "traces")).load()
    print(f"{options.gpus} GPUs     least time [s]  agent     time over it  steps  examples  examples over the least")
    for application, profile in sorted(profiles.items()):
        bound = Bound(profile, options.gpus)
        for agent in AGENTS:
            cost = cost_of(run(profile, agent, options.gpus), profile)
            over = cost.examples / bound.least_examples(cost.steps)
            print(
                f"{application:12} {bound.time:12,.0f}  {agent:10} {cost.time / bound.time:9.2f}"
                f"  {cost.steps:12,.0f}  {cost.examples:14,.0f}  {over:6.2f}"
            )


if __name__ == "__main__":
    main()
