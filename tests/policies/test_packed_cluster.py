"""FIFO and EASY on nodes start each job at the same second as an independent simulation."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from polluxsim.common.errors import InvalidInputError
from polluxsim.engine.futures import Fork
from polluxsim.engine.scenario import Scenario, for_cluster
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import Simulation, run_to_end, simulate
from polluxsim.hardware.clusters import Cluster
from polluxsim.look.why.sentences import sentence
from polluxsim.policies.contract.policy import Policy
from polluxsim.policies.ordered.classic import Fifo
from polluxsim.policies.reserving.easy import Easy
from polluxsim.workloads.workload import Job, Workload
from tests.policies.packed_cluster import Job as PlainJob
from tests.policies.packed_cluster import start_times

ENGINE = EngineSettings(round_interval=1.0, restart_delay=0.0, placement="consolidated")


def drawn_log(number: int, partitions: list[str]) -> tuple[list[int], list[PlainJob]]:
    """Return the GPUs of each node of a partition, and jobs in order of submission."""
    rng = random.Random(number)
    size = rng.randint(2, 8)
    sizes = [size] * rng.randint(2, 12)
    if rng.random() < 0.3:
        sizes[rng.randrange(len(sizes))] = rng.randint(1, 8)
    jobs = []
    submit = 1  # the first round is after the start of the run
    for _ in range(rng.randint(20, 60)):
        submit += rng.choice([0, 0, 1, 3, 10, 40])
        gpus = rng.choice([1, 1, 1, 2, 3, size, size, rng.randint(1, sum(sizes))])
        duration = rng.randint(1, 200)
        limit = rng.choice([duration, duration + rng.randint(1, 100), 300])
        jobs.append(PlainJob(rng.choice(partitions), submit, min(gpus, sum(sizes)), duration, limit))
    return sizes, jobs


def simulated_starts(jobs: list[PlainJob], cluster: Cluster, policy: Policy) -> list[float]:
    """Return the start of each job in the simulator [s]."""
    workload = Workload(
        tuple(
            Job.rigid(
                f"job-{number}", float(job.submit), job.gpus, float(job.duration), time_limit=float(job.limit),
                queue=job.partition,
            )
            for number, job in enumerate(jobs)
        )
    )  # fmt: skip
    result = simulate(workload, {}, cluster, policy, settings=ENGINE)
    starts = {record.job: record.start_time for record in result.job_records}
    return [starts[f"job-{number}"] for number in range(len(jobs))]


LOGS = [*range(50), *(pytest.param(number, marks=pytest.mark.slow) for number in range(50, 200))]


@pytest.mark.parametrize("number", LOGS)
def test_starts_are_those_of_an_independent_simulation(number: int) -> None:
    sizes, jobs = drawn_log(number, ["gpu"])
    cluster = Cluster(tuple(sizes))
    assert simulated_starts(jobs, cluster, Fifo(backfill=False)) == start_times(jobs, sizes, backfill=False)
    assert simulated_starts(jobs, cluster, Easy()) == start_times(jobs, sizes, backfill=True)


@pytest.mark.parametrize("number", range(200, 220))
def test_partitions_start_independently(number: int) -> None:
    sizes, jobs = drawn_log(number, ["a", "b"])
    other_sizes = [1 + size % 8 for size in sizes]
    cluster = Cluster(
        (*sizes, *other_sizes),
        partitions={"a": tuple(range(len(sizes))), "b": tuple(range(len(sizes), 2 * len(sizes)))},
    )
    sizes_of = {"a": sizes, "b": other_sizes}
    jobs = [job._replace(gpus=min(job.gpus, sum(sizes_of[job.partition]))) for job in jobs]
    for policy, backfill in ((Fifo(backfill=False), False), (Easy(), True)):
        starts = simulated_starts(jobs, cluster, policy)
        for partition, own_sizes in sizes_of.items():
            own = [place for place, job in enumerate(jobs) if job.partition == partition]
            alone = start_times([jobs[place] for place in own], own_sizes, backfill=backfill)
            assert [starts[place] for place in own] == alone


def test_a_job_whose_queue_is_no_partition_is_refused() -> None:
    workload = Workload((Job.rigid("one", 1.0, 1, 60.0, queue="gpus"),))
    with pytest.raises(InvalidInputError, match=r"queue 'gpus', and the cluster has partitions: .*did you mean gpu\?"):
        simulate(workload, {}, Cluster((8,), partitions={"gpu": (0,)}), Fifo(), settings=ENGINE)


def test_a_job_that_fits_on_no_nodes_is_refused() -> None:
    workload = Workload((Job.rigid("wide", 1.0, 8, 60.0, num_nodes=1),))
    with pytest.raises(InvalidInputError, match="needs 8 GPUs on one node, and the cluster has no such nodes"):
        simulate(workload, {}, Cluster((4, 4)), Fifo(), settings=ENGINE)
    anywhere = EngineSettings(round_interval=1.0, restart_delay=0.0, placement="anywhere")
    assert simulate(workload, {}, Cluster((4, 4)), Fifo(), settings=anywhere).job_records[0].start_time == 1.0


def test_a_wait_for_a_node_says_so() -> None:
    jobs = [Job.rigid(f"small-{number}", 1.0, 3, 600.0) for number in range(2)]
    workload = Workload((*jobs, Job.rigid("large", 2.0, 4, 60.0)))
    result = simulate(workload, {}, Cluster((5, 5)), Fifo(backfill=True), settings=ENGINE)
    record = next(record for record in result.reason_records if record.job == "large")
    assert "4 GPUs are left, but no node has 4 free (the most on one node is 2)" in sentence(
        record, result.reason_texts
    )


def test_a_fork_may_add_nodes_to_a_partition() -> None:
    """Partition b gets two more nodes after the first decision, so that its three jobs start at once."""
    jobs = tuple(Job.rigid(f"{number}", 1.0, 4, 100.0, queue="ab"[number % 2]) for number in range(6))
    cluster = Cluster((4, 4), partitions={"a": (0,), "b": (1,)})
    policy = for_cluster(Fifo(), cluster)
    scenario = Scenario.under(policy, Workload(jobs), {}, cluster, ENGINE)
    run = Simulation(scenario, 0)
    view = run.advance()
    assert view is not None
    run.commit(run.ask(policy, view))
    larger = Cluster((4, 4, 4, 4), partitions={"a": (0,), "b": (1, 2, 3)})
    run.fork(Fork(50.0, replace(scenario, cluster=larger)))
    starts = {record.job: record.start_time for record in run_to_end(run, policy).job_records}
    assert starts == {"0": 1.0, "2": 101.0, "4": 201.0, "1": 1.0, "3": 50.0, "5": 50.0}
