"""How often the 80 % intervals of `polluxsim when` hold, over generated workloads under several policies.

    python benchmarks/when_calibration.py --policy fifo --first 100 --runs 5

Jobs come as a Poisson process. Rigid ones, under FIFO and Tiresias, are of eight users, each with a typical duration
and others around it (log-normal); under Pollux they have profiles. What `when` goes by was chosen on the seeds below
100.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import polluxsim
from polluxsim.applications.folder import ProfileFolder
from polluxsim.run.outlook import calibration
from polluxsim.workloads.job import Job
from polluxsim.workloads.philly_like import PhillyLike
from polluxsim.workloads.workload import Workload, write_workload

HOURS = 24
JOBS = 360
USERS = 8


def arrivals(count: int, gap: float, rng: np.random.Generator) -> list[float]:
    """Draw times of a Poisson process [s].

    So many times within a given span would be known better than that: many early ones would leave few for later.
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
    """Draw a workload of jobs with profiles that is small enough for futures under Pollux.

    Jobs that take longer than jobs arrive are left out: what is drawn anew goes on arriving.
    """
    rng = np.random.default_rng(seed)
    drawn = PhillyLike(num_jobs=JOBS // 4, seed=seed).load(ProfileFolder().load()).jobs
    short = [job for job in drawn if job.application != "imagenet"]
    times = arrivals(len(short), HOURS * 1800 / len(short), rng)
    order = rng.permutation(len(short)).tolist()
    jobs = [replace(short[index], num_replicas=min(short[index].num_replicas, 16)) for index in order]
    return Workload(tuple(replace(job, submit_time=time) for job, time in zip(jobs, times, strict=True)))


def finished(policy: str, seed: int, nodes: int, folder: Path) -> polluxsim.Result:
    """Run a policy on a generated workload."""
    path = folder / f"{seed}.csv"
    write_workload(profiled(seed) if policy == "pollux" else rigid(seed), path)
    workload = polluxsim.workload("file", path=str(path))
    return polluxsim.simulate(workload, policy=policy, cluster=(nodes, 4), seed=seed, progress=False)


def main() -> None:
    """Print a line for each kind of time."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--policy", default="fifo")
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--moments", type=int, default=4)
    parser.add_argument("--forks", type=int, default=19)
    parser.add_argument("--nodes", type=int, default=8)
    options = parser.parse_args()
    total: dict[str, np.ndarray] = {}
    with TemporaryDirectory() as folder:
        for seed in range(options.first, options.first + options.runs):
            run = finished(options.policy, seed, options.nodes, Path(folder))
            for check in calibration(run, options.moments, options.forks):
                total[check.what] = total.get(check.what, np.zeros(3, int)) + check[1:]
            for what, (known, uncertain, held) in total.items():
                share = f"{held / uncertain:.1%}" if uncertain else "–"
                print(f"seed {seed} {what}: {held} of {uncertain} held, {share}; {known} known", flush=True)


if __name__ == "__main__":
    main()
