"""Measure how long `polluxsim twin eta` takes: 100 nodes with four GPUs each, and a queue of drawn jobs.

    python benchmarks/bench_twin.py                      # 100 and 500 waiting jobs
    python benchmarks/bench_twin.py --waiting 500 --each-second --futures 40

For each queue it prints when the first estimate and when all futures are complete, as wall time and as CPU time. A
first future of a small queue compiles the kernels before the clock starts. Only the CPU time is independent of other
work on the machine: on n idle cores, the wall time is about the CPU time divided by n.
"""

from __future__ import annotations

import argparse
import random
import time

from polluxsim.logs.live.jobs import StateJob
from polluxsim.logs.live.nodes import StateNode, StatePartition
from polluxsim.logs.live.state import SlurmState
from polluxsim.policies.slurm.parameters import Parameters
from polluxsim.studies.twin.asks import ask_of
from polluxsim.studies.twin.estimates import estimates
from polluxsim.studies.twin.futures import FutureSource, recent_arrivals
from polluxsim.studies.twin.history import JobHistory, PastJob
from polluxsim.studies.twin.settings import EACH_SECOND
from polluxsim.studies.twin.world import TwinWorld

NOW = 1_800_000_000
NUM_NODES = 100
GPUS_PER_NODE = 4
CPUS_PER_NODE = 64
NUM_PAST = 500  # earlier jobs, submitted in the three days before the state
USERS = [f"user{number}" for number in range(20)]
PARTITION = "gpu"


def drawn_job(rng: random.Random, number: int, submit: int) -> StateJob:
    """Return a waiting job: a quarter of a node to eight nodes, with a limit of 30 minutes to one day."""
    num_nodes = rng.choice((1, 1, 1, 1, 2, 4, 8))
    gpus = rng.choice((1, 2, 4)) if num_nodes == 1 else GPUS_PER_NODE
    limit = 60 * rng.choice((30, 60, 120, 240, 480, 720, 1440))
    return StateJob(
        name=str(number), state="PENDING", reason="Priority", priority=4.29e9 - number, submit=submit, eligible=submit,
        start=0, end=0, limit=limit, nodes=(), num_nodes=num_nodes, gpus=gpus, cpus=gpus, gpu_type="",
        states_tasks=False, features=frozenset(), required=(), excluded=(), partitions=(PARTITION,), qos="",
        user=rng.choice(USERS), account="", title="", after=(), special=(),
    )  # fmt: skip


def drawn_state(num_waiting: int, seed: int) -> SlurmState:
    """Return a full cluster with a queue of jobs."""
    rng = random.Random(seed)
    names = [f"n{number}" for number in range(NUM_NODES)]
    nodes = [StateNode(name, GPUS_PER_NODE, CPUS_PER_NODE, 1, "", frozenset(), (PARTITION,), "") for name in names]
    jobs = []
    first_free = 0
    while True:
        job = drawn_job(rng, len(jobs), NOW - 90_000)
        if first_free + job.num_nodes > NUM_NODES:
            break
        on_nodes = tuple(names[first_free : first_free + job.num_nodes])
        first_free += job.num_nodes
        jobs.append(job._replace(state="RUNNING", start=NOW - int(rng.uniform(0, 0.9) * job.limit), nodes=on_nodes))
    for _ in range(num_waiting):
        jobs.append(drawn_job(rng, len(jobs), NOW - rng.randrange(1, 80_000)))
    return SlurmState("drawn", NOW, jobs, nodes, [StatePartition(PARTITION, (), 1, True, 0, 0)])


def drawn_history(seed: int) -> JobHistory:
    """Return jobs that ended before the state, most of them long before their limits."""
    rng = random.Random(seed + 1)
    jobs = []
    for number in range(NUM_PAST):
        submit = NOW - 3 * 86_400 + number * 3 * 86_400 // NUM_PAST
        job = drawn_job(rng, number, submit)
        duration = max(1, int(job.limit * rng.betavariate(0.8, 1.6)))
        end = submit + duration
        if end > NOW:
            end, duration = 0, 0
        jobs.append(PastJob(job.name, ask_of(job), "", submit, end, float(duration)))
    return JobHistory(jobs, NOW)


def measure(num_waiting: int, num_futures: int, parameters: Parameters, seed: int) -> None:
    """Print the times of one queue."""
    history = drawn_history(seed)
    source = FutureSource(history, recent_arrivals(history))
    small = TwinWorld(drawn_state(2, seed), parameters)
    estimates(small, source, [job.name for job in small.pending], 1)
    world = TwinWorld(drawn_state(num_waiting, seed), parameters)
    names = [job.name for job in world.pending]
    wall, cpu = time.perf_counter(), time.process_time()
    first: list[tuple[float, float]] = []

    def report(done: int, mean_wait: float) -> None:
        if not first:
            first.append((time.perf_counter() - wall, time.process_time() - cpu))

    result = estimates(world, source, names, num_futures, report)
    total_wall, total_cpu = time.perf_counter() - wall, time.process_time() - cpu
    mean_wait = sum(estimate.start.median - NOW for estimate in result) / len(result)
    print(
        f"{num_waiting} waiting jobs, {num_futures} futures: first estimate after {first[0][0]:.1f} s, "
        f"all after {total_wall:.1f} s; CPU {total_cpu:.1f} s, {total_cpu / num_futures:.2f} s a future; "
        f"mean of the median waits {mean_wait / 3600:.3f} h"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--waiting", type=int, nargs="+", default=[100, 500], help="numbers of waiting jobs")
    parser.add_argument("--futures", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--each-second", action="store_true", help="schedulers in each second, not Slurm's defaults")
    options = parser.parse_args()
    parameters = Parameters(**EACH_SECOND) if options.each_second else Parameters()
    for num_waiting in options.waiting:
        measure(num_waiting, options.futures, parameters, options.seed)


if __name__ == "__main__":
    main()
