"""Replay the whole Philly trace as rigid jobs, and growing parts of it: time, time per job, memory.

    python benchmarks/bench_trace.py [--data ../shared/data] [--jobs 1000 4000 16000 82247] [--policies fifo srtf]

Every replay is a process of its own on one core, on Microsoft's 2,490 GPUs (321 nodes with 2, 231 with 8). A part is
the trace thinned out evenly, with its cluster: 1 job in 20 on 1/20 of the nodes, so that load and waiting are about the
same. Time is that of the simulation, reading apart; memory is the most the process ever held.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from math import log2
from pathlib import Path
from time import process_time

from polluxsim.engine.simulation import simulate
from polluxsim.logs.importing import import_trace
from polluxsim.policies.fifo import Fifo
from polluxsim.policies.srtf import Srtf
from polluxsim.policies.tiresias import Tiresias
from polluxsim.types import Cluster
from polluxsim.workloads.trace import TraceReplay
from polluxsim.workloads.workload import Workload

POLICIES = {"fifo": Fifo, "srtf": Srtf, "tiresias": Tiresias}
NODES = ((321, 2), (231, 8))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("POLLUXSIM_DATA", "../shared/data"))
    parser.add_argument("--jobs", type=int, nargs="+", default=[1000, 4000, 16_000, 82_247])
    parser.add_argument("--policies", nargs="+", choices=POLICIES, default=list(POLICIES))
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        path, policy, jobs = options.one
        print(json.dumps(replay(path, policy, int(jobs))))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "philly.parquet"
        import_trace("philly", Path(options.data) / "osdi21" / "traces" / "philly.csv", path, time_zone="UTC")
        print(
            f"{'policy':<10}{'jobs':>8}{'asked':>8}{'time [s]':>10}{'us/job':>9}{'/log2(jobs)':>12}{'memory [MB]':>13}"
        )
        for policy in options.policies:
            for jobs in options.jobs:
                report(policy, jobs, path)


def report(policy: str, jobs: int, path: Path) -> None:
    command = [sys.executable, __file__, "--one", str(path), policy, str(jobs)]
    asked, seconds, memory = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    each = 1e6 * seconds / jobs
    print(
        f"{policy:<10}{jobs:>8}{asked:>8}{seconds:>10.2f}{each:>9.0f}{each / log2(jobs):>12.1f}{memory:>13.0f}",
        flush=True,
    )


def replay(path: str, policy: str, jobs: int) -> tuple[int, float, float]:
    """Return how often the policy was asked, processor time [s] and memory [MB]."""
    whole = TraceReplay(path).load({})
    share = jobs / len(whole.jobs)
    part = tuple(whole.jobs[int(index / share)] for index in range(jobs))
    most = max(job.num_replicas for job in part)
    groups = [[max(round(nodes * share), -(-most // gpus)), gpus] for nodes, gpus in NODES]
    started = process_time()
    result = simulate(Workload(part), {}, Cluster.of_groups(groups), POLICIES[policy]())
    seconds = process_time() - started
    asked = sum(timing.phase == "decide" for timing in result.timing_records)
    return asked, seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
