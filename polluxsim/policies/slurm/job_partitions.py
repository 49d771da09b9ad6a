"""A job submitted to several partitions: it is in the queue once for each of them.

The schedulers test each entry by itself, with the nodes and the tier of its partition. So the main scheduler may close
one partition of a job and start the job in another one, and the backfill plans the job in each partition. Only one of
the entries starts. (Source: sbatch(1), `--partition`; slurmctld/job_scheduler.c, `build_job_queue`. Measured
on slurmctld 22.05.)
"""

from __future__ import annotations

from collections.abc import Iterable

from polluxsim.hardware.placements import partitions_of_queue
from polluxsim.policies.slurm.values import PendingJob


def in_each_partition(jobs: Iterable[PendingJob]) -> list[PendingJob]:
    """Return an entry for each partition of each job, in the order in which the job names them.

    >>> from polluxsim.policies.slurm.values import Request
    >>> [entry.partition for entry in in_each_partition([PendingJob("a", Request(), 60, partition="left,right")])]
    ['left', 'right']
    """
    entries: list[PendingJob] = []
    for job in jobs:
        names = partitions_of_queue(job.partition)
        # The entry stays as it is, also without a partition.
        if len(names) == 1:
            entries.append(job)
            continue
        for partition in names:
            entries.append(job._replace(partition=partition))
    return entries
