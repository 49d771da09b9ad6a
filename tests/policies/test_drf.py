"""Dominant-resource fairness: progressive filling by itself, and the four properties that it is known for."""

from __future__ import annotations

from collections import Counter
from math import ceil
from operator import mul
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy import toy_workload

from polluxsim.common.errors import InvalidConfigError
from polluxsim.engine.futures import Fork
from polluxsim.engine.scenario import Scenario
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import Simulation, run_to_end, simulate
from polluxsim.hardware.clusters import Cluster
from polluxsim.look.why.sentences import sentence
from polluxsim.policies.ordered.classic import Fifo
from polluxsim.policies.tenants.fairness import DominantResourceFairness
from polluxsim.records.results import Result, Status
from polluxsim.workloads.workload import Job

ALL = (40, 120.0, 480.0)
"""GPUs, CPUs and memory of the one node."""
CLUSTER = Cluster.of_groups([{"nodes": 1, "gpus": ALL[0], "cpus": ALL[1], "memory": ALL[2]}])

Task = tuple[float, float]
"""CPUs and memory of one that has one GPU."""

tasks = st.tuples(st.integers(1, 24).map(lambda part: part / 2), st.integers(1, 48).map(float))
users = st.lists(tasks, min_size=2, max_size=4)


def started(users: list[Task], weights: list[float] | None = None) -> list[int]:
    """Return how many tasks of each user run at once, of as many as it likes."""
    jobs = [
        Job.rigid(f"{user}-{task}", 0.0, 1, 600.0, queue=f"u{user}", cpus=cpus, memory=memory)
        for task in range(ALL[0])
        for user, (cpus, memory) in enumerate(users)
    ]
    said = {f"u{user}": weight for user, weight in enumerate(weights or [])}
    rules = EngineSettings(horizon=61.0, reasons="none")
    result = simulate(toy_workload(*jobs), {}, CLUSTER, DominantResourceFairness(said), settings=rules)
    count = Counter(record.job.partition("-")[0] for record in result.allocation_records)
    return [count[f"{user}"] for user in range(len(users))]


def filled(users: list[Task], weights: list[float] | None = None) -> list[int]:
    """Return the same by progressive filling, task by task."""
    counts, blocked, left = [0] * len(users), set[int](), list(map(float, ALL))
    while len(blocked) < len(users):
        shares = [
            (dominant(users[user], counts[user]) / (weights[user] if weights else 1), user)
            for user in range(len(users))
            if user not in blocked
        ]
        user = min(shares)[1]
        needs = (1.0, *users[user])
        if all(part <= there * (1 + 1e-9) for part, there in zip(needs, left, strict=True)):
            left = [there - part for part, there in zip(needs, left, strict=True)]
            counts[user] += 1
        else:
            blocked.add(user)
    return counts


def dominant(task: Task, count: float = 1) -> float:
    return max(count * part / there for part, there in zip((1.0, *task), ALL, strict=True))


def fits(task: Task, bundle: tuple[float, float, float]) -> int:
    """Return how many tasks go into a bundle."""
    return int(min(there / part for part, there in zip((1.0, *task), bundle, strict=True)) * (1 + 1e-9))


@given(users, st.sampled_from([None, (1.0, 2.0, 3.0, 1.0)]))
@settings(max_examples=25)
def test_it_is_progressive_filling(users: list[Task], weights: tuple[float, ...] | None) -> None:
    said = list(weights[: len(users)]) if weights else None
    assert started(users, said) == filled(users, said)


def test_the_example_of_the_paper() -> None:
    """9 CPUs and 18 GB; tasks of 1 CPU and 4 GB, and of 3 CPUs and 1 GB: 3 and 2 of them."""
    cluster = Cluster.of_groups([{"nodes": 1, "gpus": 100, "cpus": 9, "memory": 18}])
    jobs = [
        Job.rigid(f"{name}{i}", 0.0, 1, 600.0, queue=name, cpus=cpus, memory=memory)
        for name, cpus, memory in (("A", 1.0, 4.0), ("B", 3.0, 1.0))
        for i in range(9)
    ]
    result = simulate(toy_workload(*jobs), {}, cluster, DominantResourceFairness())
    first = [record.job[0] for record in result.allocation_records if record.time == 60.0]
    assert Counter(first) == {"A": 3, "B": 2}


@given(users)
@settings(max_examples=25)
def test_dominant_shares_are_equal_as_far_as_tasks_allow(users: list[Task]) -> None:
    """All rise together until one finds a resource full; others go on with what is left of it, less than a task."""
    counts = started(users)
    needs = [(1.0, *task) for task in users]
    left = [there - sum(map(mul, counts, parts)) for there, parts in zip(ALL, zip(*needs, strict=True), strict=True)]
    for one, count in enumerate(counts):
        full = [r for r, there in enumerate(left) if needs[one][r] > there * (1 + 1e-9)]
        assert full
        for other, task in enumerate(users):
            more = 1 + max(needs[one][r] / needs[other][r] for r in full)
            assert dominant(task, counts[other]) <= dominant(users[one], count) + dominant(task, more) + 1e-9


@given(users)
@settings(max_examples=25)
def test_nobody_would_rather_have_its_part_of_the_cluster(users: list[Task]) -> None:
    """Sharing incentive, but for what cannot be had in parts of tasks."""
    n, largest = len(users), max(map(dominant, users))
    for task, count in zip(users, started(users), strict=True):
        assert dominant(task, count) >= (1 - (n + 1) * largest) / n - 1e-9


@given(users)
@settings(max_examples=25)
def test_nobody_would_rather_have_what_another_has(users: list[Task]) -> None:
    """Envy-freeness, but for a task, and as many as one of the other's is worth."""
    counts = started(users)
    for mine, count in zip(users, counts, strict=True):
        for theirs, other in zip(users, counts, strict=True):
            bundle = (float(other), other * theirs[0], other * theirs[1])
            assert fits(mine, bundle) <= count + 1 + ceil(dominant(theirs) / dominant(mine))


@given(users, st.integers(0, 3), st.sampled_from([(2.0, 1.0), (1.0, 2.0), (3.0, 3.0), (1.5, 1.0), (1.0, 4.0)]))
@settings(max_examples=25)
def test_asking_for_more_than_one_needs_does_not_pay(users: list[Task], who: int, lie: tuple[float, float]) -> None:
    """Strategy-proofness: more of true tasks cannot be run by a lie, but for one or two that do not come out even."""
    who %= len(users)
    true = users[who]
    false = (true[0] * lie[0], true[1] * lie[1])
    got = started([*users[:who], false, *users[who + 1 :]])[who]
    assert fits(true, (float(got), got * false[0], got * false[1])) <= started(users)[who] + 2


def run(*jobs: Job, cluster: Cluster = CLUSTER, **options: Any) -> Result:
    rules = EngineSettings(restart_delay=0.0)
    return simulate(toy_workload(*jobs), {}, cluster, DominantResourceFairness(**options), settings=rules)


def test_jobs_have_what_they_ask_for_and_who_says_nothing_the_usual() -> None:
    said, silent = Job.rigid("said", 0.0, 2, 60.0, cpus=20.0, memory=8.0), Job.rigid("silent", 0.0, 1, 60.0)
    found = {record.job: record[2:4] for record in run(said, silent).host_records}
    assert found == {"said": (10.0, 4.0), "silent": (3.0, 12.0)}


def test_one_that_asks_for_more_than_there_is_is_not_admitted() -> None:
    records = run(Job.rigid("vast", 0.0, 1, 60.0, cpus=121.0), Job.rigid("fits", 0.0, 1, 60.0, cpus=120.0)).job_records
    assert [record.status for record in records] == [Status.REJECTED, Status.COMPLETED]


def test_a_job_that_runs_elsewhere_by_another_policy_holds_nobody_up() -> None:
    """Its CPUs were not counted when it was placed."""
    jobs = [Job.rigid(f"{i}", 0.0, 1, 600.0, cpus=100.0) for i in range(2)]
    first, then = (
        Scenario.under(policy, toy_workload(*jobs), {}, CLUSTER, EngineSettings())
        for policy in (Fifo(), DominantResourceFairness())
    )
    going = Simulation(first, 0)
    view = going.advance()
    assert view is not None
    going.commit(Fifo().allocate(view, going.rng))
    going.fork(Fork(120.0, then, has_new_policy=True))
    result = run_to_end(going, DominantResourceFairness())
    assert [record.status for record in result.job_records] == [Status.COMPLETED] * 2


def test_by_users_and_without_cpus_it_shares_gpus() -> None:
    jobs = [Job.rigid(f"{user}{i}", float(i), 1, 600.0, user=user) for user in ("ada", "bob") for i in range(8)]
    result = run(*jobs, cluster=Cluster((6,)), by="user", weights={"ada": 2.0})
    first = Counter(record.job[:3] for record in result.allocation_records if record.time == 60.0)
    assert first == {"ada": 4, "bob": 2}
    assert len(result.host_records) == 0


def test_reasons_are_sentences() -> None:
    result = run(Job.rigid("wide", 0.0, 1, 600.0, cpus=100.0), Job.rigid("next", 0.0, 1, 600.0, cpus=60.0))
    said = {
        record.job: sentence(record, result.reason_texts) for record in result.reason_records if record.time == 60.0
    }
    assert said["wide"].startswith(
        "The job gets 1 GPU with 100 CPUs and 2.5 % of all memory, because its queue had the lowest"
    )
    assert said["next"].startswith(
        "The job needs 1 GPU with 60 CPUs and 2.5 % of all memory. After the starts of this round, 39 GPUs are free, 0 "
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [({"by": "team"}, "must be one of queue, user"), ({"weights": {"a": 0}}, "> 0")],
)
def test_wrong_parameters_are_one_line(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidConfigError, match=words):
        DominantResourceFairness(**options)


def test_a_job_gets_its_fastest_type() -> None:
    cluster = Cluster.of_groups([[1, 2, "t4"], [1, 2, "v100"]])
    job = Job.rigid("a", 0.0, 1, 600.0, type_speeds=(("t4", 1.0), ("v100", 3.0)))
    result = simulate(toy_workload(job), {}, cluster, DominantResourceFairness())
    assert [tuple(record.nodes) for record in result.allocation_records] == [(1,), ()]
