"""What failures cost the simulator: a large cluster without failures, with some that never come, and with many.

    python benchmarks/bench_failures.py [--jobs 5000] [--hours 24] [--policy pollux] [--rates none 0 20]

Generated jobs on 256 nodes of 4 GPUs, which save every 30 minutes where nodes can fail. Each run is a process of its
own on one core; the time is processor time of the whole run, and the ratio is to the first.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=5000)
    parser.add_argument("--hours", type=int, default=24)
    parser.add_argument("--policy", default="pollux")
    parser.add_argument("--rates", nargs="+", default=["none", "0", "20"], help="failures in 1,000 node-days")
    options = parser.parse_args()
    size = [f"workload.num_jobs={options.jobs}", f"workload.hours={options.hours}", "cluster.num_nodes=256"]
    first = None
    print(f"{'rate':>6}{'time [s]':>10}{'ratio':>8}")
    for rate in options.rates:
        failing = [] if rate == "none" else ["cluster/failures=drawn", f"cluster.failures.rate={rate}"]
        saving = ["engine/checkpoints=interval"] if failing else []
        seconds = processor_time([f"policy={options.policy}", "workload=philly-like", *size, *failing, *saving])
        first = first or seconds
        print(f"{rate:>6}{seconds:>10.1f}{seconds / first:>8.2f}", flush=True)


def processor_time(arguments: list[str]) -> float:
    """Return the processor time of a run in another process [s]."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    with TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "polluxsim", "run", *arguments, f"hydra.run.dir={Path(folder) / 'run'}"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


if __name__ == "__main__":
    main()
