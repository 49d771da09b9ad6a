"""Import drawn outputs of sacct with growing numbers of rows: CPU time, time per row, memory.

    python benchmarks/bench_import.py [--rows 100000 1000000] [--profile]

The outputs have the columns of the command in docs/operators.md, and 5 % of their rows are job steps. Every import is a
process of its own; its CPU time counts all threads, and its memory is the most the process ever held. `--profile`
prints the functions that take most of the first import, instead.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import resource
import subprocess
import sys
import tempfile
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np

from polluxsim.logs.importing import import_trace

HEADER = (
    "JobID|JobName|User|Account|Partition|QOS|Priority|State|Submit|Eligible|Start|End|ElapsedRaw|TimelimitRaw|NNodes|"
    "ReqTRES|AllocTRES"
)
FIRST = datetime(2026, 1, 1)  # in local time, as sacct writes it
STATES = ("COMPLETED", "COMPLETED", "COMPLETED", "FAILED", "CANCELLED by 1000", "TIMEOUT", "OUT_OF_MEMORY")
STEPS = 0.05  # share of the rows
USERS = 300
KINDS = 10_000  # of jobs: user, partition, time limit and resources


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measured(options.one)))
        return
    with tempfile.TemporaryDirectory() as name:
        log = Path(name) / "sacct.txt"
        if options.profile:
            write_log(log, options.rows[0])
            profile(log)
            return
        print(f"{'rows':>10}{'CPU [s]':>9}{'us/row':>8}{'memory [MB]':>13}")
        for rows in options.rows:
            write_log(log, rows)
            command = [sys.executable, __file__, "--one", str(log)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            seconds, memory = json.loads(done.stdout)
            print(f"{rows:>10}{seconds:>9.1f}{1e6 * seconds / rows:>8.1f}{memory:>13.0f}", flush=True)


def write_log(path: Path, rows: int) -> None:
    """Write a drawn output of sacct."""
    rng = np.random.default_rng(5)
    submits = np.sort(rng.integers(0, 90 * 86_400, rows)).tolist()
    waits = rng.exponential(3_000.0, rows).astype(int).tolist()
    durations = rng.lognormal(8.0, 2.0, rows).astype(int).tolist()
    states = rng.choice(STATES, rows).tolist()
    is_step = (rng.random(rows) < STEPS).tolist()
    kinds = [draw_kind(rng) for _ in range(KINDS)]
    # As in real logs, few kinds of jobs make most of the rows.
    which = np.minimum(rng.zipf(1.3, rows), KINDS) - 1
    with path.open("w") as file:
        print(HEADER, file=file)
        for row, kind in enumerate(which.tolist()):
            job = f"{row}.batch" if is_step[row] else row
            start = submits[row] + waits[row]
            times = [moment(seconds) for seconds in (submits[row], submits[row], start, start + durations[row])]
            before, after = kinds[kind]
            priority = 1000 + row % 100_000
            cells = [job, f"train-{row % 5000}", *before, priority, states[row], *times, durations[row], *after]
            print("|".join(map(str, cells)), file=file)


def draw_kind(rng: np.random.Generator) -> tuple[list[str], list[str]]:
    """Return what is equal in many jobs of a user: the cells from User to QOS, and those from TimelimitRaw on."""
    user = int(rng.integers(USERS))
    gpus = int(rng.choice([0, 1, 1, 1, 2, 4, 8, 16]))
    nodes = max(1, gpus // 8)
    request = f"billing={8 * max(1, gpus)},cpu={8 * max(1, gpus)},mem={64 * nodes}G,node={nodes}"
    allocation = request
    if gpus:
        request += f",gres/gpu={gpus}"
        allocation = f"{request},gres/gpu:{rng.choice(['a100', 'h100'])}={gpus}"
    partition = str(rng.choice(["gpu", "long", "debug"]))
    quality = str(rng.choice(["normal", "high"]))
    minutes = 60 * int(rng.integers(1, 49))
    before = [f"user{user}", f"lab{user % 40}", partition, quality]
    return before, [str(minutes), str(nodes), request, allocation]


def moment(seconds: int) -> str:
    """Return the local time after some seconds as sacct writes it."""
    return (FIRST + timedelta(seconds=seconds)).isoformat()


def measured(log: Path) -> tuple[float, float]:
    """Return the CPU time [s] and the largest memory [MB] of the import of a log in this process."""
    import_trace("slurm", log, log.parent / "log.parquet", time_zone="Europe/Berlin")
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def profile(log: Path) -> None:
    """Print the functions that take most of the import of a log."""
    profiler = cProfile.Profile()
    profiler.runcall(import_trace, "slurm", log, log.parent / "log.parquet", time_zone="Europe/Berlin")
    pstats.Stats(profiler).sort_stats("tottime").print_stats(35)


if __name__ == "__main__":
    main()
