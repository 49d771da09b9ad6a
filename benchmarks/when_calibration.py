"""Measure calibration and sharpness of the 80 % intervals of `polluxsim when` on generated workloads.

    python benchmarks/when_calibration.py --policy fifo --first 100 --runs 5
    python benchmarks/when_calibration.py --policy tiresias --jobs profiled
    python benchmarks/when_calibration.py --run FOLDER

With `--run`, the forecasts are those of a finished run. Times that had not come when it ended are left out.

Calibration is the share of times that came true inside their interval. Sharpness is the median width of the intervals,
0 for a time that is the same in all futures. It is compared with that of a naive forecast for the same jobs: the 10 %
and 90 % quantiles of the times from submission to completion (or to the start) of jobs of the same class, added to the
submission of the job in question. Only jobs count that have taken longer than the job in question has been in the
system so far; otherwise the naive interval lies partly in the past. Jobs that have not completed (started) count as
censored (Kaplan and Meier); without them, the naive intervals are too short and hold less often. The class of a job
without a profile is its user and GPUs, or if fewer than nine jobs of this class remain, its user, then its GPUs, then
all jobs. The class of a job with a profile is its application, then all jobs. A naive interval that holds less often is
narrower for that reason alone, so that the width is also printed at which the naive intervals hold as often: all are
widened (or narrowed) around their middle by the same factor.

Jobs arrive as a Poisson process. Rigid jobs have eight users, each with a typical duration; durations are log-normal
around it. Jobs with profiles are those of `workload=philly-like` except imagenet. The method of `when` was chosen on
seeds below 100.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from forecast_scores import Score, calibration, calibration_lines, forecast_checks

import polluxsim
from polluxsim.applications.folder import ProfileFolder
from polluxsim.run.resampling import NONE, RECENT, FutureArrivals
from polluxsim.workloads.job import Job
from polluxsim.workloads.philly import PhillyLike
from polluxsim.workloads.workload import Workload, write_workload

HOURS = 24
JOBS = 360
USERS = 8
NODES = {"rigid": 8, "profiled": 3}
PROFILED = ("pollux", "sia")
"""Policies for which jobs have profiles unless --jobs says otherwise."""


def arrivals(count: int, gap: float, rng: np.random.Generator) -> list[float]:
    """Draw times of a Poisson process [s].

    A fixed number of times within a fixed span would be more regular: many early ones would leave few for later.
    """
    times: list[float] = np.cumsum(rng.exponential(gap, count)).tolist()
    return times


def rigid(seed: int) -> Workload:
    """Draw a workload of jobs without profiles."""
    rng = np.random.default_rng(seed)
    typical = 1200 * np.exp(rng.normal(0, 1, USERS))
    jobs = []
    for number, time in enumerate(arrivals(JOBS, HOURS * 3600 / JOBS, rng)):
        user, gpus = int(rng.integers(USERS)), int(rng.choice([1, 2, 4, 8], p=[0.6, 0.15, 0.15, 0.1]))
        duration = float(np.clip(typical[user] * np.exp(rng.normal(0, 1)), 60, 86400))
        jobs.append(Job.rigid(f"{number}", time, gpus, duration, user=f"user{user}"))
    return Workload(tuple(jobs))


def profiled(seed: int) -> Workload:
    """Draw a workload of jobs with profiles that is small enough for many futures under Pollux.

    imagenet is left out: it takes longer than the jobs arrive, and in the futures jobs arrive for longer.
    """
    rng = np.random.default_rng(seed)
    drawn = PhillyLike(num_jobs=JOBS // 4, seed=seed).load(ProfileFolder().load()).jobs
    short = [job for job in drawn if job.application != "imagenet"]
    times = arrivals(len(short), HOURS * 1800 / len(short), rng)
    order = rng.permutation(len(short)).tolist()
    jobs = [replace(short[index], num_replicas=min(short[index].num_replicas, 8)) for index in order]
    return Workload(tuple(replace(job, submit_time=time) for job, time in zip(jobs, times, strict=True)))


def finished(policy: str, kind: str, seed: int, nodes: int, folder: Path) -> polluxsim.Result:
    """Run a policy on a generated workload."""
    path = folder / f"{seed}.csv"
    write_workload(profiled(seed) if kind == "profiled" else rigid(seed), path)
    workload = polluxsim.workload("file", path=str(path))
    return polluxsim.simulate(workload, policy=policy, cluster=(nodes, 4), seed=seed, progress=False)


def main() -> None:
    """Print calibration and sharpness of starts and completions after each seed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--run", type=Path, help="folder of a finished run")
    parser.add_argument("--policy", default="fifo")
    parser.add_argument("--jobs", choices=("rigid", "profiled"), help="default: profiled for pollux and sia")
    parser.add_argument("--arrivals", choices=(NONE, RECENT), default=RECENT)
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--moments", type=int, default=4)
    parser.add_argument("--forks", type=int, default=19)
    parser.add_argument("--nodes", type=int, help="nodes of 4 GPUs (default: 8, profiled 3)")
    options = parser.parse_args()
    if options.run is not None:
        scores_of_run = calibration(
            polluxsim.read(options.run), options.moments, options.forks, arrivals=FutureArrivals(options.arrivals)
        )
        for check in forecast_checks(scores_of_run):
            print("\n".join(calibration_lines(check)))
        return
    kind = options.jobs or ("profiled" if options.policy in PROFILED else "rigid")
    nodes = options.nodes or NODES[kind]
    scores: list[Score] = []
    with TemporaryDirectory() as folder:
        for seed in range(options.first, options.first + options.runs):
            run = finished(options.policy, kind, seed, nodes, Path(folder))
            scores += calibration(run, options.moments, options.forks, arrivals=FutureArrivals(options.arrivals))
            for line in (line for check in forecast_checks(scores) for line in calibration_lines(check)):
                print(f"{options.policy}, {kind}, to seed {seed}: {line}", flush=True)


if __name__ == "__main__":
    main()
