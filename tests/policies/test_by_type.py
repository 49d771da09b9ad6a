"""Hadar and Venn, which give gangs a GPU type each: by hand, by brute force, and laws of one round."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import log

import numpy as np
import pytest
from drawn import demand_of, demands, draws, ended
from hypothesis import given
from hypothesis import strategies as st
from toy import toy_workload

from polluxsim.common.errors import InvalidConfigError
from polluxsim.engine.scenario import Scenario
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import Simulation
from polluxsim.hardware.clusters import Cluster
from polluxsim.policies.contract.policy import Policy
from polluxsim.policies.typed.gangs_by_type import GangQueue, Hadar, Prices, Venn, beam_search, outcomes, owned_types
from polluxsim.policies.typed.linear_programmes import TypedDemand
from polluxsim.workloads.workload import Job

UTILITY = st.sampled_from([0.0, 0.1, 0.5, 1.0, 2.5, 40.0])


@given(st.lists(st.tuples(UTILITY, UTILITY), min_size=1, max_size=6), st.integers(1, 3), st.integers(1, 2))
@draws(75)
def test_hadar_is_as_close_to_the_best_allocation_as_its_prices_say(
    rows: list[tuple[float, float]], first: int, second: int
) -> None:
    """Of jobs with one GPU, where nobody is passed over: the dual bound, with what each taker adds to it."""
    utilities, gpus, eta = np.array(rows), np.array([float(first), float(second)]), 4.0
    usable = utilities[utilities.any(axis=1)]
    if not len(usable):
        return
    queue = GangQueue(usable, np.ones(len(usable)), gpus, [None] * len(usable))
    made = beam_search(queue, Prices(queue.utilities_per_gpu, gpus, eta), 1)
    ours = sum(usable[job, bid.gpu_type] for job, bid in made.items() if bid.gpu_type is not None)
    best = max(
        sum(usable[job, gpu_type] for job, gpu_type in enumerate(choice) if gpu_type < 2)
        for choice in product(range(3), repeat=len(usable))
        if all(choice.count(gpu_type) <= gpus[gpu_type] for gpu_type in range(2))
    )
    prices = Prices(usable, gpus, eta)
    ratios = np.where(prices.highest > 0, prices.highest / prices.lowest, 1.0)
    alpha = max(1.0, *(gpus * (ratios ** (1 / gpus) - 1)))
    assert ours <= best <= alpha * ours + float(gpus @ np.where(prices.highest > 0, prices.lowest, 0.0)) + 1e-9


@given(demands(), st.floats(1.1, 50), st.data())
@draws(50)
def test_every_job_takes_what_is_worth_most_to_it_at_the_price_then(
    demand: TypedDemand, eta: float, data: st.DataObject
) -> None:
    """The rule written down once more, GPU by GPU, where nobody is passed over."""
    utilities, free = 1 / demand.steps_left[:, None] * demand.speeds, demand.gpus.copy()
    here = [data.draw(st.sampled_from([None, *np.flatnonzero(row).tolist()])) for row in utilities]
    queue = GangQueue(utilities, demand.widths, demand.gpus, here)
    each, made = queue.utilities_per_gpu, beam_search(queue, Prices(queue.utilities_per_gpu, demand.gpus, eta), 1)
    assert [max(each[job]) for job in made] == sorted(each.max(axis=1), reverse=True)
    for job, bid in made.items():
        payoffs = {}
        for gpu_type in np.flatnonzero((utilities[job] > 0) & (free >= demand.widths[job])).tolist():
            some = each[:, gpu_type][each[:, gpu_type] > 0]
            taken = 1 - free[gpu_type] / demand.gpus[gpu_type]
            price = (min(some) / eta) ** (1 - taken) * max(some) ** taken
            payoffs[gpu_type] = utilities[job, gpu_type] - demand.widths[job] * price
        positive = {
            gpu_type: payoff for gpu_type, payoff in payoffs.items() if payoff > 1e-9 * utilities[job, gpu_type]
        }
        if here[job] in positive:
            assert bid.gpu_type == here[job]
        elif positive:
            assert bid.gpu_type is not None
            assert payoffs[bid.gpu_type] == pytest.approx(max(positive.values()))
        else:
            assert bid.gpu_type is None or payoffs[bid.gpu_type] == pytest.approx(0, abs=1e-9)
        if bid.gpu_type is not None:
            free[bid.gpu_type] -= demand.widths[job]
    assert min(free) >= 0
    assert any(bid.gpu_type is not None for bid in made.values())  # GPUs are never idle while somebody waits for all


def payoff_of(queue: GangQueue, eta: float, passed_over: set[int]) -> float:
    """Return the sum of payoffs where these jobs are passed over, the rule written down once more."""
    free, total = queue.gpus.copy(), 0.0
    for job in sorted(range(len(queue.widths)), key=lambda job: -max(queue.utilities_per_gpu[job])):
        payoffs = {}
        for gpu_type in np.flatnonzero((queue.utilities[job] > 0) & (free >= queue.widths[job])).tolist():
            some = queue.utilities_per_gpu[:, gpu_type][queue.utilities_per_gpu[:, gpu_type] > 0]
            taken = 1 - free[gpu_type] / queue.gpus[gpu_type]
            price = (min(some) / eta) ** (1 - taken) * max(some) ** taken
            payoffs[gpu_type] = queue.utilities[job, gpu_type] - queue.widths[job] * price
        positive = {name: payoff for name, payoff in payoffs.items() if payoff > 1e-9 * queue.utilities[job, name]}
        here = queue.present_types[job]
        stays = here in positive
        if positive and (stays or job not in passed_over):
            name = here if here is not None and stays else max(positive, key=positive.__getitem__)
            free[name] -= queue.widths[job]
            total += positive[name]
    return total


@given(demands(), st.floats(1.1, 50), st.data())
@draws(75)
def test_jobs_are_passed_over_such_that_payoffs_come_to_most(
    demand: TypedDemand, eta: float, data: st.DataObject
) -> None:
    """Brute force over who is passed over."""
    utilities = 1 / demand.steps_left[:, None] * demand.speeds
    here = [data.draw(st.sampled_from([None, *np.flatnonzero(row).tolist()])) for row in utilities]
    queue = GangQueue(utilities, demand.widths, demand.gpus, here)
    made = beam_search(queue, Prices(queue.utilities_per_gpu, demand.gpus, eta), 10_000)
    ours = payoff_of(queue, eta, {job for job, bid in made.items() if bid.gpu_type is None})
    jobs = range(len(utilities))
    best = max(
        payoff_of(queue, eta, {job for job in jobs if choice[job]})
        for choice in product((False, True), repeat=len(jobs))
    )
    assert ours == pytest.approx(best, rel=1e-6)
    greedy = beam_search(queue, Prices(queue.utilities_per_gpu, demand.gpus, eta), 1)
    assert ours >= payoff_of(queue, eta, {job for job, bid in greedy.items() if bid.gpu_type is None}) * (1 - 1e-9)


def test_a_wide_job_is_passed_over_for_two_that_are_worth_more_together() -> None:
    """By hand: 4 GPUs, of which the first job takes 3 at the highest worth for each, and the others 2 each."""
    queue = GangQueue(np.array([[3.3], [2.0], [2.0]]), np.array([3.0, 2.0, 2.0]), np.array([4.0]), [None] * 3)
    prices = Prices(queue.utilities_per_gpu, queue.gpus, 50.0)
    assert [bid.gpu_type for bid in beam_search(queue, prices, 1).values()] == [0, None, None]
    assert [(job, bid.gpu_type) for job, bid in beam_search(queue, prices, 64).items()] == [(0, None), (1, 0), (2, 0)]
    assert beam_search(queue, prices, 64)[0].price_ratio > 1
    kept = queue._replace(present_types=[0, None, None])
    assert [bid.gpu_type for bid in beam_search(kept, prices, 64).values()] == [0, None, None]


def test_prices_go_from_least_to_most_utility() -> None:
    prices = Prices(np.array([[8.0, 0.0], [2.0, 3.0]]), np.array([4.0, 2.0]), 2.0)
    assert prices.at(np.array([0.0, 0.0])) == pytest.approx([1.0, 1.5])
    assert prices.at(np.array([2.0, 1.0])) == pytest.approx([8**0.5, 1.5 * 2**0.5])
    assert prices.at(np.array([4.0, 2.0])) == pytest.approx([8.0, 3.0])
    assert prices._rise == pytest.approx([log(8), log(2)])


def test_wrong_ways_are_named() -> None:
    with pytest.raises(InvalidConfigError, match=r"policy\.most_ways is 0, must be a whole number ≥ 1"):
        Hadar(most_ways=0)


@pytest.mark.parametrize("eta", [1.0, float("inf"), -2.0])
def test_a_wrong_eta_is_named(eta: float) -> None:
    with pytest.raises(InvalidConfigError, match=f"policy.eta is {eta:g}, must be a finite number > 1"):
        Hadar(eta)
    assert Hadar(eta=1.5).eta == 1.5


A, B, AB, BC = frozenset({0}), frozenset({1}), frozenset({0, 1}), frozenset({1, 2})


@pytest.mark.parametrize(
    ("queues", "own"),
    [
        ({AB: 1, A: 2}, {A: A, AB: B}),  # 4 GPUs are scarcer than 8
        ({AB: 9, A: 1}, {A: frozenset(), AB: AB}),  # 9 jobs on 4 GPUs have the longer queue
        ({AB: 2, A: 2}, {A: A, AB: B}),  # no longer one
        ({AB: 3, BC: 1}, {AB: AB, BC: frozenset({2})}),  # types 0 and 1 have 8 GPUs, 1 and 2 have 20
        ({AB: 1, BC: 9}, {AB: A, BC: BC}),
        ({A: 1, B: 1, BC: 1}, {A: A, B: B, BC: frozenset({2})}),
    ],
)
def test_scarce_types_go_first_and_overlaps_to_the_longer_queue(
    queues: dict[frozenset[int], int], own: dict[frozenset[int], frozenset[int]]
) -> None:
    assert owned_types(queues, [4.0, 4.0, 16.0]) == own


@given(demands())
@draws(50)
def test_venn_leaves_nothing_that_somebody_could_use(demand: TypedDemand) -> None:
    turns = dict(outcomes(demand, [None] * len(demand.jobs)))
    free = demand.gpus.copy()
    for job, turn in turns.items():
        if turn.gpu_type is not None:
            assert demand.speeds[job, turn.gpu_type] > 0
            free[turn.gpu_type] -= demand.widths[job]
    assert set(turns) == set(range(len(demand.jobs)))
    assert min(free) >= 0
    for job, turn in turns.items():
        if turn.gpu_type is None:
            assert all(free[name] < demand.widths[job] for name in np.flatnonzero(demand.speeds[job]))


def test_the_least_gpu_time_goes_first_in_a_group_and_what_is_left_to_anybody() -> None:
    """Both can use the first type only, and one GPU of it is left, which the third takes as its own type is full."""
    demand = demand_of(
        [[1.0, 0.0], [1.0, 0.0], [1.0, 2.0], [1.0, 2.0]], [3.0, 3.0, 4.0, 1.0], [4.0, 4.0], [50.0, 40.0, 10.0, 200.0]
    )
    turns = dict(outcomes(demand, [None] * 4))
    assert [turns[job].gpu_type for job in range(4)] == [None, 0, 1, 0]
    assert turns[1].numbers == {
        "position": 1, "remaining_service": 120.0, "group_jobs": 2, "group_gpus": 4.0, "gpus_needed": 3.0,
        "group_types": 1.0, "gpus_left": 4.0, "left_type v100": 4.0,
    }  # fmt: skip


@pytest.mark.parametrize("policy", [Venn(), Hadar()], ids=lambda policy: type(policy).__name__)
def test_who_can_use_one_type_only_has_it(policy: Policy) -> None:
    """The job that may have both types leaves the scarce one to the job that may not; the large one waits."""
    jobs = [
        Job.rigid("any", 0.0, 2, 300.0),
        replace(Job.rigid("only", 0.0, 2, 400.0), gpu_types=("v100",)),
        Job.rigid("large", 0.0, 4, 3000.0),
    ]
    cluster = Cluster.of_groups([[1, 2, "v100"], [2, 2, "k80"]])
    scenario = Scenario.under(policy, toy_workload(*jobs), {}, cluster, EngineSettings(restart_delay=0.0))
    result = ended(Simulation(scenario, 0), policy)
    done = sorted(result.job_records, key=lambda job: job.completion_time or 0)
    assert [job.job for job in done] == ["any", "only", "large"]
    assert [job.completion_time for job in done] == [360.0, 460.0, 3360.0]


@pytest.mark.parametrize("clock", [3.0, 0.1, 1 / 7])
def test_the_unit_of_time_changes_no_bid(clock: float) -> None:
    """Many ways have equal payoffs, because the jobs are alike in groups."""
    rng = np.random.default_rng(5)
    for _ in range(200):
        utilities = rng.choice([1.0, 0.9, 0.3], size=(6, 2))
        queue = GangQueue(utilities, rng.integers(1, 5, size=6).astype(float), np.array([4.0, 6.0]), [None] * 6)
        scaled = queue._replace(utilities=utilities / clock)
        types = []
        for each in (queue, scaled):
            made = beam_search(each, Prices(each.utilities_per_gpu, each.gpus, 4.0), 64)
            types.append([(job, bid.gpu_type) for job, bid in made.items()])
        assert types[0] == types[1]
