"""Shockwave: what it expects of jobs, and its plans against brute force."""

from __future__ import annotations

from itertools import product
from math import inf, log
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polluxsim.hardware.clusters import Cluster
from polluxsim.models.known_duration import BatchPlan
from polluxsim.policies.contract.view import ClusterView
from polluxsim.policies.sized.shockwave import (
    BASES,
    LOG_OF_NOTHING,
    FairTime,
    Prospect,
    Shockwave,
    Window,
    _turns,
    fair_rounds,
    planned_rounds,
    prospect,
    time_left,
)


@st.composite
def prospects(draw: st.DrawFn) -> Prospect:
    epochs = draw(st.integers(1, 9))
    time = draw(st.floats(20, 900))
    return Prospect(
        draw(st.integers(1, 3)), epochs, draw(st.integers(0, epochs - 1)), 0.0, time, draw(st.floats(1, 4e3))
    )


def value(jobs: list[Prospect], weights: list[float], rounds: tuple[int, ...], window: Window) -> float:
    """Return the objective of a plan, from its definition; epochs are as many as it pays to do."""
    total, longest = 0.0, 0.0
    for job, weight, count in zip(jobs, weights, rounds, strict=True):
        done = min(count * window.length / job.epoch_time, job.epochs - job.done)
        knots = [log(base or LOG_OF_NOTHING) for base in BASES]
        total += weight * float(np.interp((job.done + done) / job.epochs, BASES, knots))
        longest = max(longest, job.remaining_time - done * job.epoch_time)
    return total / (len(jobs) * window.rounds) - window.weight_of_longest * longest


def is_within_limits(jobs: list[Prospect], plan: tuple[int, ...], window: Window) -> bool:
    """Return whether the GPU rounds fit into a window, and the gangs of each width and more."""
    planned = list(zip(jobs, plan, strict=True))
    return sum(job.width * count for job, count in planned) <= window.rounds * window.gpus and all(
        sum(count for job, count in planned if job.width >= width) <= window.rounds * (window.gpus // width)
        for width in {job.width for job in jobs}
    )


def can_be_packed(jobs: list[Prospect], plan: tuple[int, ...], window: Window) -> bool:
    """Return whether the rounds of a window have room for so many gangs of each job, at most one in a round."""
    if not any(plan):
        return True
    if not window.rounds:
        return False
    later = window._replace(rounds=window.rounds - 1)
    for chosen in product(*(range(min(count, 1) + 1) for count in plan)):
        if sum(job.width for job, runs in zip(jobs, chosen, strict=True) if runs) <= window.gpus and can_be_packed(
            jobs, tuple(count - runs for count, runs in zip(plan, chosen, strict=True)), later
        ):
            return True
    return False


def test_gangs_that_do_not_fit_beside_each_other_share_the_rounds() -> None:
    """Two jobs of 3 GPUs on 4: of three rounds each has some, and both together no more than three."""
    jobs = [Prospect(3, 9, 0, 0.0, 120.0, 1080.0)] * 2
    assert sorted(planned_rounds(jobs, [1.0, 1.0], [0, 0], Window(3, 120.0, 4, 0.0))) == [1, 2]


def test_some_counts_within_the_limits_cannot_be_packed() -> None:
    """The programme is a relaxation, as its docstring says."""
    jobs = [Prospect(width, 9, 0, 0.0, 120.0, 1080.0) for width in (2, 1)]
    window = Window(3, 120.0, 2, 0.0)
    assert is_within_limits(jobs, (1, 3), window)
    assert not can_be_packed(jobs, (1, 3), window)


@given(st.lists(prospects(), min_size=1, max_size=3), st.integers(1, 4), st.integers(1, 4), st.data())
@settings(max_examples=30)
def test_a_plan_is_as_good_as_the_best(jobs: list[Prospect], rounds: int, gpus: int, data: st.DataObject) -> None:
    """Of all counts within the limits, and so at least as good as the best counts that can be packed."""
    weights = [data.draw(st.sampled_from([1.0, 2.5, 30.0])) for _ in jobs]
    window = Window(rounds, 120.0, gpus, data.draw(st.sampled_from([0.0, 1e-4, 1e-2])))
    found = planned_rounds(jobs, weights, [0] * len(jobs), window)
    every = list(product(range(rounds + 1), repeat=len(jobs)))
    possible = [plan for plan in every if is_within_limits(jobs, plan, window)]
    assert {plan for plan in every if can_be_packed(jobs, plan, window)} <= set(possible)
    best = max(value(jobs, weights, plan, window) for plan in possible)
    assert tuple(found) in possible
    assert value(jobs, weights, tuple(found), window) >= best - 2e-3 * abs(best) - 1e-6


def test_nobody_is_planned_more_rounds_than_its_epochs_take() -> None:
    """One that needs a round more gets that, however much it weighs."""
    nearly_done, at_its_start = Prospect(1, 2, 1, 0.0, 120.0, 120.0), Prospect(1, 9, 0, 0.0, 900.0, 4000.0)
    assert planned_rounds([nearly_done, at_its_start], [99.0, 1.0], [0, 0], Window(5, 120.0, 1, 0.0)) == [1, 4]


@given(st.lists(prospects(), min_size=1, max_size=3), st.integers(1, 5), st.integers(1, 4), st.data())
def test_a_fair_plan_leaves_nobody_more_than_it_can_spare(
    jobs: list[Prospect], rounds: int, gpus: int, data: st.DataObject
) -> None:
    window = Window(rounds, 120.0, gpus, 0.0)
    spare = [data.draw(st.floats(-100, 4000)) for _ in jobs]
    needed = fair_rounds(jobs, spare, window)
    if needed is None:
        fits = [
            plan
            for plan in product(range(rounds + 1), repeat=len(jobs))
            if is_within_limits(jobs, plan, window)
            and all(
                max(job.remaining_time - 120.0 * count, 0) <= rest
                for job, count, rest in zip(jobs, plan, spare, strict=True)
            )
        ]
        assert fits == []
    else:
        assert is_within_limits(jobs, tuple(needed), window)
        assert all(
            job.remaining_time - 120.0 * count <= rest + 1e-3
            for job, count, rest in zip(jobs, needed, spare, strict=True)
        )


@given(st.lists(st.sampled_from([32, 64, 128]), min_size=1, max_size=20), st.data())
def test_the_time_left_is_between_that_of_the_fastest_and_the_slowest_epochs(
    sizes: list[int], data: st.DataObject
) -> None:
    times = [{32: 90.0, 64: 50.0, 128: 30.0}[size] for size in sizes]
    done = data.draw(st.integers(0, len(sizes) - 1))
    left = time_left(sizes, times, done)
    assert 0 <= left <= max(times) * (len(sizes) - done) * (1 + 1e-9)
    if len(set(sizes)) == 1:
        assert left <= times[0] * (len(sizes) - done)


def test_a_target_is_the_mean_of_estimates_and_a_little_more_of_the_newest() -> None:
    target = FairTime()
    for time, rounds in ((100.0, 3), (200.0, 1)):
        target.newest = time
        for _ in range(rounds):
            target.keep_for_a_round()
    assert target.time == pytest.approx(0.9 * 125 + 0.1 * 200)
    assert target.time < inf


def test_who_could_be_done_in_the_window_is_weighed_by_far_the_most() -> None:
    window, policy = Window(20, 60.0, 4, 1e-3), Shockwave()
    short, long = (SimpleNamespace(remaining_time=time) for time in (59.0, 60.0))
    assert policy._weight(1.05, short, window) == pytest.approx(1.05**100)
    assert policy._weight(1.05, long, window) == pytest.approx(1.05**12)
    assert policy._weight(1.0, long, window) == 1.0


@pytest.mark.parametrize("rho", [0.81, 0.95, 1.0])
def test_a_late_job_never_weighs_less_than_one_that_is_not(rho: float) -> None:
    """With a limit of 0.8, a job with ρ = 0.81 is late. Its weight was 0.81^12 = 0.08."""
    job, window = Prospect(1, 1, 0, 0.0, 1000.0, 1000.0), Window(20, 60.0, 4, 1e-3)
    assert Shockwave(most_unfairness=0.8)._weight(rho, job, window) >= 1.0


def test_gangs_run_in_order_as_long_as_they_fit() -> None:
    view = ClusterView(0.0, (4, 2), (), node_types=Cluster((4, 2)).node_types)
    (name,) = view.types
    jobs = [
        SimpleNamespace(job_id=f"{place}", num_replicas=gpus, speeds={name: 1.0})
        for place, gpus in enumerate((4, 3, 2, 1))
    ]
    turns = _turns(view, jobs)  # type: ignore[arg-type]
    assert {job: turn.gpu_type for job, turn in turns.items() if turn.runs} == {"0": name, "2": name}


def test_an_epoch_is_done_when_its_steps_are_and_the_last_one_never_before_the_end() -> None:
    plan = BatchPlan((10, 10, 20), 100, 30, {("v100", 10): 5.0, ("v100", 20): 4.0}, "v100", (10, 20, 20))
    steps = plan.steps(10)
    found = []
    for progress in (0.0, 1.5 * steps, 2.0 * steps, 9.0 * steps):
        job = SimpleNamespace(num_replicas=2, plan=plan, oracle=SimpleNamespace(progress=progress))
        found.append(prospect(None, job))  # type: ignore[arg-type]
    times = [max(round(plan.expected_time(size)), 1) for size in plan.expected_sizes]
    assert [each.done for each in found] == [0, 1, 2, 2]
    assert [each.spent for each in found] == [sum(times[: each.done]) for each in found]
    assert [each.epoch_time for each in found] == [sum(times[: each.done + 1]) / (each.done + 1) for each in found]
    assert all(each.epochs == 3 and each.remaining_time >= 1 for each in found)
