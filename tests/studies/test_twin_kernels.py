"""The compiled form of Slurm's rules starts the same jobs as the functions of the policy."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from polluxsim.logs.live.jobs import StateJob
from polluxsim.logs.live.nodes import StateNode, StatePartition
from polluxsim.logs.live.state import SlurmState
from polluxsim.policies.slurm.parameters import BUILTIN, Parameters
from polluxsim.policies.slurm.values import Node
from polluxsim.studies.decisions.record import RecordedJob
from polluxsim.studies.decisions.replaying import _Simulation
from polluxsim.studies.decisions.slurm import GPU, NODE, Installation
from polluxsim.studies.twin.asks import Ask, NodeNeeds
from polluxsim.studies.twin.futures import FutureSource, TwinSimulation
from polluxsim.studies.twin.history import Arrival, JobHistory
from polluxsim.studies.twin.world import TwinWorld

EACH_SECOND = Parameters(bf_interval=1, bf_resolution=1, sched_interval=1, batch_sched_delay=0, sched_min_interval=0)
PARAMETERS = {
    "each second": EACH_SECOND,
    "defaults": Parameters(),
    "builtin": replace(EACH_SECOND, scheduler_type=BUILTIN),
    "limits": Parameters(bf_max_job_test=9, bf_max_job_start=2, default_queue_depth=5, bf_max_job_part=4),
    "shallow": Parameters(scheduler_type=BUILTIN, default_queue_depth=2),
    "linear": replace(EACH_SECOND, bf_window_linear=30, bf_running_job_reserve=True, partition_job_depth=3),
    "age": replace(EACH_SECOND, bf_min_age_reserve=60, bf_window=20),
}
NOW = 1_800_000_007


def drawn(seed: int, num_nodes: int) -> tuple[list[RecordedJob], list[Node]]:
    """Return jobs and nodes. The first jobs are submitted at second 0."""
    rng = random.Random(seed)
    weights = [rng.choice((1, 1, 5)) for _ in range(num_nodes)]
    nodes = [Node(4, 16, weight) for weight in weights]
    jobs = []
    now = 0
    for position in range(90):
        if position >= 40:
            now += rng.choice((0, 5, 30, 200))
        count = rng.choice((1, 1, 1, 2, 3))
        gpus = rng.choice((1, 1, 2, 4)) * count
        limit = 60 * rng.choice((1, 2, 5, 30, 120))
        length = max(1, int(limit * rng.uniform(0.05, 1.0)))
        partition = rng.choice(("high", "low"))
        jobs.append(RecordedJob(str(position), position, now, now, now + length, gpus, tuple(range(count)), limit,
                                "", partition))  # fmt: skip
    return jobs, nodes


def ask(job: RecordedJob, tasks: str) -> Ask:
    gpus = job.gpus_by_node[0]
    cpus = gpus if tasks == GPU else 1
    return Ask(len(job.nodes), gpus, cpus, tasks == GPU, job.limit, "", NodeNeeds((job.partition,)))


def pending(job: RecordedJob, tasks: str) -> StateJob:
    asked = ask(job, tasks)
    return StateJob(
        job.name, "PENDING", "Priority", 4.29e9 - job.position, NOW, NOW, 0, 0, job.limit, (), asked.num_nodes,
        asked.gpus, asked.cpus, "", asked.states_tasks, frozenset(), (), (), (job.partition,), "", "", "", "", (), (),
    )  # fmt: skip


@pytest.mark.parametrize("name", PARAMETERS)
@pytest.mark.parametrize(("seed", "num_nodes", "tasks"), [(1, 5, NODE), (2, 70, NODE), (3, 6, GPU), (4, 4, NODE)])
def test_a_future_has_the_starts_of_the_rules(name: str, seed: int, num_nodes: int, tasks: str) -> None:
    parameters = PARAMETERS[name]
    jobs, nodes = drawn(seed, num_nodes)
    installation = Installation(tuple(nodes), parameters, tasks=tasks, zero=NOW, tiers={"high": 3})
    expected = _Simulation(installation, 0, (), jobs).run(10**7)

    first = [job for job in jobs if job.submitted == 0]
    state_nodes = [StateNode(f"n{number}", node.gpus, node.cpus, node.weight, "", frozenset(), ("high", "low"), "")
                   for number, node in enumerate(nodes)]  # fmt: skip
    partitions = [StatePartition("high", (), 3, False, 0, 0), StatePartition("low", (), 1, True, 0, 0)]
    state = SlurmState("test", NOW, [pending(job, tasks) for job in first], state_nodes, partitions)
    later = [Arrival(ask(job, tasks), "", NOW + job.submitted, job.end - job.start) for job in jobs[len(first) :]]
    durations = {job.name: job.end - job.start for job in first}
    world = TwinWorld(state, parameters)
    source = FutureSource(JobHistory([], NOW), lambda rng: later, durations=durations)
    names = [job.name for job in first]
    starts = [start for start, _ in TwinSimulation(world, source, names, 0).run(0)]
    assert {name: start - NOW for name, start in zip(names, starts, strict=True)} == {
        name: expected[name] for name in names
    }
