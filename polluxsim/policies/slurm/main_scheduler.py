"""The main scheduler, which is the only one of sched/builtin: start the jobs that fit, in the order of the queue.

It looks at the present only: it has no plans, so the first job that does not fit keeps others from its partition.
"""

from __future__ import annotations

from collections import Counter

from polluxsim.policies.slurm.parameters import Parameters
from polluxsim.policies.slurm.preemption import candidates, preempting
from polluxsim.policies.slurm.reservations import opening
from polluxsim.policies.slurm.selection import chosen_nodes
from polluxsim.policies.slurm.values import JobName, SchedulerState, SlurmStart


def main_scheduler(state: SchedulerState, parameters: Parameters, depth: int = 0) -> list[SlurmStart]:
    """Return the jobs that start, among the first `depth` jobs of the queue; 0 for the whole queue.

    The first job of a partition that finds its nodes busy closes the partition, and its nodes, for this run, so that no
    later job delays it. Jobs in a reservation, and jobs that get no plan, close nothing. The jobs that start are
    counted in `state.limits`, apart from one that preempts. (Source: slurmctld/job_scheduler.c, `_schedule`.)
    """
    free = state.free()
    # A node with a COMPLETING job accepts no job until its epilog ends. (Measured.)
    open_nodes = state.up & ~state.completing
    closed: set[str] = set()
    considered = Counter[str]()
    starts: list[SlurmStart] = []
    started: set[JobName] = set()
    for job in state.pending[: depth or None]:
        if job.partition in closed or job.name in started:
            continue
        considered[job.partition] += 1
        if parameters.partition_job_depth and considered[job.partition] > parameters.partition_job_depth:
            continue
        # A job that a limit stops may wait for long, so that by default it closes nothing.
        if state.limits.stops(job):
            if parameters.assoc_limit_stop:
                closed.add(job.partition)
                open_nodes &= ~state.nodes_of(job)
            continue
        nodes_of_job = open_nodes & state.nodes_of(job)
        if state.reservations:
            nodes_of_job = opening(job, state.now, nodes_of_job, state.reservations).nodes
        held = chosen_nodes(job.request, nodes_of_job, free, state.nodes)
        if held is not None:
            free.take(held)
            state.limits.add(job)
            starts.append(SlurmStart(job, held))
            started.add(job.name)
            continue
        if parameters.preempts:
            taken = preempting(
                job.request, nodes_of_job, free, state.nodes, candidates(job, state, parameters), parameters
            )
            if taken is not None:
                starts.append(SlurmStart(job, taken.held, tuple(victim.name for victim in taken.victims)))
                # The job starts when its nodes are free, so that it closes its partition meanwhile.
                break
        if not job.reservation and parameters.reserves(job.priority, state.now - job.eligible):
            closed.add(job.partition)
            open_nodes &= ~state.nodes_of(job)
    return starts
