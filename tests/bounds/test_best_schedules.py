"""Bounds against the best schedules of tiny worlds, and against numbers worked out by hand."""

from __future__ import annotations

import bounds
import numpy as np
import pytest

from polluxsim.models.efficiency import GradientStatistics
from polluxsim.models.profile import Application, StepTime
from polluxsim.statistics.bounds import alone, programme, speeds
from polluxsim.statistics.bounds.bounding import bounds_of
from polluxsim.statistics.bounds.measures import measures_of
from polluxsim.statistics.bounds.prices import price
from polluxsim.statistics.bounds.problem import BoundProblem, Capacity, JobLimits, Measure, Mode
from polluxsim.statistics.bounds.slots import slots_of
from polluxsim.statistics.bounds.speeds import SpeedBounds, highest_speeds


def rigid(submit: float, shortest: float, gpus: float, deadline: float | None = None) -> JobLimits:
    return JobLimits(submit, submit, shortest, (Measure(shortest, (Mode(0, gpus, 1.0),)),), deadline)


@pytest.mark.parametrize("number", range(12))
def test_no_bound_of_a_rigid_world_is_better_than_its_best_schedule(number: int) -> None:
    assert bounds.above_the_best(bounds.rigid_world(number))[0] == []


@pytest.mark.parametrize("number", [0, 1, 2, 3, 6, 7, 8, 10])
def test_no_bound_of_an_elastic_world_is_better_than_its_best_schedule(number: int) -> None:
    assert bounds.above_the_best(bounds.elastic_world(number))[0] == []


@pytest.mark.slow
def test_bounds_of_many_tiny_worlds() -> None:
    assert bounds.tiny(60)


def test_bounds_are_exact_where_one_job_is_alone() -> None:
    job = rigid(100.0, 600.0, 4, deadline=650.0)
    result = bounds_of(BoundProblem((job,), Capacity.constant([8])), time_limit=0.5)
    assert {name: bound.value for name, bound in result.items()} == pytest.approx(
        {"avg_jct": 600.0, "p50_jct": 600.0, "p99_jct": 600.0, "makespan": 600.0, "deadlines_met": 0.0}
    )


def test_prices_show_that_one_of_two_jobs_waits() -> None:
    problem = BoundProblem((rigid(0.0, 600.0, 3), rigid(0.0, 600.0, 2)), Capacity.constant([4]))
    bound = bounds_of(problem, ["avg_jct"], time_limit=2.0)["avg_jct"]
    # Side by side they would need 5 of 4 GPUs. In turn they complete at 600 s and 1,200 s, on average at 900 s. If GPUs
    # could be divided, the first job would progress at 2/3 of its speed for 600 s, and the means would be 700 s.
    assert 690 < bound.value <= 700.001
    assert bound.part == "prices"
    assert bound.parts["alone"] == 600


def test_an_outage_delays_all_jobs() -> None:
    capacity = Capacity(np.array([-np.inf, 300.0, 1500.0]), np.array([[4.0, 0.0, 4.0]]))
    result = bounds_of(BoundProblem((rigid(0.0, 600.0, 4),), capacity), ["avg_jct", "makespan"], time_limit=0.5)
    # 300 s before the outage and 300 s after it.
    assert result["makespan"].value == pytest.approx(1800)
    assert result["avg_jct"].value == pytest.approx(1800)


def test_one_machine_by_hand() -> None:
    jobs = (rigid(0.0, 10.0, 2), rigid(0.0, 4.0, 2), rigid(3.0, 5.0, 4))
    problem = BoundProblem(jobs, Capacity(np.array([-np.inf, 5.0, 9.0]), np.array([[4.0, 0.0, 4.0]])))
    # 8 GPU s end at 2 s; 12 of the 20 GPU s of the first job are done at 5 s, and the rest at 11 s; the last at 16 s.
    assert alone.mean_on_one_machine(problem) == pytest.approx((2 + 11 + (16 - 3)) / 3)
    assert alone.makespan_of_work(problem) == pytest.approx(16)


def test_two_jobs_cannot_both_meet_a_deadline_for_which_each_has_time() -> None:
    jobs = tuple(rigid(0.0, 600.0, 3, deadline=1000.0) for _ in range(3))
    bound = bounds_of(BoundProblem(jobs, Capacity.constant([3])), ["deadlines_met"])["deadlines_met"]
    assert bound.parts == {"alone": 3.0, "prices": 1.0}
    assert bound.value == 1
    assert bound.is_upper


def test_a_job_outside_the_means_counts_for_deadlines() -> None:
    jobs = (rigid(0.0, 600.0, 1, deadline=900.0),)
    others = (rigid(0.0, 60.0, 1, deadline=900.0), rigid(0.0, 60.0, 1, deadline=30.0))
    result = bounds_of(BoundProblem(jobs, Capacity.constant([2]), others), time_limit=0.5)
    assert result["deadlines_met"].value == 2
    assert result["avg_jct"].value == pytest.approx(600)


def test_any_prices_prove_a_bound() -> None:
    world = bounds.rigid_world(8)
    problem = world.problem()
    slots = slots_of(problem)
    best = bounds.best(world)["avg_jct"]
    rng = np.random.default_rng(3)
    for scale in (1e-4, 1e-2, 1.0, 100.0):
        prices = scale * rng.random(slots.gpu_seconds.shape) * (rng.random(slots.gpu_seconds.shape) < 0.5)
        assert price(problem, slots, prices).mean <= best + 1e-6
        assert programme.programme_value(problem, slots, prices) <= best + 1e-6


@pytest.mark.parametrize("scale", [0.2, 1.0, 4.0])
def test_the_least_cost_of_a_job_alone_against_a_search_over_ends(scale: float) -> None:
    problem = BoundProblem((rigid(5.0, 100.0, 2),), Capacity.constant([2]))
    slots = slots_of(problem)
    rng = np.random.default_rng(0)
    prices = scale * rng.random(slots.gpu_seconds.shape)
    result = price(problem, slots, prices).mean + 5.0 + float((prices * slots.gpu_seconds).sum())
    edges = slots.ends
    by_slot = slots.padded(prices)[0]
    order = np.argsort(by_slot)
    costs = []
    for end in np.arange(105.0, 400.0, 0.05):
        lengths = np.clip(np.minimum(edges[1:], end) - np.maximum(edges[:-1], 5.0), 0.0, None)
        room = lengths[order]
        taken = np.clip(100.0 - (np.cumsum(room) - room), 0.0, room)
        costs.append(end + 2 * float((taken * by_slot[order]).sum()))
    assert 0.97 * min(costs) < result <= min(costs) + 1e-6


def test_measures_of_a_job_that_grows_late() -> None:
    # The first stretch gains nothing from a second GPU, and the second one twice as much.
    speeds_by_count = SpeedBounds((1, 2), np.array([[1.0, 1.0], [1.0, 2.0]]))
    measures = measures_of(np.array([10.0, 10.0]), {0: speeds_by_count})
    assert measures[0].work == pytest.approx(15)  # at full speed
    assert all(measure.work / max(mode.rate for mode in measure.modes) <= 15 + 1e-9 for measure in measures)
    # With expensive GPUs, a second of the first stretch costs as much as one of the second on one GPU.
    costs = [min(mode.gpus / mode.rate for mode in measure.modes) * measure.work for measure in measures]
    assert max(costs) == pytest.approx(20)


class Steps:
    """A profile with a fast batch size in the middle of a memory that is slow at its end."""

    application = Application("steps", 32, 256, 8, 64, 1)

    def step_time(self, gpus_by_node: tuple[int, ...], atomic_batch_size: int) -> StepTime:
        return StepTime(0.1 + 0.01 * atomic_batch_size + 0.05 * (len(gpus_by_node) - 1), 0.02)

    def gradient_statistics(self, batch_size: int, epoch: int) -> GradientStatistics:
        return GradientStatistics(1.0, 2.0)


def test_no_batch_size_and_no_placement_is_faster_than_the_highest_speed() -> None:
    profile = Steps()
    result = highest_speeds(profile, (4, 4), 8)
    assert result is not None
    for place, gpus in enumerate(result.counts):
        fastest = 0.0
        for steps in range(8):
            for size in range(8, 65):
                total = gpus * size * (steps + 1)
                if 32 <= total <= 256:
                    time = (
                        0.1 + 0.01 * size + 0.05 * (gpus > 4) + steps * (0.1 + 0.01 * size + 0.05 * (gpus > 4) - 0.02)
                    )
                    fastest = max(fastest, (3.0 / (2.0 * 32 / total + 1.0)) / time)
        assert fastest <= result.rates[0, place] <= 1.04 * fastest


def test_shapes_fit_on_the_nodes() -> None:
    for count in (3, 8, 20, 31):
        shapes = list(speeds._shapes(count, (8, 4, 4, 16, 2)))
        assert shapes
        for shape in shapes:
            assert sum(shape) == count
            assert all(gpus <= size for gpus, size in zip(shape, (16, 8, 4, 4, 2), strict=False))


class TestPlantedErrors:
    """Errors in the mathematics, each of which a comparison with best schedules finds."""

    def test_the_cost_of_a_slot_counted_at_its_end(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def at_the_end(starts: np.ndarray, lengths: np.ndarray, shortest: float, rate: float) -> np.ndarray:
            return np.minimum(starts + lengths, 1e9) / shortest

        assert bounds.above_the_best(bounds.rigid_world(3))[0] == []
        monkeypatch.setattr(programme, "cost_of_progress", at_the_end)
        assert bounds.above_the_best(bounds.rigid_world(3))[0] == ["avg_jct"]

    def test_types_weighed_by_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def by_time(starts: np.ndarray, lengths: np.ndarray, shortest: float, rate: float) -> np.ndarray:
            return starts / shortest / rate

        # The fast pool is down until the job has completed on the slow one.
        rates = (((0, 1), 2), ((1, 1), 1))
        world = bounds.TinyWorld((bounds.TinyJob(0, ((2, rates),), 9),), ((0, 1),) * 4 + ((1, 1),))
        assert bounds.best(world)["avg_jct"] == 120
        assert bounds.above_the_best(world)[0] == []
        monkeypatch.setattr(programme, "cost_of_progress", by_time)
        assert bounds.above_the_best(world)[0] == ["avg_jct"]
