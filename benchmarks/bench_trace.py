"""Replay the whole Philly trace as rigid jobs, and growing parts of it: time, time per job, memory.

    python benchmarks/bench_trace.py [--data ../shared/data] [--jobs 1000 4000 16000 82247] [--policies fifo srtf]
        [--placement consolidated] [--failures 6.5] [--report]

Every replay is a process of its own on one core, on Microsoft's 2,490 GPUs (321 nodes with 2, 231 with 8). A part is
the trace thinned out evenly, with its cluster: 1 job in 20 on 1/20 of the nodes, so that load and waiting are about the
same. Time is that of the simulation, reading apart; memory is the most the process ever held. With `--failures`, nodes
fail at this rate, in failures per 1,000 node-days. With `--placement consolidated`, each job keeps the nodes that it
requests. `--report` adds the processor time of `polluxsim report`, the whole
process.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from dataclasses import replace
from math import log2
from pathlib import Path
from time import process_time
from typing import TYPE_CHECKING

from polluxsim.engine.failures import DrawnFailures
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import simulate
from polluxsim.hardware.checkpoints import Checkpoints
from polluxsim.hardware.clusters import Cluster
from polluxsim.logs.importing import import_trace
from polluxsim.policies.ordered.attained_service import Tiresias
from polluxsim.policies.ordered.classic import Fifo, Srtf
from polluxsim.policies.reserving.conservative import Conservative
from polluxsim.policies.reserving.easy import Easy
from polluxsim.policies.reserving.multifactor import Multifactor
from polluxsim.policies.tenants.quotas import Quotas
from polluxsim.records.storage import write_run
from polluxsim.workloads.trace import TraceReplay
from polluxsim.workloads.workload import Workload

if TYPE_CHECKING:
    from polluxsim.records.results import Result

POLICIES = {
    "fifo": Fifo, "srtf": Srtf, "tiresias": Tiresias, "easy": Easy, "conservative": Conservative,
    "multifactor": Multifactor, "quotas": Quotas,
}  # fmt: skip
NODES = ((321, 2), (231, 8))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("POLLUXSIM_DATA", "../shared/data"))
    parser.add_argument("--jobs", type=int, nargs="+", default=[1000, 4000, 16_000, 82_247])
    parser.add_argument("--policies", nargs="+", choices=POLICIES, default=["fifo", "srtf", "tiresias"])
    parser.add_argument("--failures", type=float, default=0.0, help="failures in 1,000 node-days")
    parser.add_argument("--placement", choices=["anywhere", "consolidated"], default="anywhere")
    parser.add_argument("--report", action="store_true", help="also time the report of every run")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        path, policy, jobs = options.one
        print(json.dumps(replay(path, policy, int(jobs), options)))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "philly.parquet"
        import_trace("philly", Path(options.data) / "osdi21" / "traces" / "philly.csv", path, time_zone="UTC")
        print(
            f"{'policy':<10}{'jobs':>8}{'asked':>8}{'time [s]':>10}{'us/job':>9}{'/log2(jobs)':>12}{'memory [MB]':>13}"
            f"{'report [s]' if options.report else '':>12}"
        )
        extra = ["--failures", str(options.failures), "--placement", options.placement]
        if options.report:
            extra.append("--report")
        for policy in options.policies:
            for jobs in options.jobs:
                tell(policy, jobs, path, extra)


def tell(policy: str, jobs: int, path: Path, extra: list[str]) -> None:
    command = [sys.executable, __file__, "--one", str(path), policy, str(jobs), *extra]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    asked, seconds, memory, *reported = json.loads(done.stdout)
    each = 1e6 * seconds / jobs
    print(
        f"{policy:<10}{jobs:>8}{asked:>8}{seconds:>10.2f}{each:>9.0f}{each / log2(jobs):>12.1f}{memory:>13.0f}"
        + "".join(f"{time:>12.2f}" for time in reported),
        flush=True,
    )


def replay(path: str, policy: str, jobs: int, options: argparse.Namespace) -> tuple[float, ...]:
    """Return how often the policy was asked, processor time [s] and memory [MB], then that of the report [s]."""
    whole = TraceReplay(path).load({})
    share = jobs / len(whole.jobs)
    part = tuple(whole.jobs[int(index / share)] for index in range(jobs))
    most = max(job.num_replicas for job in part)
    groups = [[max(round(nodes * share), -(-most // gpus)), gpus] for nodes, gpus in NODES]
    started = process_time()
    cluster = Cluster.of_groups(groups)
    settings = EngineSettings(placement=options.placement)
    if options.failures:
        cluster = replace(cluster, failures=DrawnFailures(options.failures))
        settings = replace(settings, checkpoints=Checkpoints(1800.0, 30.0))
    policies = {"quotas": lambda: Quotas({"none": sum(nodes * gpus for nodes, gpus in groups)})}
    result = simulate(Workload(part), {}, cluster, policies.get(policy, POLICIES[policy])(), settings=settings)
    seconds = process_time() - started
    asked = sum(timing.phase == "decide" for timing in result.timing_records)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return asked, seconds, memory, *([report(result, groups)] if options.report else [])


def report(result: Result, groups: list[list[int]]) -> float:
    """Return the processor time of a process that writes the report of a run [s]."""
    with tempfile.TemporaryDirectory() as folder:
        write_run(Path(folder) / "run", result, {"nodes": groups})
        command = [sys.executable, "-m", "polluxsim", "report", f"{folder}/run", "-o", f"{folder}/report.html"]
        subprocess.run(command, check=True, capture_output=True)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
