"""How the processor time of each policy grows with the queue: rigid jobs that all wait from the beginning.

    python benchmarks/queue_growth.py [POLICY …] [--jobs 500] [--limit 60]

Each policy runs n, 2n and 4n jobs on two nodes of 8 GPUs, without reasons and with the recorded ones. Most jobs need
more GPUs than another job leaves, so some GPUs stay free, and every decision has a queue to look through. The columns
are processor time for each job [ms], which is constant if the time of a run grows with the number of jobs. `growth` is
the last column over the first one: 1 is linear, 4 is quadratic. Every policy is a process of its own. A run that
would take more than `--limit` seconds is left out.

Policies that need profiles are left out, and `replay`, which needs a file. The order of queues, users and priorities is
drawn: 20 users, 4 queues, 3 priorities.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from time import process_time

import numpy as np
import pandas as pd

import polluxsim
from polluxsim.common.errors import InvalidInputError
from polluxsim.common.shipped import shipped
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.sharing import Interleaved, Leftovers

SHARING = {"antman": Leftovers(), "gandiva": Interleaved(), "muri-s": Interleaved(), "muri-l": Interleaved()}
CLUSTER = (2, 8)  # nodes, GPUs of each


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("policies", nargs="*", help="by default all policies for jobs without profiles")
    parser.add_argument("--jobs", type=int, default=500, help="n")
    parser.add_argument("--limit", type=float, default=60.0, help="longest time of a run [s]")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(seconds_of(options.policies[0], options.jobs, options.limit)))
        return
    counts = [options.jobs, 2 * options.jobs, 4 * options.jobs]
    heads = [f"{count} jobs" for count in counts]
    print(f"{'policy':<24}{'reasons':<9}" + "".join(f"{head:>12}" for head in heads) + f"{'growth':>9}   [ms a job]")
    for name in options.policies or names():
        command = [sys.executable, __file__, name, "--one", "--jobs", str(options.jobs), "--limit", str(options.limit)]
        try:
            answer = subprocess.run(
                command, check=True, capture_output=True, text=True, timeout=10 * options.limit
            ).stdout
        except subprocess.TimeoutExpired:
            print(f"{name:<24}took more than {10 * options.limit:g} s", flush=True)
            continue
        for reasons, seconds in json.loads(answer.splitlines()[-1]).items():
            cells = [f"{1000 * spent / count:>12.3f}" for spent, count in zip(seconds, counts, strict=False)]
            cells += [f"{'–':>12}"] * (len(counts) - len(cells))
            growth = "–"
            if len(seconds) == len(counts):
                growth = f"{seconds[-1] / counts[-1] / (seconds[0] / counts[0]):.2f}"
            print(f"{name:<24}{reasons:<9}" + "".join(cells) + f"{growth:>9}", flush=True)


def names() -> list[str]:
    """Return the names of all policies that need no other file."""
    return [path.stem for path in sorted((shipped("configs") / "policy").glob("*.yaml")) if path.stem != "replay"]


def seconds_of(name: str, num_jobs: int, limit: float) -> dict[str, list[float]]:
    """Return the processor times of runs of n, 2n and 4n jobs [s], by the kind of reasons.

    Longer runs are left out if the last one took more than the limit, or if the next one would.
    """
    try:
        run_once(name, 50, "none")  # compiles kernels
    except InvalidInputError:  # it needs profiles
        return {}
    times: dict[str, list[float]] = {}
    for reasons in ("none", "changes"):
        times[reasons] = []
        for count in (num_jobs, 2 * num_jobs, 4 * num_jobs):
            times[reasons].append(run_once(name, count, reasons))
            if 2 * times[reasons][-1] > limit:
                break
    return times


def run_once(name: str, count: int, reasons: str) -> float:
    """Return the processor time of a run [s]."""
    settings = EngineSettings(reasons=reasons, sharing=SHARING.get(name))
    jobs = workload(count)
    started = process_time()
    polluxsim.simulate(jobs, policy=name, cluster=CLUSTER, settings=settings, progress=False)
    return process_time() - started


def workload(count: int) -> pd.DataFrame:
    """Return jobs that are submitted at time 0."""
    rng = np.random.default_rng(0)
    lengths = np.round(rng.lognormal(6.5, 1.2, count) + 60.0)
    columns = {
        "name": [f"j{number}" for number in range(count)],
        "time": np.zeros(count),
        "num_replicas": rng.choice([3, 5, 7, 8], count, p=[0.7, 0.1, 0.1, 0.1]),
        "duration": lengths,
        "user": [f"u{number}" for number in rng.integers(0, 20, count)],
        "queue": [f"q{number}" for number in rng.integers(0, 4, count)],
        "priority": rng.integers(0, 3, count),
        "deadline": 20.0 * lengths,
    }
    return pd.DataFrame(columns)


if __name__ == "__main__":
    main()
