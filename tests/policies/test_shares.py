"""Shares of time: constraints hold, optima are HiGHS's, like jobs are alike, and rounds give everybody its share."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations, product

import numpy as np
import pytest
from drawn import Listed, demand_of, demands, draws
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog, minimize
from toy import ToyProfile, toy_job, toy_workload

from polluxsim.common.errors import InvalidConfigError
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import simulate
from polluxsim.hardware.clusters import Cluster, Outage
from polluxsim.policies.typed import rules
from polluxsim.policies.typed.linear_programmes import Polytope, Solver, TypedDemand, centre
from polluxsim.policies.typed.rounds import RoundsOfShares
from polluxsim.policies.typed.rules import AlloX, matched
from polluxsim.workloads.workload import Job

RULES = (
    rules.MaxMin(), rules.MaxMin(agnostic=True), rules.MaxSum(), rules.MaxSum(by_cost=True), rules.MinMakespan(),
    rules.FinishTimeFairness(), rules.Isolated(), rules.GandivaFair(), rules.Proportional(), rules.FirstCome(),
    rules.WaterFilling(), AlloX(),
)  # fmt: skip


@given(demands(), st.sampled_from(range(len(RULES))), st.sampled_from(["centre", "vertex"]))
@draws(75)
def test_no_share_is_too_large(demand: TypedDemand, rule: int, method: str) -> None:
    made = {5: rules.FinishTimeFairness, 11: AlloX}.get(rule, lambda: RULES[rule])()
    shares = made.of(demand, Solver(demand, method))
    assert (shares >= -1e-6).all()
    assert (shares.sum(axis=1) <= 1 + 1e-6).all()
    if not isinstance(made, rules.GandivaFair | rules.Proportional):  # which count time, whatever the GPUs
        assert (demand.widths @ shares <= demand.gpus * (1 + 1e-6)).all()


def best(demand: TypedDemand, costs: np.ndarray, rows: np.ndarray | None = None) -> float:
    """Return an optimum by a programme written down once more, with a variable for each job and type, and the least."""
    jobs, types = demand.speeds.shape
    once = np.kron(np.eye(jobs), np.ones(types))
    of_type = np.kron(demand.widths, np.eye(types))
    upper, limits = [once, of_type], [np.ones(jobs), demand.gpus]
    if rows is not None:
        upper.append(-np.kron(np.eye(jobs), np.ones(types)) * rows.ravel())
        limits.append(np.zeros(jobs))
    least = np.concatenate([np.zeros(jobs + types), np.ones(0 if rows is None else jobs)])[:, None]
    found = linprog(np.append(costs.ravel(), 0.0 if rows is None else -1.0), np.hstack([np.vstack(upper), least]),
                    np.concatenate(limits), bounds=[(0, 0 if speed == 0 else None) for speed in demand.speeds.ravel()]
                    + [(0, None if rows is not None else 0)])  # fmt: skip
    return -float(found.fun)


@given(demands(), st.sampled_from(["centre", "vertex"]))
@draws(30)
def test_optima_are_those_of_the_programmes(demand: TypedDemand, method: str) -> None:
    rows = rules.max_min_rows(demand, agnostic=False)
    least = (rows * rules.MaxMin().of(demand, Solver(demand, method))).sum(axis=1).min()
    assert least == pytest.approx(best(demand, np.zeros_like(rows), rows), rel=1e-5)
    total = (demand.speeds * rules.MaxSum().of(demand, Solver(demand, method))).sum()
    assert total == pytest.approx(best(demand, -demand.speeds), rel=1e-4)
    rows = demand.speeds / demand.steps_left[:, None]
    time = (1 / (rows * rules.MinMakespan().of(demand, Solver(demand, method))).sum(axis=1)).max()
    assert time <= max(1.06 / best(demand, np.zeros_like(rows), rows), 106)


@given(demands())
@draws(15)
def test_water_filling_is_max_min_and_more(demand: TypedDemand) -> None:
    rows = rules.max_min_rows(demand, agnostic=False)
    filled = np.sort((rows * rules.WaterFilling().of(demand, Solver(demand))).sum(axis=1))
    plain = np.sort((rows * rules.MaxMin().of(demand, Solver(demand))).sum(axis=1))
    assert filled[0] == pytest.approx(plain[0], rel=1e-5)
    # The first level at which they differ is higher.
    differs = np.abs(filled / plain - 1) > 1e-4
    assert not differs.any() or filled[differs.argmax()] > plain[differs.argmax()]


@given(demands(), st.sampled_from(range(len(RULES))))
@draws(30)
def test_like_jobs_have_like_shares(demand: TypedDemand, rule: int) -> None:
    if isinstance(RULES[rule], rules.FirstCome | AlloX):
        return
    twice = demand_of(
        np.repeat(demand.speeds, 2, axis=0).tolist(), np.repeat(demand.widths, 2).tolist(), demand.gpus.tolist(),
        np.repeat(demand.steps_left, 2).tolist(),
    )  # fmt: skip
    made = RULES[rule] if rule != 5 else rules.FinishTimeFairness()
    shares = made.of(twice, Solver(twice))
    assert shares[::2] == pytest.approx(shares[1::2], abs=1e-5)


@given(st.lists(st.floats(0.1, 5), min_size=1, max_size=4), st.floats(0.2, 3))
@draws(20)
def test_the_centre_has_the_largest_product_of_distances(lengths: list[float], limit: float) -> None:
    count = len(lengths)
    polytope = Polytope(
        np.vstack([-np.eye(count), np.eye(count), np.ones((1, count))]), np.array([0.0] * count + lengths + [limit])
    )
    found = centre(polytope, np.zeros(count))

    def product(point: np.ndarray) -> float:
        slack = polytope.limits - polytope.rows @ point
        return -float(np.log(slack).sum()) if (slack > 0).all() else np.inf

    start = np.full(count, min(*lengths, limit) / (2 * count) if count > 1 else min(lengths[0], limit) / 2)
    other = minimize(product, start, method="Nelder-Mead", options={"xatol": 1e-7, "fatol": 1e-10, "maxiter": 4000})
    assert product(found) <= other.fun + 1e-7


def test_finish_time_fairness_is_as_good_as_can_be() -> None:
    """Two jobs alone on 2 GPUs each: equal parts, and ρ = 1; the longer one gets more where GPUs are scarce."""
    demand = demand_of([[1.0], [1.0]], [2.0, 2.0], [2.0], [1000.0, 3000.0])
    shares = rules.FinishTimeFairness().of(demand, Solver(demand))
    assert shares[:, 0] == pytest.approx([0.5, 0.5], abs=1e-3)


def test_a_job_that_can_run_nowhere_for_a_while_keeps_its_time_alone() -> None:
    rule = rules.FinishTimeFairness()
    for left in ([100.0, 100.0], [90.0], [80.0, 90.0]):  # the second job has no GPUs at the second computation
        demand = demand_of([[1.0]] * len(left), [1.0] * len(left), [1.0], left)
        rule.of(demand, Solver(demand))
    assert rule._done_alone["job-1"] == pytest.approx(20.0)  # 10 steps at half a step per second


@given(demands())
@draws(30)
def test_all_gain_alike_over_what_they_would_do_alone(demand: TypedDemand) -> None:
    """At first, when nobody is older than another; where there is room for all, by more than one time."""
    rows = demand.speeds / (demand.speeds * rules.isolated(demand)).sum(axis=1)[:, None]
    shares = rules.FinishTimeFairness().of(demand, Solver(demand))
    gain = (rows * shares).sum(axis=1).min()
    assert gain == pytest.approx(best(demand, np.zeros_like(rows), rows), rel=1e-3)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
def test_everybody_has_its_share_in_the_long_run(rule: rules.Rule) -> None:
    """Like jobs, half of which fit at a time: of those that run long, each holds GPUs for about half of the time."""
    jobs = [toy_job(f"{i}", 0.0, 2) for i in range(8)]
    made = rules.FinishTimeFairness() if isinstance(rule, rules.FinishTimeFairness) else rule
    if isinstance(rule, rules.FirstCome | rules.MaxSum | AlloX):
        return  # the first half first, and anybody
    settings = EngineSettings(restart_delay=0.0, horizon=7260.0)
    cluster = Cluster.of_groups([[2, 4, "v100"]])
    profiles = {"toy": ToyProfile(epochs=(1e6,))}
    records = simulate(toy_workload(*jobs), profiles, cluster, RoundsOfShares(made), settings=settings).job_records
    assert [job.run_time for job in records] == pytest.approx([3600.0] * 8, abs=180)


def test_newcomers_wait_for_shares_where_they_are_to() -> None:
    jobs = toy_workload(toy_job("a"), toy_job("b", 100.0))
    profiles = {"toy": ToyProfile(epochs=(5000.0,))}
    starts = [
        simulate(jobs, profiles, Cluster((4,)), RoundsOfShares(rules.GandivaFair(), idle_newcomers=idle)).job_records[1]
        for idle in (False, True)
    ]
    assert [job.start_time for job in starts] == [120.0, 1080.0]


def test_moves_are_free_where_they_are_said_to_be() -> None:
    """Two gangs take turns on two GPU types; each has GPUs all the time."""
    cluster = Cluster.of_groups([[1, 2, "v100"], [1, 2, "k80"]])
    jobs = toy_workload(*(toy_job(name, 0.0, 2, duration=None) for name in "ab"))
    rules_of_time = [EngineSettings(free_moves=free, horizon=6000.0) for free in (False, True)]
    profiles = {"toy": ByType()}
    made = [
        simulate(jobs, profiles, cluster, RoundsOfShares(rules.GandivaFair()), settings=each) for each in rules_of_time
    ]
    restarts = [sum(job.restart_time for job in result.job_records) for result in made]
    assert restarts[1] == 60.0 < restarts[0]
    assert all(sum(job.num_restarts for job in result.job_records) > 2 for result in made)


class ByType(ToyProfile):
    """A toy that trains on two types, on a K80 so many times slower."""

    def __init__(self, slower: float = 1.0, epochs: float = 1e6) -> None:
        super().__init__(epochs=(epochs,))
        self._types = {"v100": ToyProfile(epochs=(epochs,)), "k80": ToyProfile(seconds=slower, epochs=(epochs,))}

    @property
    def by_type(self) -> dict[str, ToyProfile]:
        return self._types


@pytest.mark.parametrize("groups", [[[1, 2, "v100"], [1, 2, "k80"]], [[1, 2, "k80"], [1, 2, "v100"]]])
def test_nobody_is_on_slow_gpus_while_fast_ones_are_idle(groups: list[list[object]]) -> None:
    """In whichever order the cluster lists its types."""
    cluster = Cluster.of_groups(groups)
    made = simulate(
        toy_workload(toy_job("a", 0.0, 2)), {"toy": ByType(4.0, 1000.0)}, cluster, RoundsOfShares(rules.MaxSum())
    )
    fast = [gpu.name for gpu in cluster.node_types].index("v100")
    assert {record.nodes for record in made.allocation_records if record.nodes} == {(fast,)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"solver": "magic"}, "policy.solver is 'magic', must be one of centre, vertex"),
        ({"reset_interval": -1.0}, "policy.reset_interval is -1, must be a finite number ≥ 0"),
    ],
)
def test_a_bad_setting_is_named(options: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidConfigError, match=message):
        RoundsOfShares(rules.MaxMin(), **options)


def test_costs_need_prices() -> None:
    policy, words = RoundsOfShares(rules.MaxSum(by_cost=True)), "needs a price of every GPU type, gpu has none"
    with pytest.raises(InvalidConfigError, match=words):
        simulate(
            toy_workload(toy_job("a")),
            {"toy": ToyProfile()},
            Cluster((4,)),
            policy,
        )


def completion_times(times: np.ndarray, queues: tuple[tuple[int, ...], ...]) -> float:
    return sum(float(np.cumsum([times[job, gpu] for job in queue]).sum()) for gpu, queue in enumerate(queues))


@given(st.integers(1, 4), st.integers(1, 2), st.integers(0, 2), st.data())
@draws(20)
def test_who_goes_first_does_so_in_a_schedule_of_least_mean_completion_time(
    jobs: int, some: int, others: int, data: st.DataObject
) -> None:
    speeds = np.array([[data.draw(st.sampled_from([0.5, 1.0, 3.0])) for _ in range(2)] for _ in range(jobs)])
    left = np.array([[data.draw(st.floats(10, 900))] for _ in range(jobs)])
    first = matched(left, speeds, np.zeros(jobs), np.array([some, others]), ["a", "b"])
    gpus = [0] * some + [1] * others
    times = (left / speeds)[:, gpus]
    found = []
    for where in product(range(len(gpus)), repeat=jobs):
        queues = [tuple(job for job in range(jobs) if where[job] == gpu) for gpu in range(len(gpus))]
        found += [(completion_times(times, each), each) for each in product(*map(permutations, queues))]
    best = min(time for time, _ in found)
    firsts = [
        sorted((queue[0], gpus[gpu]) for gpu, queue in enumerate(queues) if queue)
        for time, queues in found
        if time <= best * (1 + 1e-9)
    ]
    assert sorted(first) in firsts


def test_shares_that_differ_become_times_that_differ() -> None:
    """All of the only GPU is for who trains four times as fast there."""
    profiles = {"fast": ToyProfile(epochs=(1e6,)), "slow": ToyProfile(seconds=4.0, epochs=(1e6,))}
    jobs = toy_workload(*(replace(toy_job(name), application=name) for name in ("slow", "fast")))
    rules_of_time = EngineSettings(restart_delay=0.0, horizon=3660.0)
    result = simulate(jobs, profiles, Cluster((1,)), RoundsOfShares(rules.MaxSum()), settings=rules_of_time)
    assert {job.job: job.run_time for job in result.job_records} == pytest.approx(
        {"slow": 0.0, "fast": 3600.0}, abs=120
    )


def test_shares_stand_until_their_time_is_up_and_no_longer() -> None:
    jobs, profiles = toy_workload(toy_job("a"), toy_job("b", 100.0)), {"toy": ToyProfile(epochs=(5000.0,))}
    policy = RoundsOfShares(rules.GandivaFair(), idle_newcomers=True, reset_interval=960.0)
    assert simulate(jobs, profiles, Cluster((4,)), policy).job_records[1].start_time == 1020.0


def test_time_in_a_start_is_not_time_had() -> None:
    """Half a round is where counting begins; the start takes 30 s of the first."""
    rules_of_time = EngineSettings(restart_delay=30.0, horizon=300.0, reasons="rounds")
    profiles = {"toy": ToyProfile(epochs=(1e6,))}
    policy = RoundsOfShares(rules.GandivaFair())
    result = simulate(toy_workload(toy_job("a")), profiles, Cluster((1,)), policy, settings=rules_of_time)
    had = [dict(record.numbers)["time_had"] for record in result.reason_records]
    assert had[:4] == [30.0, 60.0, 120.0, 180.0]


def test_nobody_has_more_than_all_the_time() -> None:
    demand = demand_of([[1.0], [1.0]], [1.0, 1.0], [3.0], [100.0, 100.0])
    assert rules.GandivaFair().of(demand, Solver(demand)).tolist() == [[1.0], [1.0]]


@given(demands())
@draws(10)
def test_the_least_makespan_may_be_longer_than_where_the_search_begins(demand: TypedDemand) -> None:
    rows = demand.speeds / demand.steps_left[:, None]
    time = (1 / (rows * rules.MinMakespan(shortest=0.1, longest=1.0).of(demand, Solver(demand))).sum(axis=1)).max()
    assert time <= max(1.06 / best(demand, np.zeros_like(rows), rows), 0.11)


def test_equal_time_is_less_than_all_where_gpus_are_few() -> None:
    few = demand_of([[1.0, 1.0]] * 5, [1.0, 1.0, 1.0, 1.0, 4.0], [1.0, 1.0], [100.0] * 5)
    shares = rules.GandivaFair().of(few, Solver(few, "vertex"))
    assert shares.sum(axis=1) == pytest.approx(np.full(5, 2 / 5))
    assert rules.isolated(few).sum(axis=1) == pytest.approx([2 / 5, 2 / 5, 2 / 5, 2 / 5, 2 / 20])


def test_who_was_given_a_gpu_keeps_it_and_newcomers_get_what_is_free() -> None:
    rule = AlloX(oldest=1.0)
    first = demand_of([[1.0]] * 2, [1.0] * 2, [3.0], [100.0, 200.0])
    held = rule.of(first, Solver(first))
    more = demand_of([[1.0]] * 5, [1.0] * 5, [3.0], [100.0, 200.0, 50.0, 40.0, 60.0])
    shares = rule.of(more, Solver(more))
    assert shares[:2].tolist() == held.tolist() == [[1.0], [1.0]]
    assert shares[2:].tolist() == [[0.0], [1.0], [0.0]]


def test_a_matching_takes_a_share_of_the_jobs_that_wait() -> None:
    """Four jobs run and six wait for one GPU. Of these the three oldest are matched, not five of all ten."""
    rule = AlloX(oldest=0.5)
    times = [9.0] * 4 + [5.0, 4.0, 3.0, 1.0, 2.0, 6.0]
    demand = demand_of([[1.0]] * 10, [1.0] * 10, [5.0], times)._replace(ages=np.arange(10.0)[::-1].copy())
    rule._last = {f"job-{place}": np.ones(1) for place in range(4)}
    shares = rule.of(demand, Solver(demand))
    assert np.flatnonzero(shares[:, 0]).tolist() == [0, 1, 2, 3, 6]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{type(rule).__name__}{getattr(rule, 'agnostic', '')}")
def test_shares_are_found_while_all_nodes_of_a_type_are_down(rule: rules.Rule) -> None:
    listed = Listed((Outage((1,), 130.0, 500.0, "test"),))
    cluster = Cluster.of_groups([[1, 4, "t4"], [1, 2, "v100"]], failures=listed)
    jobs = [Job.rigid(f"{number}", 40.0 * number, 1 + number % 2, 400.0) for number in range(6)]
    result = simulate(toy_workload(*jobs), {}, cluster, RoundsOfShares(rule, reset_interval=0.0))
    assert all(job.completion_time is not None for job in result.job_records)
