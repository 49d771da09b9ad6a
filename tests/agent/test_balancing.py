"""Jobs on GPUs of several types at once: equal times by unlike parts, the slowest decides, and nobody else may."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest
from drawn import POLICIES, check_fork, draws, ended, go_on, policies_and_cases, told
from hypothesis import given
from hypothesis import strategies as st
from toy import ToyProfile, toy_job, toy_workload

from polluxsim.agent.agent import Workers
from polluxsim.agent.rules import BatchRule, Controller, FixedBatch, MostGoodput, OmniLearn
from polluxsim.checks.worlds import PROFILES
from polluxsim.common.errors import InvalidAllocationError, InvalidConfigError
from polluxsim.engine.futures import Fork
from polluxsim.engine.scenario import Scenario
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import Simulation
from polluxsim.hardware.clusters import Cluster
from polluxsim.hardware.placements import Placement
from polluxsim.models.batch_size import split_batch_size, split_by_weight
from polluxsim.models.profile import Application, ProfileRangeError, StepTime
from polluxsim.policies.contract.policy import traits_of
from polluxsim.policies.contract.view import Traits
from polluxsim.policies.ordered.attained_service import LeastAttainedService
from polluxsim.policies.ordered.classic import Fifo
from polluxsim.policies.pollux.policy import Pollux

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from polluxsim.policies.contract.policy import Policy
    from polluxsim.policies.contract.view import ClusterView
    from polluxsim.records.results import Result
    from polluxsim.workloads.workload import Workload

RULES = EngineSettings(restart_delay=0.0)
CLUSTER = Cluster.of_groups([[1, 2, "t4"], [1, 2, "v100"]])
BOTH = ((0, 2), (1, 2))


@dataclass(frozen=True)
class OnType(ToyProfile):
    """A pass takes some time, and more for every example."""

    start: float = 0.1
    example: float = 0.01

    def step_time(self, gpus_by_node: tuple[int, ...], atomic_batch_size: int) -> StepTime:
        sync = 0.05 if sum(gpus_by_node) > 1 else 0.0
        return StepTime(self.start + self.example * atomic_batch_size + sync, sync)


@dataclass(frozen=True)
class Typed(OnType):
    types: Mapping[str, OnType] = field(default_factory=dict)

    @property
    def by_type(self) -> Mapping[str, OnType]:
        return self.types


def typed(slow: float = 0.04, fast: float = 0.01, memory: int = 640) -> Typed:
    """Return a profile on two types, the first of which may have less memory."""
    epochs = (4000.0,)
    return Typed(
        epochs=epochs,
        example=slow,
        types={
            "t4": OnType(epochs=epochs, example=slow, max_atomic_batch_size=memory),
            "v100": OnType(epochs=epochs, example=fast),
        },
    )


@dataclass
class Given:
    """Gives each job always the same GPUs."""

    placements: Mapping[str, Placement]

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Mapping[str, Placement]:
        return {job.job_id: self.placements[job.job_id] for job in view.jobs}


def run(
    policy: Policy,
    rule: BatchRule | None,
    profile: Typed,
    workload: Workload | None = None,
    cluster: Cluster = CLUSTER,
    rules: EngineSettings = RULES,
) -> Result:
    jobs = workload or toy_workload(replace(toy_job("a"), num_replicas=2, batch_size=80))
    scenario = Scenario(jobs, {"toy": profile}, cluster, rules, traits_of(policy), batch_rule=rule)
    return ended(Simulation(scenario, 1), policy)


def time_of(result: Result) -> float:
    (job,) = result.job_records
    return job.completion_time - job.start_time  # type: ignore[operator]


def test_the_slowest_decides_and_equal_times_come_after_a_few_looks_by_hand() -> None:
    """80 examples on 2 GPUs of each: 20 take 0.95 s on one of the slow, 0.35 s on one of the others."""
    even = run(Given({"a": BOTH}), OmniLearn(gain=0.0), typed())
    assert time_of(even) == pytest.approx(4000 / 8 * 0.95)
    # Of 0.95 and 0.35 s the mean is 0.65: 20 / 0.95 * 0.65 to 20 / 0.35 * 0.65 is 10.8 to 29.2 of 40.
    times = [0.15 + max(0.04 * slow, 0.01 * fast) for slow, fast in ((20, 20), (11, 29), (9, 31), (8, 32))]
    left = 500 - sum(60 / time for time in times[:3])
    assert time_of(run(Given({"a": BOTH}), OmniLearn(), typed())) == pytest.approx(180 + left * times[3])


def test_types_of_one_speed_are_one_type() -> None:
    like = Cluster.of_groups([[2, 2, "t4"]])
    jobs = toy_workload(replace(toy_job("a"), num_replicas=2, batch_size=80))
    one = run(Given({"a": BOTH}), FixedBatch(), typed(0.02, 0.02), jobs, like)
    assert run(Given({"a": BOTH}), OmniLearn(), typed(0.02, 0.02), jobs).job_records[0].completion_time == (
        one.job_records[0].completion_time
    )


@given(policies_and_cases)
@draws(20)
def test_on_one_type_it_is_a_fixed_batch(given: tuple[str, tuple[Cluster, Workload]]) -> None:
    name, (cluster, workload) = given
    results = []
    for rule in (FixedBatch(), OmniLearn()):
        policy = POLICIES[name]()
        scenario = Scenario(workload, PROFILES, cluster, EngineSettings(), traits_of(policy), name, rule)
        results.append(told(ended(Simulation(scenario, 1), policy)))
    assert results[0] == results[1]


@pytest.mark.parametrize("rule", [None, FixedBatch()])
def test_who_has_equal_parts_has_one_type(rule: BatchRule | None) -> None:
    with pytest.raises(InvalidAllocationError, match=r"gave job 'a' GPUs of t4 and v100: .*, must be of one type"):
        run(Given({"a": BOTH}), rule, typed())


def test_a_type_that_a_job_cannot_use_is_refused() -> None:
    jobs = toy_workload(replace(toy_job("a"), num_replicas=2, batch_size=80, gpu_types=("v100",)))
    with pytest.raises(InvalidAllocationError, match=r"GPUs of t4: .*, must be of v100"):
        run(Given({"a": BOTH}), OmniLearn(), typed(), jobs)


@pytest.mark.parametrize(("placement", "rule"), [(((1, 2),), MostGoodput()), (((0, 1), (1, 1)), OmniLearn())])
def test_a_type_without_a_profile_is_refused(placement: Placement, rule: BatchRule) -> None:
    cluster = Cluster.of_groups([[1, 4, "t4"], [1, 4, "k80"], [1, 4, "v100"]])
    with pytest.raises(InvalidAllocationError, match="toy has no profile for k80, but for t4, v100"):
        run(Given({"a": placement}), rule, typed(), cluster=cluster)


@given(st.sampled_from([0.3, 1.0]), st.floats(0.005, 0.1), st.floats(0.005, 0.1), st.sampled_from([15, 30, 640]))
@draws(20)
def test_unlike_parts_are_nearly_as_good_as_the_best(gain: float, slow: float, fast: float, memory: int) -> None:
    """And no slower than equal ones, whatever the speeds and memories, but for the first minutes."""
    profile = typed(slow, fast, memory)
    profile = replace(
        profile, types={name: replace(each, epochs=(2e5, 4e5)) for name, each in profile.types.items()},
        epochs=(2e5, 4e5),
    )  # fmt: skip
    even, balanced = (time_of(run(Given({"a": BOTH}), OmniLearn(gain=part), profile)) for part in (0.0, gain))
    best = min(
        max(0.15 + slow * first, 0.15 + fast * (40 - first)) for first in range(1, min(memory, 39) + 1)
    ) * 4e5 / 8  # fmt: skip
    # A dead band of 5 %, and an example of rounding.
    assert best * (1 - 1e-9) <= balanced <= best * (1 + 0.06 / gain) + max(slow, fast) * 4e5 / 8 + 600
    assert balanced <= even * 1.0001


limits = st.tuples(st.integers(1, 4), st.sampled_from([4, 8, 50, 1000]), st.integers(1, 6), st.floats(0.1, 10))


@given(st.lists(limits, min_size=2, max_size=4), st.integers(1, 3000))
@draws(150)
def test_all_of_a_batch_is_split_within_limits_in_proportion(
    types: list[tuple[int, int, int, float]], size: int
) -> None:
    applications = [Application("a", 1, 3000, least, most, 1) for least, most, _, _ in types]
    gpus, weights = [each[2] for each in types], [each[3] for each in types]
    choice = split_by_weight(applications, size, gpus, weights)
    sizes = [examples for _, examples in choice.parts]
    assert [number for number, _ in choice.parts] == gpus
    assert all(least <= part <= most for (least, most, _, _), part in zip(types, sizes, strict=True))
    total, capacity = choice.batch_size(sum(gpus)), sum(each[1] * each[2] for each in types)
    assert choice.accumulation_steps == -(-size // capacity) - 1
    least = sum(each[0] * each[2] for each in types) * (choice.accumulation_steps + 1)
    rounding = max(gpus) * (choice.accumulation_steps + 1)
    assert max(size, least) <= total < max(size, least) + rounding or total > 3000 - rounding
    free = [
        (part, weight)
        for (low, high, _, weight), part in zip(types, sizes, strict=True)
        if low < part < high
    ]  # fmt: skip
    for one, first in free:
        for other, second in free:
            assert (one - 1) * second <= (other + 1) * first * (1 + 1e-9)


@given(st.integers(1, 3000), st.integers(1, 8), st.integers(1, 8))
def test_like_types_have_like_parts(size: int, first: int, second: int) -> None:
    application = Application("a", 1, 3000, 1, 100, 1)
    choice = split_by_weight([application, application], size, (first, second), (2.0, 2.0))
    whole = split_batch_size(application, size, first + second, accumulate_alone=False)
    assert max(part for _, part in choice.parts) - min(part for _, part in choice.parts) <= 1
    assert choice.accumulation_steps == whole.accumulation_steps


def test_a_controller_lets_small_differences_be() -> None:
    near = [Workers("t4", 1, 100, 1.04), Workers("v100", 1, 100, 0.96)]
    assert Controller(1.0, 0.05).parts(near) is None
    assert Controller(1.0, 0.01).parts(near) == pytest.approx((100 / 1.04, 100 / 0.96))
    assert Controller(0.5, 0.01).parts(near) == pytest.approx((50 + 50 / 1.04, 50 + 50 / 0.96))
    assert Controller(1.0, 0.0).parts([each._replace(examples=10) for each in near]) is None  # less than one
    for wrong in ({"gain": 1.5}, {"gain": float("nan")}, {"dead_band": -1.0}):
        with pytest.raises(InvalidConfigError, match=r"^agent\.\w+ is .*, must be a (finite )?number"):
            OmniLearn(**wrong)


@pytest.mark.parametrize("policy", [Fifo(), LeastAttainedService()])
def test_a_gang_takes_several_types_where_none_has_enough_and_keeps_them(policy: Policy) -> None:
    """One GPU of each is taken, so that two of one type are nowhere; alone, it keeps to the faster one."""
    jobs = toy_workload(
        *(replace(toy_job(name), batch_size=40, gpu_types=(kind,)) for name, kind in (("x", "t4"), ("y", "v100"))),
        replace(toy_job("a", 10.0), num_replicas=2, batch_size=80),
    )
    result = run(policy, OmniLearn(), typed(), jobs)
    placed = [record for record in result.allocation_records if record.job == "a" and record.nodes]
    assert {(record.nodes, record.gpus) for record in placed} == {((0, 1), (1, 1))}
    assert placed[0].time == 60.0
    waits = run(type(policy)(), FixedBatch(), typed(), jobs)
    assert next(record.time for record in waits.allocation_records if record.job == "a" and record.nodes) > 60.0
    (alone,) = (each for each in run(type(policy)(), OmniLearn(), typed()).allocation_records if each.nodes)
    assert alone.nodes == (1,)


times = st.lists(st.tuples(st.integers(0, 900), st.integers(1, 4)), min_size=1, max_size=8)


@given(times, st.sampled_from([Fifo, LeastAttainedService]), st.integers(0, 12), st.booleans())
@draws(20)
def test_all_jobs_complete_and_a_copy_ends_as_the_run(
    drawn: list[tuple[int, int]], policy: type[Fifo], turns: int, look: bool
) -> None:
    cluster = Cluster.of_groups([[2, 2, "t4"], [1, 3, "v100"], [1, 1, "t4"]])
    jobs = toy_workload(
        *(
            replace(toy_job(f"{place}", float(at)), num_replicas=gpus, batch_size=20 * gpus)
            for place, (at, gpus) in enumerate(sorted(drawn))
        )
    )
    scenario = Scenario(jobs, {"toy": typed()}, cluster, EngineSettings(), batch_rule=OmniLearn())
    other, one = policy(), policy()
    result = ended(Simulation(scenario, 1), other)
    assert all(job.completion_time is not None for job in result.job_records)
    simulation = Simulation(scenario, 1)
    go_on(simulation, one, turns, look=look)
    check_fork(simulation, one, told(result))


def test_who_cannot_divide_a_batch_any_more_loses_gpus_of_several_types_and_keeps_its_work() -> None:
    class Adaptive(Given):
        traits = Traits(adaptive=True)

    before, after = Given({"a": BOTH}), Adaptive({"a": ((1, 2),)})
    jobs = toy_workload(replace(toy_job("a"), num_replicas=2, batch_size=80))
    scenario = Scenario(jobs, {"toy": typed()}, CLUSTER, RULES, traits_of(before), batch_rule=OmniLearn())
    going = Simulation(scenario, 1)
    go_on(going, before, 3, look=False)
    going.fork(Fork(240.0, replace(scenario, traits=traits_of(after)), has_new_policy=True))
    result = ended(going, after)
    (job,) = result.job_records
    changes = [(each.time, each.nodes) for each in result.allocation_records]
    assert (60.0, (0, 1)) in changes
    assert changes[-2:] == [(240.0, (1,)), (job.completion_time, ())]
    assert (job.num_restarts, job.lost_work) == (1, 0.0)
    # 180 s at three speeds and the best of 80 examples on two fast GPUs, of which all 4,000 steps would take longer.
    assert job.completion_time < 240 + time_of(run(after, None, typed()))


class Unmeasured(ToyProfile):
    """A toy of which nothing is known with fewer than two examples on a GPU."""

    @property
    def application(self) -> Application:
        return replace(super().application, min_atomic_batch_size=2)

    def step_time(self, gpus_by_node: tuple[int, ...], atomic_batch_size: int) -> StepTime:
        if atomic_batch_size < 2:
            raise ProfileRangeError(f"{atomic_batch_size} examples")
        return super().step_time(gpus_by_node, atomic_batch_size)


def test_who_holds_more_gpus_than_its_batch_can_be_divided_among_starts_again_on_fewer() -> None:
    """As a policy takes over under which batch sizes stay: 10 examples cannot be on 16 GPUs."""
    jobs, cluster = toy_workload(toy_job("a")), Cluster((16,))
    before, after = Pollux(), Fifo()
    first, then = (
        Scenario.under(policy, jobs, {"toy": Unmeasured(epochs=(9e4,), max_atomic_batch_size=40)}, cluster, RULES)
        for policy in (before, after)
    )
    going = Simulation(first, 1)
    while going.allocation.get("a", ((0, 0),))[0][1] <= 10:
        view = going.advance()
        assert view is not None
        going.commit(before.allocate(view, going.rng))
    going.fork(Fork(going.time + 60.0, then, has_new_policy=True))
    (job,) = ended(going, after).job_records
    assert job.status == "completed"
    assert (job.num_replicas, job.lost_work, job.work) == (1, 0.0, 9e4)
