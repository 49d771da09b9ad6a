"""How time and memory grow: rigid jobs by the million, one job of a billion seconds, many jobs at one instant.

    python benchmarks/bench_growth.py [--cases 1e4 1e5 1e6 long instant profiled]

Every case is a process of its own on one core. Jobs of `1e4` to `1e6` come at the same rate, on the same 512 nodes of 4
GPUs, under FIFO: with ten times the jobs, the run lasts ten times as long. `long` is one job of 1e9 s, `instant` are
100,000 jobs of 1 to 8 GPUs submitted at time 0. `profiled` are 20,000 jobs with profiles in 62 hours on 1,024 GPUs,
the usual load, under Pollux. Time is that of the simulation; memory is the most the process held.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from collections.abc import Mapping
from time import process_time

import numpy as np

from polluxsim.engine.simulation import simulate
from polluxsim.hardware.clusters import Cluster
from polluxsim.models.profile import Profile
from polluxsim.policies.contract.policy import Policy
from polluxsim.policies.ordered.classic import Fifo
from polluxsim.workloads.workload import Job, Workload

CLUSTER = Cluster.uniform(512, 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", default=["1e4", "1e5", "1e6", "long", "instant"])
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measured(options.one)))
        return
    print(f"{'case':<10}{'jobs':>9}{'rounds':>9}{'time [s]':>10}{'us/job':>9}{'memory [MB]':>13}{'kB/job':>9}")
    for case in options.cases:
        command = [sys.executable, __file__, "--one", case]
        jobs, rounds, seconds, before, most = json.loads(
            subprocess.run(command, check=True, capture_output=True).stdout
        )
        each = 1e6 * seconds / jobs
        kept = 1000 * (most - before) / jobs
        print(f"{case:<10}{jobs:>9}{rounds:>9}{seconds:>10.2f}{each:>9.0f}{most:>13.0f}{kept:>9.2f}", flush=True)


def measured(case: str) -> tuple[int, int, float, float, float]:
    """Return jobs, recorded rounds, processor time [s], memory before the jobs were made and the most held [MB]."""
    before = memory()
    jobs, *others = profiled() if case == "profiled" else (workload(case), {}, CLUSTER, Fifo())
    started = process_time()
    result = simulate(jobs, *others)
    return len(jobs.jobs), len(result.round_records), process_time() - started, before, memory()


def profiled() -> tuple[Workload, Mapping[str, Profile], Cluster, Policy]:
    """Return the workload, profiles, cluster and policy of the case `profiled`."""
    # Imported here, because Numba takes 80 MB, which are not part of the other cases.
    from polluxsim.applications.folder import ProfileFolder  # noqa: PLC0415
    from polluxsim.policies.pollux.policy import Pollux  # noqa: PLC0415
    from polluxsim.workloads.philly import PhillyLike  # noqa: PLC0415

    profiles = ProfileFolder().load()
    return PhillyLike(num_jobs=20_000, hours=62).load(profiles), profiles, Cluster.uniform(256, 4), Pollux()


def workload(case: str) -> Workload:
    if case == "long":
        return Workload((Job.rigid("long", 0.0, 1, 1e9),))
    rng = np.random.default_rng(0)
    count = 100_000 if case == "instant" else int(float(case))
    gpus = rng.choice([1, 2, 4, 8], count, p=[0.7, 0.1, 0.1, 0.1]).tolist()
    times = np.zeros(count) if case == "instant" else rng.exponential(10.0, count).cumsum()
    durations = (rng.lognormal(6.5, 1.2, count) + 1).tolist()
    rows = zip(times.tolist(), gpus, durations, strict=True)
    return Workload(tuple(Job.rigid(f"{number}", *row) for number, row in enumerate(rows)))


def memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
