"""Time runs of workload 6 in this checkout and at an earlier revision, in turn, and print the ratios.

    python benchmarks/paired_runs.py 2461767 [--data ../shared/data] [--policies tiresias optimus pollux] [--pairs 8]

Each run has a process of its own, which simulates once before the timed runs, so that kernels are compiled. The time
is processor time of the simulation, with profiles that hold no cached values; reading and composing are not part of it.
Each pair is one process of each checkout. The ratio is the median over the pairs. Needs git.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path

from checkouts import ROOT, checked_out

SIMULATE = """
import statistics, sys
from time import process_time
import polluxsim
from polluxsim.engine.simulation import simulate
from polluxsim.models.fitting import fitted

policy, data, repeats = sys.argv[1], sys.argv[2], int(sys.argv[3])
times = []
for _ in range(repeats + 1):
    fitted.cache_clear()
    first, decider = polluxsim.start(
        data + "/workloads/workload-6.csv",
        policy=polluxsim.policy(policy),
        profiles=data,
        settings=polluxsim.settings("osdi21"),
    )
    start = first.scenario
    begin = process_time()
    simulate(start.workload, start.profiles, start.cluster, type(decider)(), settings=start.settings)
    times.append(process_time() - begin)
print(statistics.median(times[1:]))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("revision", help="of git, to compare with")
    parser.add_argument("--data", type=Path, default=os.environ.get("POLLUXSIM_DATA", "../shared/data"))
    parser.add_argument("--policies", nargs="+", default=["tiresias", "optimus", "pollux"])
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=3, help="timed runs in each process")
    options = parser.parse_args()
    data = (options.data / "osdi21").resolve()
    with checked_out(options.revision) as before:
        print(f"{'policy':10}{options.revision:>12}{'now':>9}{'ratio':>8}   s of processor time, medians")
        for policy in options.policies:
            for root in (before, ROOT):  # The first process of each checkout compiles the kernels.
                seconds(root, policy, data, 1)
            pairs = [
                [seconds(root, policy, data, options.repeats) for root in (before, ROOT)] for _ in range(options.pairs)
            ]
            old, new = (statistics.median(times) for times in zip(*pairs, strict=True))
            ratio = statistics.median(now / then for then, now in pairs)
            print(f"{policy:10}{old:12.3f}{new:9.3f}{ratio:8.3f}", flush=True)


def seconds(root: Path, policy: str, data: Path, repeats: int) -> float:
    """Return the median processor time of a simulation by a checkout, in seconds."""
    environment = os.environ | {"PYTHONPATH": str(root), "PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", SIMULATE, policy, str(data), str(repeats)]
    run = subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True, check=False)
    if run.returncode:
        raise SystemExit(f"{policy} in {root}: {run.stderr[-1000:]}")
    return float(run.stdout)


if __name__ == "__main__":
    main()
