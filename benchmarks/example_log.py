"""Write the example log of a Slurm cluster that ships with polluxsim.

python benchmarks/example_log.py > traces/example-sacct.txt

The cluster has six nodes of eight GPUs, and Slurm starts jobs first come, first served, without backfill. Arrivals,
durations and numbers of GPUs have the statistics of the Philly trace (Jeon et al., ATC '19). Users and time limits are
drawn here: a job's limit is its duration times a log-normal factor, rounded up to a usual limit, because users
overestimate (Mu'alem and Feitelson, TPDS '01).
"""

from __future__ import annotations

import csv
import sys
import tempfile
from contextlib import redirect_stdout
from datetime import datetime, timedelta
from pathlib import Path
from typing import TextIO

import numpy as np
import pandas as pd

import polluxsim
from polluxsim.cli.main import main

HOURS, SHARE, SEED = 240, 0.1, 3
NODES, GPUS_PER_NODE = 6, 8
FIRST = 4100
"""Number of the first job."""

MONDAY = datetime(2026, 3, 2)
LIMITS = [hours * 60 for hours in (0.5, 1, 2, 4, 8, 12, 24, 48, 72, 168)]
"""Usual time limits [min]."""

STATES = {"COMPLETED": 0.8, "FAILED": 0.1, "CANCELLED": 0.1}
COLUMNS = [
    "JobID", "JobName", "User", "Account", "Partition", "State", "Submit", "Start", "End", "ElapsedRaw", "TimelimitRaw",
    "NNodes", "ReqTRES", "AllocTRES",
]  # fmt: skip


def drawn(folder: Path, generator: np.random.Generator) -> pd.DataFrame:
    """Return a sample of the jobs of a trace with the statistics of Philly's."""
    settings = ["workload=philly-like-log", f"workload.hours={HOURS}", f"seed={SEED}"]
    main(["workload", *settings, "-o", str(folder / "all.parquet")])
    jobs = pd.read_parquet(folder / "all.parquet")
    jobs = jobs[generator.random(len(jobs)) < SHARE].reset_index(drop=True)
    jobs["duration"] = jobs.duration.round().clip(10, LIMITS[-1] * 60)
    jobs["num_gpus"] = jobs.num_gpus.clip(upper=32)
    factors = np.exp(np.abs(generator.normal(0, 1, len(jobs))))
    wanted = jobs.duration * factors / 60
    jobs["limit"] = [next((limit for limit in LIMITS if limit >= minutes), LIMITS[-1]) for minutes in wanted]
    users = generator.zipf(1.6, len(jobs)) % 12
    jobs["user"] = [f"user{user:02d}" for user in users]
    jobs["state"] = generator.choice(list(STATES), len(jobs), p=list(STATES.values()))
    return jobs


def started(jobs: pd.DataFrame, folder: Path) -> pd.DataFrame:
    """Return the jobs with their start times on the cluster."""
    with (folder / "sacct.txt").open("w", newline="") as file:
        write(rows(jobs.assign(start_time=jobs.submit_time)), file)
    main(["log", "import", "slurm", str(folder / "sacct.txt"), "-o", str(folder / "log.parquet")])
    workload = polluxsim.workload("trace", path=str(folder / "log.parquet"))
    run = polluxsim.simulate(
        workload, policy="fifo", cluster=(NODES, GPUS_PER_NODE), settings=polluxsim.settings("log")
    )
    times = {int(job.partition("-")[0]): time for job, time in zip(run.jobs.job, run.jobs.start_time, strict=True)}
    return jobs.assign(start_time=[times[number] for number in range(FIRST, FIRST + len(jobs))])


def rows(jobs: pd.DataFrame) -> list[list[object]]:
    """Return the rows of `sacct --parsable2`."""
    found = []
    for number, job in enumerate(jobs.itertuples(), start=FIRST):
        submit = MONDAY + timedelta(seconds=float(job.submit_time))
        start = MONDAY + timedelta(seconds=float(job.start_time))
        end = start + timedelta(seconds=float(job.duration))
        nodes = -(-int(job.num_gpus) // GPUS_PER_NODE)
        resources = f"cpu={int(job.num_gpus) * 8},gres/gpu:a100={int(job.num_gpus)},node={nodes}"
        times = [time.isoformat(timespec="seconds") for time in (submit, start, end)]
        durations = [int(job.duration), int(job.limit)]
        names = [number, "train", job.user, job.tenant, "gpu", job.state]
        found.append([*names, *times, *durations, nodes, resources, resources])
    return found


def write(found: list[list[object]], file: TextIO) -> None:
    """Write rows below a line of column names."""
    csv.writer(file, delimiter="|", lineterminator="\n").writerows([COLUMNS, *found])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name, redirect_stdout(sys.stderr):
        jobs = drawn(Path(name), np.random.default_rng(SEED))
        found = rows(started(jobs, Path(name)))
    write(found, sys.stdout)
