"""Nodes that fail: who loses what, what theory says of it, and that the rest of a run is as it was."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from math import ceil, exp, factorial, gamma, inf, log
from operator import attrgetter
from pathlib import Path

import numpy as np
import pytest
from drawn import (
    POLICIES,
    PROFILES,
    AskedEveryRound,
    Listed,
    begun,
    cases,
    check_fork,
    draws,
    ended,
    failing,
    go_on,
    policies_and_cases,
    told,
)
from hypothesis import given
from hypothesis import strategies as st
from run_check import inconsistencies
from toy import ToyProfile, toy_job, toy_workload

from polluxsim.common.durations import NODE_DAYS
from polluxsim.common.errors import PolluxSimError
from polluxsim.engine.clock import uniforms
from polluxsim.engine.failures import DrawnFailures, JobFailures, RecordedFailures, SpotReclaims
from polluxsim.engine.outages import Workshop
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import simulate
from polluxsim.hardware.checkpoints import Checkpoints, young_daly
from polluxsim.hardware.clusters import Cluster, Outage, Repairs
from polluxsim.metrics.rounds import every_round
from polluxsim.metrics.summary import shares_of_gpu_time
from polluxsim.policies.contract.view import ClusterView, Decision
from polluxsim.policies.elastic.cluster_size import PendingGpus, Scaled
from polluxsim.policies.ordered.attained_service import Tiresias
from polluxsim.policies.ordered.classic import Fifo
from polluxsim.policies.reserving.easy import Easy
from polluxsim.records.results import OutageRecord, Result, Status
from polluxsim.statistics.series import failures
from polluxsim.workloads.job import Job
from polluxsim.workloads.workload import Workload

SEEDS = 500


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean of a sample and its standard error."""
    return float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(len(values)))


def test_a_failure_takes_the_gpus_at_once_and_all_work_since_the_last_checkpoint() -> None:
    rules = EngineSettings(checkpoints=Checkpoints(100.0, 10.0))
    profiles = {"toy": ToyProfile(epochs=(1000.0,))}
    result = simulate(toy_workload(toy_job("a", 0, 4)), profiles, failing((0, 250.0, 600.0)), Fifo(), settings=rules)
    (job,) = result.job_records
    # Trains from 90, saves from 190 to 200, loses 50 s of 4 GPUs, goes on from 330 at node 1 with 150 s left, saves.
    changes = [(record.time, record.nodes) for record in result.allocation_records]
    assert changes == [(60.0, (0,)), (250.0, ()), (300.0, (1,)), (490.0, ())]
    assert (job.completion_time, job.num_failures, job.num_restarts) == (490.0, 1, 0)
    assert (job.restart_time, job.checkpoint_time, job.lost_time) == (60.0, 20.0, 50.0)
    assert (job.restart_gpu_seconds, job.checkpoint_gpu_seconds, job.lost_gpu_seconds) == (240.0, 80.0, 200.0)
    assert (job.work, job.lost_work) == (1000.0, 200.0)
    assert result.outage_records == (OutageRecord(250.0, 850.0, 0, 4, "test"),)


@given(st.integers(0, 1000), st.sampled_from([7.0, 60.0, 400.0]), st.sampled_from(["fifo", "tiresias", "pollux"]))
@draws(15)
def test_nobody_waits_after_a_failure_where_the_policy_is_asked_at_once(seed: int, interval: float, name: str) -> None:
    """With a spare node there at once, the next GPUs come at once; else at the first round from then on."""
    cluster = Cluster.uniform(1, 4, DrawnFailures(1e5, repair_time=0.0))
    rules = EngineSettings(round_interval=interval, checkpoints=Checkpoints(50.0, 5.0), horizon=20_000.0)
    for at_once in (False, True):
        workload, settings = toy_workload(toy_job("a", 0, 4)), replace(rules, ask_at_failures=at_once)
        profiles = {"toy": ToyProfile(epochs=(20_000.0,))}
        result = simulate(workload, profiles, cluster, POLICIES[name](), settings=settings, seed=seed)
        (job,) = result.job_records
        records = result.allocation_records
        lost = [(one.time, two.time) for one, two in pairwise(records) if not one.nodes]
        assert len(lost) >= job.num_failures - 1
        times = [record.time for record in every_round(result, interval)]
        assert all(one < two for one, two in pairwise(times))
        assert {record.time for record in result.round_records} <= set(times)
        assert [again for _, again in lost] == [t if at_once else ceil(t / interval) * interval for t, _ in lost]


@pytest.mark.parametrize(
    ("fails", "kept"),
    [
        (195.0, 0.0),  # before the checkpoint is finished
        (200.0, 400.0),
        (305.0, 400.0),
        (310.0, 800.0),
    ],
)
def test_a_checkpoint_counts_once_it_is_finished(fails: float, kept: float) -> None:
    rules = EngineSettings(checkpoints=Checkpoints(100.0, 10.0), horizon=fails + 1)
    profiles = {"toy": ToyProfile(epochs=(300.0, 10_000.0))}
    result = simulate(toy_workload(toy_job("a", 0, 4)), profiles, failing((0, fails, inf)), Fifo(), settings=rules)
    assert result.job_records[0].work == pytest.approx(kept)


def test_checkpoints_at_epochs() -> None:
    rules = EngineSettings(checkpoints=Checkpoints("epoch", 10.0))
    profiles = {"toy": ToyProfile(epochs=(200.0, 600.0, 1000.0))}
    workload = toy_workload(toy_job("a", 0, 4))
    sound = simulate(workload, profiles, failing(), Fifo(), settings=rules)
    assert sound.job_records[0].completion_time == 90 + 50 + 10 + 100 + 10 + 100
    # Fails in the third epoch, of which 30 s are lost; begins it anew at node 1.
    result = simulate(workload, profiles, failing((0, 290.0, 10.0)), Fifo(), settings=rules)
    (job,) = result.job_records
    assert (job.completion_time, job.lost_time, job.checkpoint_time) == (300 + 30 + 100, 30.0, 20.0)


def test_a_job_that_lost_epochs_is_in_the_epoch_of_what_was_kept() -> None:
    seen = {}

    class Watching(Fifo):
        def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
            seen[view.time] = [(job.oracle.epoch, job.oracle.progress) for job in view.jobs]
            return replace(super().allocate(view, rng), valid_until=-inf)

    profiles = {"toy": ToyProfile(epochs=(200.0, 600.0, 1000.0))}
    rules = EngineSettings(checkpoints=Checkpoints(60.0, 0.0))
    simulate(toy_workload(toy_job("a", 0, 4)), profiles, failing((0, 209.0, 10.0)), Watching(), settings=rules)
    assert seen[180.0] == [(1, 360.0)]  # the second epoch began at 140
    assert seen[240.0] == [(1, 240.0)]
    simulate(toy_workload(toy_job("a", 0, 4)), profiles, failing((0, 239.0, 10.0)), Watching())
    assert seen[240.0] == [(0, 0.0)]


def test_a_planned_move_loses_nothing() -> None:
    class Moves:
        def allocate(self, view: ClusterView, rng: np.random.Generator) -> dict[str, tuple[tuple[int, int], ...]]:
            return {job.job_id: ((int(view.time // 60) % 2, 4),) for job in view.jobs}

    rules = EngineSettings(horizon=250.0)
    profiles = {"toy": ToyProfile(epochs=(10_000.0,))}
    result = simulate(toy_workload(toy_job("a", 0, 4)), profiles, failing((0, 249.0, inf)), Moves(), settings=rules)
    (job,) = result.job_records
    assert (job.work, job.lost_work, job.num_restarts) == (3 * 30 * 4, 0.0, 3)


def test_nobody_is_asked_while_no_node_is_up_and_the_others_are_seen_by_their_numbers() -> None:
    seen = {}

    class Watching(Fifo):
        def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
            seen[view.time] = (view.gpus_per_node, tuple(view.free), view.health[:2], view.changes.evicted)
            return replace(super().allocate(view, rng), valid_until=-inf)

    both = failing((0, 70.0, 300.0), (1, 130.0, 120.0))
    simulate(toy_workload(toy_job("a", 0, 4)), {"toy": ToyProfile(epochs=(2000.0,))}, both, Watching())
    assert seen[60.0] == ((4, 4), (4, 4), ((), (0, 0)), ())
    assert seen[120.0] == ((0, 4), (0, 4), ((0,), (1, 0)), ("a",))
    assert not {180.0, 240.0} & seen.keys()
    assert seen[300.0] == ((0, 4), (0, 4), ((0,), (1, 1)), ("a",))
    assert seen[420.0][:3] == ((4, 4), (4, 0), ((), (1, 1)))


def test_outages_of_one_node_may_overlap() -> None:
    cluster = failing((0, 70.0, 100.0), (0, 100.0, 20.0), (0, 150.0, 50.0), nodes=1)
    result = simulate(toy_workload(toy_job("a", 0, 4)), PROFILES, cluster, Fifo())
    assert result.outage_records == (OutageRecord(70.0, 200.0, 0, 4, "test"),)
    assert [record.time for record in result.allocation_records] == [60.0, 70.0, 240.0, 270.0 + 600 * 0.5 / 4]


def test_a_job_that_fails_now_and_then_makes_progress_in_between() -> None:
    """Rounds are rare where nothing changes, and that at which its GPUs were lost is not the first without progress."""
    job = Job("a", 0.0, "rigid", 4, 4, duration=1e5)
    rules = EngineSettings(checkpoints=Checkpoints(1000.0, 1.0))
    spared = failing((0, 20_000.0, 0.0), (0, 90_000.0, 0.0), nodes=1)
    result = simulate(toy_workload(job), {}, spared, Fifo(), settings=rules)
    assert [job.status for job in result.job_records] == [Status.COMPLETED]


def test_a_run_whose_last_node_is_gone_for_good_is_broken_off() -> None:
    result = simulate(toy_workload(toy_job("a", 0, 4)), PROFILES, failing((0, 70.0, inf), nodes=1), Fifo())
    assert result.job_records[0].status is Status.CUT_OFF
    assert result.standstill is not None


rates = st.sampled_from([3e3, 3e4, 1.5e5])
checkpoints = st.sampled_from(
    [None, Checkpoints(70.0, 7.0), Checkpoints(20.0, 20.0), Checkpoints("epoch", 5.0), Checkpoints("young-daly", 3.0)]
)


def drawn_failures(rate: float) -> DrawnFailures:
    """Return failures about as often as toy jobs end."""
    return DrawnFailures(rate, 0.8, repair_time=200.0, repair_spread=0.5, group_size=2, group_rate=rate / 3)


def failing_in_every_way(cluster: Cluster, rate: float) -> Cluster:
    return replace(
        cluster, failures=drawn_failures(rate), spot=SpotReclaims(rate / 2, 100.0, 8.0), repairs=Repairs(1, 1)
    )


def check_accounts(result: Result, cluster: Cluster) -> None:
    assert inconsistencies(result, cluster.gpus_per_node) == []
    for job in result.job_records:
        useful = job.run_time - job.restart_time - job.checkpoint_time - job.lost_time
        assert useful >= -1e-6
        assert min(job.lost_time, job.lost_work, job.checkpoint_time, job.work) >= 0
        if job.status is Status.COMPLETED:
            assert job.work == PROFILES[job.application].epochs[-1]


@given(policies_and_cases, st.sampled_from(["exact", "whole_seconds", "ask_at_failures"]), rates, checkpoints)
@draws(40)
def test_every_policy_obeys_the_laws_when_nodes_fail(
    given: tuple[str, tuple[Cluster, Workload]], mode: str, rate: float, saves: Checkpoints | None
) -> None:
    """Nobody holds a GPU of a node that is down, and to ask at every round changes nothing."""
    name, (cluster, workload) = given
    workload = Workload(tuple(job for job in workload.jobs if job.duration is None))
    cluster = failing_in_every_way(cluster, rate)
    rules = EngineSettings(checkpoints=saves, job_failures=JobFailures(3.0, 2), horizon=20_000.0)
    rules = rules if mode == "exact" else replace(rules, **{mode: True})
    result = simulate(workload, PROFILES, cluster, POLICIES[name](), settings=rules, seed=1)
    check_accounts(result, cluster)
    lost = Counter(job for (job, _), _ in failures(result, rules.round_interval))
    assert lost == {job.job: job.num_failures for job in result.job_records if job.num_failures}
    always = simulate(workload, PROFILES, cluster, AskedEveryRound(POLICIES[name]()), settings=rules, seed=1)
    assert result == always


@given(st.sampled_from(["fifo", "tiresias", "srtf", "easy"]), cases(), rates, checkpoints)
@draws(20)
def test_work_is_conserved(name: str, case: tuple[Cluster, Workload], rate: float, saves: Checkpoints | None) -> None:
    """What GPUs did, by the time they trained, is the work that stayed and the work that was lost."""
    cluster, workload = case
    rules = EngineSettings(checkpoints=saves, job_failures=JobFailures(3.0, 2), horizon=20_000.0)
    result = simulate(workload, PROFILES, failing_in_every_way(cluster, rate), POLICIES[name](), settings=rules)
    for job in result.job_records:
        trained = job.gpu_seconds - job.restart_gpu_seconds - job.checkpoint_gpu_seconds
        assert job.work + job.lost_work == pytest.approx(
            trained / PROFILES[job.application].seconds, rel=1e-9, abs=1e-6
        )


@given(policies_and_cases, rates, checkpoints, st.integers(0, 25), st.booleans())
@draws(15)
def test_a_copy_ends_as_the_run_would_when_nodes_fail(
    given: tuple[str, tuple[Cluster, Workload]], rate: float, saves: Checkpoints | None, turns: int, look: bool
) -> None:
    name, (cluster, workload) = given
    cluster, at_once = failing_in_every_way(cluster, rate), turns % 2 == 0
    rules = EngineSettings(
        checkpoints=saves, job_failures=JobFailures(3.0, 2), horizon=20_000.0, ask_at_failures=at_once
    )
    policy, other = POLICIES[name](), POLICIES[name]()
    uninterrupted = told(ended(begun(workload, cluster, other, rules), other))
    run = begun(workload, cluster, policy, rules)
    go_on(run, policy, turns, look=look)
    check_fork(run, policy, uninterrupted)


@given(policies_and_cases, st.booleans(), st.sampled_from([0.0, 0.4]))
@draws(20)
def test_nodes_that_could_fail_but_do_not_change_nothing(
    given: tuple[str, tuple[Cluster, Workload]], whole_seconds: bool, interference: float
) -> None:
    name, (cluster, workload) = given
    rules = EngineSettings(whole_seconds=whole_seconds, interference=interference)
    results = [
        simulate(workload, PROFILES, replace(cluster, failures=failures), POLICIES[name](), settings=rules, seed=1)
        for failures in (None, DrawnFailures(1e-9))
    ]
    # Every epoch is an event then, so that times and sums are rounded in another order.
    first, second = (
        [value for job in result.job_records for value in (job.completion_time or 0.0, job.gpu_seconds)]
        for result in results
    )
    assert second == pytest.approx(first, rel=1e-9)


def lives(failures: DrawnFailures, unit: int, seed: int, end: float) -> Iterator[Outage]:
    """Yield the outages of a unit up to a time."""
    since, number = 0.0, 0
    while True:
        outage = failures.outage(
            unit, number, since, lambda count, key=(1, 0, unit, number): uniforms(seed, key, count)
        )
        if outage.start >= end:
            return
        yield outage
        since, number = outage.start + outage.duration, number + 1


@pytest.mark.parametrize(("shape", "spread"), [(1.0, 0.0), (0.7, 0.9), (2.0, 0.3)])
def test_times_to_failure_and_repair_have_the_means_that_were_asked_for(shape: float, spread: float) -> None:
    failures = DrawnFailures(1000.0, shape, repair_time=3600.0, repair_spread=spread)  # a failure a day
    first = [next(lives(failures, 0, seed, inf)) for seed in range(4 * SEEDS)]
    mean, error = mean_and_error([outage.start for outage in first])
    assert abs(mean - 86400.0) < 3 * error
    assert np.std([outage.start for outage in first]) / mean == pytest.approx(
        (gamma(1 + 2 / shape) / gamma(1 + 1 / shape) ** 2 - 1) ** 0.5, rel=0.1
    )
    logs = [log(outage.duration) for outage in first]
    assert np.std(logs) == pytest.approx(spread, rel=0.1, abs=1e-9)
    mean, error = mean_and_error([outage.duration for outage in first])
    assert abs(mean - 3600.0) <= 3 * error + 1e-6


def idle_run(cluster: Cluster, horizon: float, seed: int) -> Result:
    """Return a run in which a job waits for more GPUs than are ever up, so that only nodes come and go."""
    rules = EngineSettings(horizon=horizon, round_interval=horizon, reasons="none")
    return simulate(toy_workload(toy_job("a", 0, 1)), PROFILES, cluster, Fifo(), settings=rules, seed=seed)


def test_the_number_of_failures_is_that_of_a_poisson_process() -> None:
    cluster, horizon = Cluster.uniform(3, 1, DrawnFailures(1000.0, repair_time=0.0)), 5 * 86400.0
    counts = [len(idle_run(cluster, horizon, seed).outage_records) for seed in range(SEEDS)]
    mean, error = mean_and_error(counts)
    assert abs(mean - 15.0) < 3 * error
    # The variance is the mean; its standard error by the fourth moment of a Poisson variable.
    assert abs(np.var(counts, ddof=1) - 15.0) < 3 * ((2 * 15.0**2 + 15.0) / SEEDS) ** 0.5


@pytest.mark.parametrize("spread", [0.0, 0.8])
def test_availability_is_mean_time_up_over_mean_time_of_a_cycle(spread: float) -> None:
    up, down = 86400.0, 21600.0
    failures = DrawnFailures(1000.0, repair_time=down, repair_spread=spread)
    cluster, start, end = Cluster.uniform(1, 1, failures), 5 * (up + down), 20 * (up + down)
    shares = []
    for seed in range(SEEDS):
        outages = idle_run(cluster, end, seed).outage_records
        out = sum(max(min(record.until, end) - max(record.time, start), 0.0) for record in outages)
        shares.append(1 - out / (end - start))
    mean, error = mean_and_error(shares)
    assert abs(mean - up / (up + down)) < 3 * error


def test_another_node_changes_nobody_elses_failures() -> None:
    failures = DrawnFailures(1e5, 0.7, repair_time=600.0, repair_spread=1.0, group_size=2, group_rate=3e4)
    assert list(failures.units(5)) == [0, 2, 4, 6, 8, 1, 3, 5]
    few, many = (idle_run(Cluster.uniform(nodes, 2, failures), 1e5, 3).outage_records for nodes in (4, 7))
    assert len(few) > 50
    assert list(few) == [record for record in many if record.node < 4]


def completion_times(
    nodes: int, rate: float, every: float, cost: float, work: int, *, at_once: bool = False
) -> list[float]:
    """Return when a job on all nodes completes, which trains `work` times `every`, by seed."""
    cluster = Cluster.uniform(nodes, 1, DrawnFailures(rate * NODE_DAYS, repair_time=0.0))
    rules = EngineSettings(0.5, 20.0, reasons="none", checkpoints=Checkpoints(every, cost), ask_at_failures=at_once)
    profiles = {"toy": ToyProfile(epochs=(nodes * every * work,))}
    workload = toy_workload(toy_job("a", 0, nodes))
    return [simulate(workload, profiles, cluster, Fifo(), settings=rules, seed=seed).end_time for seed in range(SEEDS)]


def expected_time(nodes: int, rate: float, every: float, cost: float, work: int, wait: float = 0.25) -> float:
    """Return the expected time of such a job: a start, `work` intervals, and a checkpoint after all but the last.

    Each interval takes e^{λR} (e^{λ(τ+δ)} − 1)/λ (Daly 2006), but for the first, which begins with a start, and for the
    mean wait of half a round after every failure.
    """
    total, delay = nodes * rate, 20.0

    def from_start(length: float) -> float:
        return (exp(total * (delay + length)) - 1) * (1 / total + wait)

    def going_on(length: float) -> float:
        return (1 - exp(-total * length)) * (1 / total + wait + from_start(length))

    return 0.5 + from_start(every + cost) + (work - 2) * going_on(every + cost) + going_on(every)


def test_the_expected_time_without_waits_is_that_of_daly() -> None:
    rate, every, cost = 1e-3, 300.0, 20.0
    formula = exp(rate * 20.0) * (exp(rate * (every + cost)) - 1) / rate
    per_interval = expected_time(1, rate, every, cost, 101) - expected_time(1, rate, every, cost, 100)
    assert per_interval == pytest.approx(formula, rel=1e-3)


@pytest.mark.parametrize(
    ("nodes", "rate", "every", "cost", "work", "at_once"),
    [
        (1, 1e-3, 300.0, 20.0, 8, False),
        (1, 2e-4, 1000.0, 60.0, 6, False),
        (4, 5e-4, 200.0, 10.0, 8, False),
        (4, 5e-4, 200.0, 10.0, 8, True),
    ],
)
def test_a_job_takes_the_time_that_theory_expects(
    nodes: int, rate: float, every: float, cost: float, work: int, at_once: bool
) -> None:
    mean, error = mean_and_error(completion_times(nodes, rate, every, cost, work, at_once=at_once))
    wait = 0.0 if at_once else 0.25
    assert abs(mean - expected_time(nodes, rate, every, cost, work, wait)) < 3 * error


@pytest.mark.slow
def test_the_best_interval_is_that_of_young_and_daly() -> None:
    rate, cost, training = 1e-3, 10.0, 4800
    intervals = [training / work for work in (100, 50, 36, 24, 12, 6)]
    times = [np.mean(completion_times(1, rate, every, cost, round(training / every))) for every in intervals]
    best = intervals[int(np.argmin(times))]
    theory = [expected_time(1, rate, every, cost, round(training / every)) for every in intervals]
    assert best == intervals[int(np.argmin(theory))] == min(intervals, key=lambda t: abs(t - young_daly(cost, rate)))


def test_young_and_dalys_interval_goes_by_what_was_seen() -> None:
    def saved_by(*outages: tuple[int, float, float]) -> float:
        rules = EngineSettings(checkpoints=Checkpoints("young-daly", 10.0, expected_rate=100.0), horizon=200_000.0)
        # Failures count from the first submission.
        workload = toy_workload(Job.rigid("first", 0.0, 1, 60.0), toy_job("a", 100_000.0, 1))
        profiles = {"toy": ToyProfile(epochs=(1e6,))}
        return simulate(workload, profiles, failing(*outages), Fifo(), settings=rules).job_records[1].checkpoint_time

    start = first = 100_020.0
    for seen, outages in ((0, ()), (8, [(1, 1000.0 * i, 10.0) for i in range(1, 9)])):
        rate = (seen + 1) / (2 * first + NODE_DAYS / 100.0)
        pauses = (200_000.0 - start - 30.0) // (young_daly(10.0, rate) + 10.0)
        assert saved_by(*outages) == pytest.approx(10.0 * pauses, abs=10.0)


def write(path: Path, *rows: str) -> str:
    path.write_text("\n".join(["node,time,down_until,kind", *rows]) + "\n")
    return str(path)


def test_recorded_failures(tmp_path: Path) -> None:
    path = write(tmp_path / "failures.csv", "1,500,900,switch", "0,100,,gone")
    result = idle_run(Cluster.uniform(2, 4, RecordedFailures(path)), 5000.0, 0)
    assert list(result.outage_records) == [
        OutageRecord(100.0, inf, 0, 4, "gone"),
        OutageRecord(500.0, 900.0, 1, 4, "switch"),
    ]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("2,100,200,", "line 3: column 'node' is '2', must be a node's number, 0 to 1"),
        ("-1,100,200,", "line 3: column 'node' is '-1', must be a whole number ≥ 0"),
        ("0,100,50,", "line 3: column 'down_until' is '50', must be a finite number > 100"),
        ("0,-1,50,", "line 3: column 'time' is '-1', must be a finite number ≥ 0"),
    ],
)
def test_a_bad_line_of_recorded_failures_is_named(tmp_path: Path, row: str, message: str) -> None:
    path = write(tmp_path / "failures.csv", "0,10,20,", row)
    with pytest.raises(PolluxSimError) as caught:
        Cluster.uniform(2, 4, RecordedFailures(path))
    assert str(caught.value) == f"{path}, {message}"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DrawnFailures(1.0, shape=0.0), "cluster.failures.shape is 0, must be a finite number ≥ 0.05"),
        (lambda: DrawnFailures(-1.0), "cluster.failures.rate is -1, must be a number from 0 to 86400000"),
        (lambda: DrawnFailures(1.0, group_size=0), "cluster.failures.group_size is 0, must be a whole number ≥ 1"),
        (lambda: DrawnFailures(1.0, group_size=2.5), "cluster.failures.group_size is 2.5, must be a whole number ≥ 1"),
        (
            lambda: Cluster((4, 4), 1, repairs=Repairs(1)),
            "cluster.repairs cannot be set, because the policy may change the number of nodes "
            "(least_nodes=1, num_nodes=2): remove it",
        ),
        (lambda: SpotReclaims(-1.0), "cluster.spot.rate is -1, must be a number from 0 to 86400000"),
        (
            lambda: JobFailures(1e9),
            "engine.job_failures.rate is 1e+09, must be a number from 0 to 3600",
        ),
        (lambda: JobFailures(1.0, -1), "engine.job_failures.retries is -1, must be a whole number ≥ 0"),
        (lambda: EngineSettings(interference="a"), "engine.interference is 'a', must be a number in [0, 1)"),
        (lambda: Cluster.of_groups(3), "cluster.groups is 3, must be a list of groups of nodes"),
        (
            lambda: EngineSettings(whole_seconds=True, ask_at_failures=True),
            "engine.ask_at_failures is true, must be false where whole_seconds is set",
        ),
        (lambda: Repairs(crews=0), "cluster.repairs.crews is 0, must be a whole number ≥ 1, or null"),
        (
            lambda: Repairs(spare_nodes=-1),
            "cluster.repairs.spare_nodes is -1, must be a whole number from 0 to 1000000",
        ),
        (
            lambda: Checkpoints(60.0, 90.0),
            "engine.checkpoints.cost gives a checkpoint of 90 s, "
            "must be at most the interval between checkpoints, 60 s",
        ),
        (
            lambda: Checkpoints(60.0, 9.0, sizes={"bert": 100.0}, bandwidth=0.5),
            "engine.checkpoints.sizes.bert gives a checkpoint of 200 s, "
            "must be at most the interval between checkpoints, 60 s",
        ),
        (lambda: Checkpoints(0.0), "engine.checkpoints.every is 0, must be a finite number > 0"),
        (
            lambda: Checkpoints("epochs"),
            "engine.checkpoints.every is 'epochs', must be a time > 0 [s], a duration like 30min, "
            "or epoch or young-daly",
        ),
        (
            lambda: Checkpoints("young-daly", 0.0),
            "engine.checkpoints.cost gives a checkpoint of 0 s, must be > 0 s, because every is young-daly",
        ),
    ],
)
def test_bad_settings_are_named(make: object, message: str) -> None:
    with pytest.raises(PolluxSimError) as caught:
        make()
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("warning", "saves", "lost", "saved", "work"),
    [
        (0.0, Checkpoints(100.0, 10.0), 60.0, 10.0, 400.0),
        (9.0, Checkpoints(100.0, 10.0), 60.0, 10.0, 400.0),
        (10.0, Checkpoints(100.0, 10.0), 0.0, 20.0, 600.0),
        (120.0, Checkpoints(100.0, 10.0), 0.0, 20.0, 600.0),
        (120.0, None, 170.0, 0.0, 0.0),
    ],
)
def test_who_is_warned_in_time_loses_nothing(
    warning: float, saves: Checkpoints | None, lost: float, saved: float, work: float
) -> None:
    """A job trains from 90, saves from 190 to 200, and loses its node at 260."""
    rules = EngineSettings(checkpoints=saves, horizon=261.0)
    cluster = Cluster.uniform(1, 4, Listed((Outage((0,), 260.0, inf, "reclaimed", warning),)))
    profiles = {"toy": ToyProfile(epochs=(1e4,))}
    (job,) = simulate(toy_workload(toy_job("a", 0, 4)), profiles, cluster, Fifo(), settings=rules).job_records
    assert (job.lost_time, job.checkpoint_time, job.work) == (lost, saved, work)


def test_outages_that_are_announced_are_seen() -> None:
    seen = {}

    class Watching(Fifo):
        def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
            seen[view.time] = view.health.coming
            return replace(super().allocate(view, rng), valid_until=-inf)

    cluster = Cluster.uniform(2, 4, Listed((Outage((1,), 300.0, 60.0, "maintenance", 150.0),)))
    simulate(toy_workload(toy_job("a", 0, 4)), {"toy": ToyProfile(epochs=(2000.0,))}, cluster, Watching())
    assert [seen[time] for time in (60.0, 120.0, 180.0, 240.0, 300.0)] == [(), (), ((1, 300.0),), ((1, 300.0),), ()]


@given(policies_and_cases, st.integers(0, 1), st.floats(30.0, 3000.0), st.floats(1.0, 4000.0))
@draws(30)
def test_a_node_that_drains_takes_no_further_jobs(
    given: tuple[str, tuple[Cluster, Workload]], node: int, start: float, drain: float
) -> None:
    """What is held of it never grows, whoever decides, and to ask at every round changes nothing."""
    name, (cluster, workload) = given
    workload = Workload(tuple(job for job in workload.jobs if job.duration is None))
    node = min(node, cluster.num_nodes - 1)
    window = Outage((node,), start, 500.0, "maintenance", drain, drain=drain)
    cluster = replace(cluster, failures=Listed((window,)))
    rules = EngineSettings(horizon=20_000.0)
    result = simulate(workload, PROFILES, cluster, POLICIES[name](), settings=rules, seed=1)
    check_accounts(result, cluster)
    held, most = {}, inf
    for time, changes in groupby(result.allocation_records, key=attrgetter("time")):
        for change in changes:
            held[change.job] = dict(zip(change.nodes, change.gpus, strict=True)).get(node, 0)
        if start - drain < time < start + 500.0:
            assert sum(held.values()) <= most
            most = sum(held.values())
        elif time <= start - drain:
            most = sum(held.values())
    always = simulate(workload, PROFILES, cluster, AskedEveryRound(POLICIES[name]()), settings=rules, seed=1)
    assert result == always


@given(
    cases(),
    st.sampled_from([Fifo, Easy, Tiresias]),
    rates,
    st.sampled_from([0.0, 130.0]),
    st.integers(0, 12),
    checkpoints,
)
@draws(20)
def test_a_rented_node_that_fails_is_replaced_after_its_start_up(
    case: tuple[Cluster, Workload],
    inner: type[Fifo],
    rate: float,
    startup: float,
    turns: int,
    saves: Checkpoints | None,
) -> None:
    """Only nodes that are rented and up fail; each is back after the start-up time, unless it is given back before."""
    (base, workload), spot = case, SpotReclaims(rate, 300.0, 90.0)
    cluster = Cluster((*base.gpus_per_node, 4), 1, startup, 36.0, drawn_failures(rate), spot)
    rules = EngineSettings(checkpoints=saves, horizon=20_000.0)
    policy, other = (Scaled(inner(), PendingGpus(), idle_time=100.0) for _ in range(2))
    run = begun(workload, cluster, policy, rules)
    go_on(run, policy, turns, look=False)
    check_fork(run, policy, told(ended(begun(workload, cluster, other, rules), other)))
    result = run.result()
    check_accounts(result, cluster)
    shares = shares_of_gpu_time(result)
    assert sum(shares.values()) == pytest.approx(1, abs=1e-9)
    assert min(shares.values()) > -1e-9
    rounds = list(every_round(result, rules.round_interval))
    for outage in result.outage_records:
        given_back = outage.until % rules.round_interval == 0
        lasts = startup if "failure" in outage.kind else 300.0
        assert outage.until == pytest.approx(outage.time + lasts) or outage.until > outage.time + lasts or given_back
    for record in rounds:
        down = sum(outage.time <= record.time < outage.until for outage in result.outage_records)
        assert 0 <= record.nodes <= round(record.hourly_cost / 36.0) - down


def repairs_in_turn(repairs: Repairs, *failures: tuple[float, float]) -> list[float]:
    """Return when nodes are up again that fail at a time and take some time to repair."""
    workshop = Workshop(repairs)
    return [workshop.until(now, Outage((0,), now, time, "failure", is_repair=True)) for now, time in failures]


def test_crews_and_spare_nodes_by_hand() -> None:
    failures = ((10.0, 100.0), (20.0, 100.0), (30.0, 5.0), (300.0, 50.0))
    assert repairs_in_turn(Repairs(), *failures) == [110.0, 120.0, 35.0, 350.0]
    assert repairs_in_turn(Repairs(crews=1), *failures) == [110.0, 210.0, 215.0, 350.0]
    assert repairs_in_turn(Repairs(crews=2), *failures) == [110.0, 120.0, 115.0, 350.0]
    # The spare goes to the first; the second waits for the first's repair.
    assert repairs_in_turn(Repairs(spare_nodes=1), *failures[:2]) == [10.0, 110.0]
    assert repairs_in_turn(Repairs(spare_nodes=2), *failures) == [10.0, 20.0, 35.0, 300.0]
    assert Workshop(Repairs(1, 1)).until(5.0, Outage((0, 1), 5.0, 60.0, "group failure", is_repair=True)) == 65.0
    assert Workshop(Repairs(1, 1)).until(5.0, Outage((0,), 5.0, 60.0, "maintenance")) == 65.0


def test_one_crew_for_many_nodes_is_a_machine_repair_model() -> None:
    """Of M nodes and one crew, all times exponential: P(k down) ∝ M!/(M − k)! · (λ/μ)^k (Palm 1947)."""
    nodes, up, down = 4, 86400.0, 43200.0
    # A log-normal repair is not exponential: take the number that is drawn for it as the chance of an exponential one.

    class Exponential(DrawnFailures):
        def outage(self, unit: int, number: int, since: float, draw: object) -> Outage:
            life, repair = draw(2)
            return Outage((unit // 2,), since - up * log(life), -down * log(repair), "failure", is_repair=True)

    cluster = Cluster.uniform(nodes, 1, Exponential(1.0), repairs=Repairs(crews=1))
    start, end, shares = 5 * up, 30 * up, []
    for seed in range(SEEDS):
        outages = idle_run(cluster, end, seed).outage_records
        shares.append(sum(max(min(row.until, end) - max(row.time, start), 0.0) for row in outages) / (end - start))
    weights = [factorial(nodes) / factorial(nodes - k) * (down / up) ** k for k in range(nodes + 1)]
    mean, error = mean_and_error(shares)
    assert abs(mean - sum(k * weight for k, weight in enumerate(weights)) / sum(weights)) < 3 * error


def test_a_job_fails_for_good_after_its_retries() -> None:
    profiles, cluster = {"toy": ToyProfile(epochs=(1e6,))}, Cluster.uniform(1, 1)
    rules = EngineSettings(job_failures=JobFailures(20.0, 3), round_interval=1.0, reasons="none")
    held = []
    for seed in range(SEEDS):
        (job,) = simulate(toy_workload(toy_job("a")), profiles, cluster, Fifo(), settings=rules, seed=seed).job_records
        assert (job.status, job.num_failures, job.work, job.num_restarts) == (Status.FAILED, 4, 0.0, 0)
        held.append(job.run_time)
    mean, error = mean_and_error(held)
    assert abs(mean - 4 * 3600.0 / 20.0) < 3 * error


def test_jobs_that_wait_for_a_failed_one_are_cancelled() -> None:
    rules = EngineSettings(job_failures=JobFailures(1000.0, 0))
    jobs = toy_workload(toy_job("a"), toy_job("b", after=("a",)))
    result = simulate(jobs, {"toy": ToyProfile(epochs=(1e6,))}, Cluster.uniform(1, 1), Fifo(), settings=rules)
    assert [job.status for job in result.job_records] == [Status.FAILED, Status.CANCELLED]
