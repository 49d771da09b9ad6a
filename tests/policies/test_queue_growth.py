"""The work of a decision does not grow with the queue: counted calls of a run grow about as fast as its jobs.

`benchmarks/queue_growth.py` measures the processor time of every shipped policy.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import pytest

from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import simulate
from polluxsim.hardware.clusters import Cluster
from polluxsim.policies.contract.policy import Policy
from polluxsim.policies.ordered.classic import Fifo, ShortestJobFirst
from polluxsim.policies.reserving.conservative import Conservative
from polluxsim.policies.reserving.easy import Easy
from polluxsim.policies.reserving.multifactor import Multifactor
from polluxsim.policies.tenants.fairness import DominantResourceFairness, FairQueues
from polluxsim.workloads.job import Job
from polluxsim.workloads.workload import Workload

MAKERS: dict[str, Callable[[], Policy]] = {
    "conservative": Conservative,
    "drf": DominantResourceFairness,
    "easy": Easy,
    "fair-queues": FairQueues,
    "fifo": Fifo,
    "fifo with backfill": lambda: Fifo(backfill=True),
    "multifactor": Multifactor,
    "sjf": ShortestJobFirst,
}
FEW, MANY = 75, 300


def queue_of_jobs(count: int) -> Workload:
    """Return jobs that wait from the beginning. Most need more GPUs than one job leaves, so some GPUs stay free."""
    rng = np.random.default_rng(0)
    gpus = rng.choice([3, 5, 7, 8], count, p=[0.7, 0.1, 0.1, 0.1])
    lengths = np.round(rng.lognormal(6.5, 1.0, count) + 60.0)
    jobs = [
        Job.rigid(
            f"j{number}", 0.0, int(gpus[number]), float(lengths[number]), user=f"u{number % 7}", queue=f"q{number % 3}"
        )
        for number in range(count)
    ]
    return Workload(tuple(jobs))


def num_calls(make: Callable[[], Policy], count: int) -> int:
    """Return the calls of functions, and resumptions of generators, of a run with reasons under a policy."""
    workload, cluster = queue_of_jobs(count), Cluster.uniform(2, 8)
    settings = EngineSettings(round_interval=200.0, reasons="changes")
    calls = 0

    def count_call(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count_call)
    try:
        result = simulate(workload, {}, cluster, make(), settings=settings)
    finally:
        sys.setprofile(None)
    assert result.standstill is None
    return calls


@pytest.mark.parametrize("name", MAKERS)
def test_four_times_the_queue_needs_about_four_times_the_calls(name: str) -> None:
    """A policy that reads each waiting job at each decision needs five to eight times the calls."""
    growth = num_calls(MAKERS[name], MANY) / num_calls(MAKERS[name], FEW)
    assert growth < 4 * 1.25
