"""What CPUs and memory by sensitivity gain over those by GPUs, on the load of Synergy's experiments, beside its claim.

    python benchmarks/cpus.py [--seeds 6] [--orders fifo] [--loads 7 8 9] [--split 20 70 10] [--jobs 6000]

As in "Looking Beyond GPUs for DNN Scheduling on Multi-Tenant Clusters" (OSDI '22), §5: 16 nodes with 8 V100, 24 CPUs
and 500 GB; single-GPU jobs, 20 : 70 : 10 of image, language and speech models, whose throughputs by CPUs and memory
are those of the simulator published with it; rounds of 300 s; mean JCT of jobs 4,000 to 5,000 of 6,000. The gain is a
ratio of means over seeds, with its interval over seeds, which are paired. Under `fifo`
nobody is slower; how many are is counted, too.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import product

import numpy as np

from polluxsim.common.durations import HOUR
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import simulate
from polluxsim.hardware.clusters import Cluster
from polluxsim.policies.ordered.attained_service import LeastAttainedService
from polluxsim.policies.ordered.classic import Fifo, Srtf
from polluxsim.policies.sized.synergy import Synergy
from polluxsim.statistics.estimates import ratio_of_means
from polluxsim.workloads.synergy import SplitLoad

CLUSTER = Cluster.of_groups([{"nodes": 16, "gpus": 8, "type": "v100", "cpus": 24, "memory": 500}])
SETTINGS = EngineSettings(round_interval=300.0, reasons="none")
ORDERS = {"fifo": Fifo, "srtf": Srtf, "las": LeastAttainedService}
TASKS = ("image", "language", "speech")
MEASURED = (2 / 3, 5 / 6)
"""From which to which part of all jobs means are taken."""
CLAIM = "published: up to 3.4 times (abstract); 21.9 h under FIFO, tuned, at 9 jobs/h (its artifact's readme)"


def completion_times(allocation: str, order: str, load: float, split: tuple[float, ...], jobs: int, seed: int) -> list:
    """Return the JCTs of all jobs [s]."""
    parts = dict(zip(TASKS, split, strict=True))
    workload = SplitLoad(num_jobs=jobs, jobs_per_hour=load, split=parts, seed=seed).load({})
    result = simulate(workload, {}, CLUSTER, Synergy(ORDERS[order](), allocation), settings=SETTINGS)
    return [job.jct for job in result.job_records]


def line(order: str, load: float, proportional: np.ndarray, tuned: np.ndarray) -> str:
    """Return what is found at one load, from JCTs of shape (seeds, jobs) [s]."""
    jobs = proportional.shape[1]
    window = slice(int(jobs * MEASURED[0]), int(jobs * MEASURED[1]))
    before, after = (times[:, window].mean(axis=1) / HOUR for times in (proportional, tuned))
    value, low, high = ratio_of_means(before, after)
    interval = "" if low is None or high is None else f" ({low:.2f} to {high:.2f})"
    slower = f"{int((tuned > proportional).sum())} of {tuned.size} jobs slower"
    means = f"proportional {before.mean():6.1f} h, tuned {after.mean():6.1f} h"
    return f"{order:5} {load:4g} jobs/h: {means}, {value:.2f} times{interval}; {slower}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--orders", nargs="+", choices=ORDERS, default=["fifo"])
    parser.add_argument("--loads", nargs="+", type=float, default=[7.0, 8.0, 9.0])
    parser.add_argument("--split", nargs=3, type=float, default=[20.0, 70.0, 10.0])
    parser.add_argument("--jobs", type=int, default=6000)
    options = parser.parse_args()
    print(CLAIM)
    with ProcessPoolExecutor() as pool:
        for order, load in product(options.orders, options.loads):
            run = partial(completion_times, order=order, load=load, split=tuple(options.split), jobs=options.jobs)
            both = [
                np.array(list(pool.map(partial(_of_seed, run, allocation), range(options.seeds))))
                for allocation in ("proportional", "tuned")
            ]
            print(line(order, load, *both), flush=True)


def _of_seed(run: partial[list], allocation: str, seed: int) -> list:
    return run(allocation, seed=seed)


if __name__ == "__main__":
    main()
