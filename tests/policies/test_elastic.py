"""Elastic policies: worked examples, and small programmes against brute force."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import pytest
from drawn import Listed, begun, draws, ended, failing
from hypothesis import given
from hypothesis import strategies as st
from toy import ToyProfile, toy_job, toy_workload

from polluxsim.engine.futures import Fork
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.sharing import Interleaved
from polluxsim.engine.simulation import simulate
from polluxsim.hardware.clusters import Cluster, Outage
from polluxsim.look.why.sentences import sentence
from polluxsim.policies.contract.policy import Policy
from polluxsim.policies.contract.view import Changes
from polluxsim.policies.deadlines.elasticflow import ElasticFlow
from polluxsim.policies.elastic.largest_sum import best_counts
from polluxsim.policies.elastic.true_times import Afs, Bid, EffectiveScaling, Optimus, Proportional, goes_first
from polluxsim.policies.sharing.gandiva import Gandiva
from polluxsim.policies.sized.themis import Themis, auctioned
from polluxsim.policies.tools.gpu_counts import TrueTimes
from polluxsim.workloads.workload import Job

RULES = EngineSettings(restart_delay=0.0)
SPEEDS = ((1, 1.0), (2, 1.8), (3, 2.4), (4, 2.8), (5, 3.0), (6, 3.1))


def elastic(name: str, submit: float, duration: float, gpus: int = 1, **options: object) -> Job:
    return Job.rigid(name, submit, gpus, duration, **{"speeds": SPEEDS, **options})


def first_counts(policy: Policy, *jobs: Job, gpus: int = 6) -> dict[str, int]:
    result = simulate(toy_workload(*jobs), {}, Cluster.uniform(1, gpus), policy, settings=RULES)
    return {change.job: sum(change.gpus) for change in reversed(result.allocation_records) if change.time == 60.0}


def test_shares_are_in_proportion_to_what_was_asked_for() -> None:
    assert first_counts(Proportional(), elastic("a", 0.0, 600.0, 1), elastic("b", 0.0, 600.0, 2)) == {"a": 2, "b": 4}
    # Who can use less leaves the rest, and a gang gets all of its GPUs or none.
    less = elastic("a", 0.0, 600.0, 1, max_replicas=1), elastic("b", 0.0, 600.0, 2)
    assert first_counts(Proportional(), *less) == {"a": 1, "b": 5}
    gang = Job.rigid("gang", 0.0, 4, 60.0), elastic("b", 0.0, 600.0, 2)
    assert first_counts(Proportional(), *gang) == {"gang": 4, "b": 2}


@given(st.lists(st.dictionaries(st.integers(1, 5), st.floats(0.1, 10.0), min_size=1), max_size=4), st.integers(0, 8))
@draws(100)
def test_the_programme_equals_brute_force(values: list[dict[int, float]], spare: int) -> None:
    num_gpus = sum(map(min, values)) + spare
    counts = best_counts(values, num_gpus)
    assert sum(counts) <= num_gpus
    found = sum(worth[gpus] for worth, gpus in zip(values, counts, strict=True))
    every = (choice for choice in product(*values) if sum(choice) <= num_gpus)
    best = max(sum(worth[gpus] for worth, gpus in zip(values, choice, strict=True)) for choice in every)
    assert found == pytest.approx(best)


@given(st.floats(1.0, 100.0), st.floats(1.0, 100.0), st.floats(1.01, 2.0), st.floats(1.01, 2.0))
@draws(150)
def test_a_gpu_goes_where_two_jobs_end_sooner_on_average(a: float, b: float, gain_a: float, gain_b: float) -> None:
    """As the inequality says, where the longer one runs with its next speed once the shorter is gone."""
    a, b = sorted((a, b))
    one, other = Bid("a", {1: a, 2: a / gain_a}), Bid("b", {1: b, 2: b / gain_b})
    one.take()
    other.take()

    def mean(a_has_it: bool) -> float:
        first = a / gain_a if a_has_it else a
        done = first / (b if a_has_it else b / gain_b)
        return first + max(first, first + (1 - done) * b / gain_b)

    with_a, with_b = mean(a_has_it=True), mean(a_has_it=False)
    if abs(with_a - with_b) > 1e-9 and a * 1.0 <= b / gain_b:
        assert goes_first(one, other) == (with_a < with_b)
        assert goes_first(other, one) == (with_b < with_a)


def test_afs_gives_everybody_a_gpu_and_the_rest_by_gain() -> None:
    scales = ((1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0), (5, 5.0), (6, 6.0))
    does_not = ((1, 1.0), (2, 1.1), (3, 1.2), (4, 1.3))
    jobs = elastic("short", 0.0, 60.0, speeds=does_not), elastic("long", 0.0, 6000.0, speeds=scales)
    assert first_counts(Afs(), *jobs) == {"short": 1, "long": 5}
    # Where both scale alike, the shorter job wins each tie: with 3 and 2 GPUs, both would gain a third.
    alike = elastic("short", 0.0, 60.0, speeds=scales), elastic("long", 0.0, 6000.0, speeds=scales)
    assert first_counts(Afs(), *alike) == {"short": 4, "long": 2}


def test_leases_end_and_go_to_who_is_worst_off() -> None:
    """Two gangs as wide as the cluster take turns, lease by lease, the younger as it is the longer in waiting."""
    jobs = toy_workload(Job.rigid("a", 0.0, 2, 600.0), Job.rigid("b", 0.0, 2, 600.0))
    result = simulate(jobs, {}, Cluster.uniform(1, 2), Themis(lease=240.0), settings=RULES)
    starts = [(change.time, change.job) for change in result.allocation_records if change.gpus]
    assert starts == [(60.0, "a"), (300.0, "b"), (540.0, "a"), (780.0, "b"), (1020.0, "a"), (1140.0, "b")]


def test_only_the_worst_off_may_bid_and_others_get_what_is_left() -> None:
    wide, narrow = Job.rigid("wide", 0.0, 5, 600.0), Job.rigid("narrow", 0.0, 2, 600.0)
    # Half of the cluster would do for the narrow one, so that waiting sets it back more; the wide one finds too few.
    assert first_counts(Themis(fairness=1.0), wide, narrow) == {"narrow": 2}
    # A third one gets what is left.
    assert first_counts(Themis(fairness=1.0), wide, narrow, Job.rigid("third", 0.0, 4, 600.0)) == {
        "narrow": 2,
        "third": 4,
    }


def test_a_part_of_the_jobs_that_is_a_whole_number_is_not_rounded_up() -> None:
    """With f = 0.7, 3 of 10 jobs may bid for 4 GPUs, so one of them gets 2. In floating point, 0.3 · 10 exceeds 3."""
    bids = {f"job-{i}": {0: i - 20.0, 1: i - 19.0, 2: i - 18.1} for i in range(10)}
    assert list(auctioned(bids, 4, 0.7).values()) == [2, 1, 1, 0, 0, 0, 0, 0, 0, 0]


def test_gpus_that_are_left_over_go_to_jobs_with_a_lease() -> None:
    """When b ends, a could use its GPUs; its lease still has a quarter of an hour to run, and ends no later by that."""
    linear = tuple((2**power, float(2**power)) for power in range(4))
    a = Job.rigid("a", 0.0, 4, 8000.0, speeds=linear, max_replicas=8)
    b = Job.rigid("b", 0.0, 4, 300.0, speeds=linear, max_replicas=4)
    result = simulate(toy_workload(a, b), {}, Cluster.uniform(2, 4), Themis())
    gpus = [(change.time, sum(change.gpus)) for change in result.allocation_records if change.job == "a"]
    assert gpus[:2] == [(60.0, 4), (420.0, 8)]
    ends = {number[1] for each in result.reason_records if each.job == "a" for number in each.numbers[1:2]}
    assert 60.0 + 1200.0 in ends


def test_a_job_with_a_lease_does_not_restart_for_less_than_the_restart_costs() -> None:
    nearly_done = Job.rigid("a", 0.0, 1, 380.0, speeds=((1, 1.0), (2, 1.05)), max_replicas=2)
    other = Job.rigid("b", 0.0, 1, 300.0, max_replicas=1)
    result = simulate(toy_workload(nearly_done, other), {}, Cluster.uniform(1, 2), Themis())
    assert [job.num_restarts for job in result.job_records] == [0, 0]


@given(st.integers(1, 8), st.lists(st.tuples(st.integers(1, 4), st.integers(100, 900)), min_size=1, max_size=4))
@draws(50)
def test_an_auction_among_all_makes_the_product_largest(gpus: int, jobs: list[tuple[int, int]]) -> None:
    """As brute force finds it, of gangs that ask all at once."""
    bids = {f"{i}": {0: -1.0 - length / 900, wide: -1.0} for i, (wide, length) in enumerate(jobs)}
    won = auctioned(bids, gpus, 0.0)
    found = sum(bids[name][count] for name, count in won.items())
    every = (choice for choice in product(*bids.values()) if sum(choice) <= gpus)
    assert found == pytest.approx(max(sum(bid[k] for bid, k in zip(bids.values(), c, strict=True)) for c in every))


def test_jsa_admits_in_order_as_long_as_all_have_their_least() -> None:
    jobs = [elastic(f"j{i}", 0.0, 600.0, 2, min_replicas=2) for i in range(4)]
    assert first_counts(EffectiveScaling(), *jobs) == {"j0": 2, "j1": 2, "j2": 2}


def test_jsa_lets_no_job_overtake() -> None:
    """The third job would fit beside the first, and waits for the second, which does not."""
    jobs = [elastic(f"j{i}", 0.0, 600.0, gpus, min_replicas=gpus) for i, gpus in enumerate((4, 4, 2))]
    assert first_counts(EffectiveScaling(), *jobs) == {"j0": 6}
    # While a job needs more GPUs than are up, it holds no other job up.
    half = failing((0, 0.0, 1e4))
    result = simulate(toy_workload(*jobs[1:], Job.rigid("wide", 0.0, 8, 60.0)), {}, half, EffectiveScaling())
    assert all(job.completion_time is not None for job in result.job_records)
    early = Job.rigid("wide", 0.0, 8, 60.0), *jobs[1:]
    result = simulate(toy_workload(*early), {}, half, EffectiveScaling(), settings=RULES)
    assert result.job_records[1].start_time == 60.0


@pytest.mark.parametrize(
    ("policy", "job", "words"),
    [
        (
            Proportional(),
            "a",
            "for 1 GPU comes to 2.00. Each turn goes to the job with the smallest part of its request",
        ),
        (
            Afs(),
            "a",
            "This job has won 3 GPUs, and would end in 0:04:10; with 1 more, in 0:03:34, 16.7 % faster. No GPU of 6 is "
            "left. The last one went to b, which would end in 0:11:15 with it instead of 0:15:00, 25 % less.",
        ),
        (
            EffectiveScaling(),
            "a",
            "This job has 3 GPUs. Its speedup over its fewest, 1, is 2.40; with one more, it would be 2.80.",
        ),
        (
            Themis(),
            "a",
            "until 0:21:00. With these GPUs, the job would end at 1.01 times",
        ),
        (
            Themis(),
            "b",
            "First comes the job that would end latest, in multiples of its fair time, if it got GPUs only one ",
        ),
        (
            EffectiveScaling(),
            "late",
            "Only 4 GPUs are left for the job. It needs at least 6",
        ),
    ],
)
def test_why_says_how_gpus_were_dealt(policy: Policy, job: str, words: str) -> None:
    jobs = [elastic("a", 0.0, 600.0), elastic("b", 0.0, 900.0, 2)]
    late = [elastic("late", 0.0, 60.0, 6, min_replicas=6)] if job == "late" else []
    start = begun(toy_workload(*jobs, *late), Cluster.uniform(1, 6), policy, RULES)
    result = ended(start, policy)
    first = next(record for record in result.reason_records if record.job == job)
    assert words in sentence(first, result.reason_texts)
    assert "gives the reason" not in sentence(first, result.reason_texts)


@pytest.mark.parametrize("policy", [Afs, EffectiveScaling, ElasticFlow])
def test_a_job_that_a_fork_gives_a_smaller_request_starts_if_it_now_fits(policy: type[Policy]) -> None:
    runs, waits = Job.rigid("runs", 0.0, 3, 1200.0), Job.rigid("waits", 30.0, 2, 6000.0)
    made = policy()
    run = begun(toy_workload(runs, waits), Cluster((4,)), made)
    while (view := run.advance(600.0)) is not None:
        run.commit(made.allocate(view, run.rng))
    run.fork(Fork(600.0, run.scenario, altered=(replace(waits, num_replicas=1, batch_size=1),)))
    assert ended(run, made).job_records[1].start_time == 600.0


def test_a_job_that_a_fork_puts_before_the_job_that_blocks_it_starts() -> None:
    gpus = {"runs": 3, "head": 4, "small": 1}
    jobs = [Job.rigid(name, 0.0, count, 1200.0) for name, count in gpus.items()]
    policy = EffectiveScaling()
    run = begun(toy_workload(*jobs), Cluster((4,)), policy)
    while (view := run.advance(600.0)) is not None:
        run.commit(policy.allocate(view, run.rng))
    run.fork(Fork(600.0, run.scenario, overtaken=(("small", "head"),)))
    starts = {job.job: job.start_time for job in ended(run, policy).job_records}
    assert (starts["runs"], starts["small"]) == (60.0, 600.0)


def test_a_suspended_job_with_a_smaller_request_after_a_fork_gets_no_more_gpus_than_it_requests() -> None:
    policy = Gandiva()
    jobs = [Job.rigid(name, 0.0, 4, 600.0) for name in "ab"]
    run = begun(toy_workload(*jobs), Cluster((4,)), policy, EngineSettings(sharing=Interleaved()))
    while (view := run.advance(180.0)) is not None:
        run.commit(policy.allocate(view, run.rng))
    (suspended,) = run.waiting
    smaller = replace(jobs["ab".index(suspended)], num_replicas=2, batch_size=2)
    run.fork(Fork(180.0, run.scenario, altered=(smaller,)))
    assert all(job.completion_time is not None for job in ended(run, policy).job_records)


def test_the_true_times_of_an_altered_job_are_computed_again() -> None:
    job = SimpleNamespace(job_id="a", num_replicas=2, oracle=SimpleNamespace(time_left=lambda gpus: 100.0 / gpus**0.5))
    times = TrueTimes()
    times.on(job, [2, 4])  # type: ignore[arg-type]
    job.num_replicas = 1
    times.forget(Changes(altered=("a",)))
    assert times.on(job, [4]) == {4: 50.0}  # type: ignore[arg-type]


def test_optimus_knows_the_largest_node_that_is_up() -> None:
    """On two nodes a step takes ten times as long as on one. While the large node is down, one GPU is best."""
    cluster = Cluster((4, 1, 1), failures=Listed((Outage((0,), 300.0, 5000.0, "test"),)))
    profiles = {"far": ToyProfile(name="far", spread=9.0, epochs=(100.0, 5000.0))}
    settings = EngineSettings(restart_delay=0.0, horizon=1000.0)
    result = simulate(toy_workload(toy_job("a", 0.0, 4, "far")), profiles, cluster, Optimus(), settings=settings)
    gpus = [(record.time, sum(record.gpus)) for record in result.allocation_records if record.gpus]
    assert gpus == [(60.0, 2), (300.0, 1)]
