"""Pollux with weights by remaining time against Pollux at p = -1: mean JCT, makespan and fairness, with intervals.

    python benchmarks/remaining.py [--seeds 10] [--jobs 80 160 320] [--data FOLDER] [--processes 2]

Generated workloads of 8 hours at half, once and twice the load, seeds from 300 on; and with `--data` the published
ones. 16 nodes of 4 GPUs. Each figure is the mean change by pairs, with its 95 % interval.
"""

from __future__ import annotations

import argparse
import os
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from polluxsim.applications.folder import ProfileFolder
from polluxsim.engine.simulation import simulate
from polluxsim.hardware.clusters import Cluster
from polluxsim.metrics.summary import summarise
from polluxsim.policies.pollux.policy import Pollux, PolluxByRemaining
from polluxsim.statistics.estimates import mean
from polluxsim.workloads.philly import PhillyLike
from polluxsim.workloads.workload import Workload, read_workload

FIRST_SEED = 300
POLICIES: dict[str, tuple[type[Pollux], dict[str, Any]]] = {
    "pollux": (Pollux, {}),
    "pollux p=-0.5": (Pollux, {"p": -0.5}),
    "learnt": (PolluxByRemaining, {}),
    "learnt, strength=2": (PolluxByRemaining, {"strength": 2.0}),
    "learnt, critical=0.2": (PolluxByRemaining, {"critical": 0.2}),
    "true": (PolluxByRemaining, {"oracle": True}),
    "true, strength=2": (PolluxByRemaining, {"oracle": True, "strength": 2.0}),
    "true, critical=0.2": (PolluxByRemaining, {"oracle": True, "critical": 0.2}),
}
METRICS = {"mean JCT": "avg_jct", "makespan": "makespan", "p99 JCT": "p99_jct", "p99 rho": "p99_fairness",
           "restarts": "restarts"}  # fmt: skip
PUBLISHED = ("workloads", "workloads-0.5", "workloads-2.0", "workloads-realistic")


@cache
def profiles() -> Any:
    return ProfileFolder().load()


def measured(case: tuple[str, str]) -> list[float]:
    """Return the metrics of a policy on a workload, a file or the number of jobs and the seed."""
    workload, policy = case
    kind, settings = POLICIES[policy]
    summary = summarise(simulate(_load(workload), profiles(), Cluster.uniform(16, 4), kind(**settings), seed=0))
    return [getattr(summary, field) for field in METRICS.values()]


def _load(workload: str) -> Workload:
    if workload.endswith(".csv"):
        return read_workload(Path(workload))
    num_jobs, seed = map(int, workload.split())
    return PhillyLike(num_jobs=num_jobs, seed=seed).load(profiles())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--jobs", type=int, nargs="+", default=[80, 160, 320])
    parser.add_argument("--data", type=Path, default=os.environ.get("POLLUXSIM_DATA"), help="folder with osdi21 in it")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    options = parser.parse_args()
    groups = {
        f"{jobs} jobs": [f"{jobs} {seed}" for seed in range(FIRST_SEED, FIRST_SEED + options.seeds)]
        for jobs in options.jobs
    }
    if options.data is not None:
        for name in PUBLISHED:
            if files := sorted(map(str, (options.data / "osdi21" / name).glob("*.csv"))):
                groups[f"published {name.removeprefix('workloads').strip('-')}".strip()] = files
    with ProcessPoolExecutor(options.processes) as pool:
        for group, workloads in groups.items():
            cases = [(workload, policy) for policy in POLICIES for workload in workloads]
            told = track(pool.map(measured, cases), group, total=len(cases), console=Console(stderr=True))
            show(group, np.array(list(told)).reshape(len(POLICIES), len(workloads), len(METRICS)))


def show(group: str, found: np.ndarray) -> None:
    """Print the changes, of shape (policies, workloads, metrics), against the first policy."""
    table = Table(title=f"{group}, {found.shape[1]} workloads: change against pollux at p = -1")
    for column in ("policy", *METRICS):
        table.add_column(column, justify="left" if column == "policy" else "right")
    for policy, values in list(zip(POLICIES, found, strict=True))[1:]:
        row = []
        for changes in (values / found[0] - 1).T:
            estimate = mean(changes, least=-np.inf)
            interval = "" if estimate.low is None else f" [{100 * estimate.low:+.1f}, {100 * estimate.high:+.1f}]"
            row.append(f"{100 * estimate.value:+.1f} %{interval}")
        table.add_row(policy, *row)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
