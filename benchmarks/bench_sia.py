"""Time of a round of Sia, by GPUs and jobs: the matrix, the programme and the placement [s of CPU, median and largest].

    python benchmarks/bench_sia.py [--rounds 12]

Runs of drawn jobs that all come at the start, on clusters of three types in the shares of sia-64: nothing is made up of
a round but what a run would have in it.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING

from polluxsim.applications.folder import ProfileFolder
from polluxsim.engine.scenario import Scenario
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import Simulation
from polluxsim.hardware.clusters import Cluster
from polluxsim.policies.sia.policy import Sia
from polluxsim.workloads.workload import Workload, WorkloadFile

if TYPE_CHECKING:
    from collections.abc import Sequence

SIZES = ((64, 8), (64, 32), (256, 32), (256, 128), (1024, 128), (1024, 512))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=12)
    rounds = parser.parse_args().rounds
    print("| GPUs | jobs | median | largest |\n|---|---|---|---|")
    for gpus, jobs in SIZES:
        seconds = spent(gpus, jobs, rounds)
        print(f"| {gpus} | {jobs} | {median(seconds):.3f} | {max(seconds):.3f} |", flush=True)


def spent(num_gpus: int, num_jobs: int, rounds: int) -> Sequence[float]:
    """Return the CPU time of each round but the first two, in which no job has been measured [s]."""
    times = num_gpus // 64
    cluster = Cluster.of_groups([[6 * times, 4, "t4"], [3 * times, 8, "rtx2080ti"], [2 * times, 8, "a100-40"]])
    profiles, policy = ProfileFolder().load(), Sia()
    drawn = [job for job in WorkloadFile().load(profiles).jobs if job.application != "ncf"]
    jobs = [replace(drawn[n % len(drawn)], job_id=f"j{n}", submit_time=0.0) for n in range(num_jobs)]
    scenario = Scenario.under(policy, Workload(tuple(jobs)), profiles, cluster, EngineSettings(reasons="none"))
    run, seconds = Simulation(scenario), []
    while (view := run.advance()) is not None and len(seconds) < rounds + 2:
        started = time.process_time()
        decision = policy.allocate(view, run.rng)
        seconds.append(time.process_time() - started)
        run.commit(decision)
    return seconds[2:]


if __name__ == "__main__":
    main()
