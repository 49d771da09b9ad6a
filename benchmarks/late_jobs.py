"""Count the admitted jobs that are late under `elasticflow`, on philly-like jobs with deadlines.

    python benchmarks/late_jobs.py [--seeds 8] [--jobs 320] [--interference 0.5]

The deadline of a job is 120 s and 1.2 to 3 times its run time after its submission. The lateness is in hours.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np

from polluxsim.applications.folder import ProfileFolder
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import simulate
from polluxsim.engine.truth import GroundTruth
from polluxsim.hardware.clusters import Cluster
from polluxsim.hardware.placements import packed
from polluxsim.models.batch_size import split_batch_size
from polluxsim.policies.deadlines.elasticflow import ElasticFlow
from polluxsim.workloads.philly import PhillyLike


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--jobs", type=int, default=320)
    parser.add_argument("--interference", type=float, default=0.0)
    options = parser.parse_args()
    profiles, cluster = ProfileFolder().load(), Cluster.uniform(16, 4)
    settings = EngineSettings(interference=options.interference)
    total, late = 0, list[float]()
    for seed in range(1, options.seeds + 1):
        rng, jobs = np.random.default_rng(seed), []
        workload = PhillyLike(num_jobs=options.jobs, seed=seed).load(profiles)
        for job in workload.jobs:
            choice = split_batch_size(profiles[job.application].application, job.batch_size, job.num_replicas)
            time = GroundTruth(profiles[job.application]).time_left(packed(job.num_replicas, 4), choice, 0, 0.0)
            jobs.append(replace(job, deadline=job.submit_time + 120.0 + rng.uniform(1.2, 3.0) * time))
        workload = replace(workload, jobs=tuple(jobs))
        result = simulate(workload, profiles, cluster, ElasticFlow(), seed=seed, settings=settings)
        ends = [(job.completion_time, job.deadline) for job in result.job_records if job.completion_time is not None]
        total += len(ends)
        late += [end - deadline for end, deadline in ends if deadline is not None and end > deadline]
    print(f"{len(late)} of {total} admitted jobs are late, by {sum(late) / 3600:.1f} h in all")


if __name__ == "__main__":
    main()
