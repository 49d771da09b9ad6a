from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy import ToyProfile

from polluxsim.agent.agent import FixedBatchAgent
from polluxsim.engine.truth import GroundTruth
from polluxsim.hardware.placements import BatchChoice
from polluxsim.models.efficiency import GradientStatistics, efficiency
from polluxsim.models.known_duration import ScalingProfile

TRUTH = GroundTruth(ToyProfile(seconds=2.0, epochs=(100.0, 300.0)))
TWO_GPUS = ((2,), BatchChoice(10, 0))  # a batch of 20 is worth 2 M0-steps, so it makes one a second


@pytest.mark.parametrize(
    ("epoch", "progress", "expected"), [(0, 0.0, 300.0), (0, 60.0, 240.0), (1, 100.0, 200.0), (1, 250.0, 50.0)]
)
def test_remaining_time_is_exact_within_an_epoch(epoch: int, progress: float, expected: float) -> None:
    assert TRUTH.time_left(*TWO_GPUS, epoch, progress) == pytest.approx(expected)


def test_a_pace_is_computed_once() -> None:
    assert TRUTH.speed_at(*TWO_GPUS) is TRUTH.speed_at(*TWO_GPUS)
    assert TRUTH.speed_at(*TWO_GPUS).in_epoch(0) == (1.0, 1.0)
    assert TRUTH.optimiser_step_time(*TWO_GPUS) == 2.0


def test_the_speed_alone_is_that_of_one_gpu_at_its_largest_batch() -> None:
    profile = ToyProfile()
    most = profile.application.max_atomic_batch_size
    assert GroundTruth(profile).speed_alone == most / profile.step_time((1,), most).step_time
    assert GroundTruth(ToyProfile(seconds=4.0)).speed_alone == pytest.approx(GroundTruth(profile).speed_alone / 4)


def test_an_epoch_has_as_many_steps_as_its_progress_over_what_each_is_worth() -> None:
    assert [TRUTH.steps_in(epoch, 20) for epoch in (0, 1)] == [50.0, 100.0]
    assert [TRUTH.steps_in(epoch, 10) for epoch in (0, 1)] == [100.0, 200.0]


@given(
    speeds=st.dictionaries(st.integers(1, 12), st.floats(0.1, 10.0), min_size=2, max_size=5),
    gpus=st.integers(1, 12),
)
def test_the_efficiency_of_a_job_without_a_profile_is_1(speeds: dict[int, float], gpus: int) -> None:
    """On fewer GPUs than its largest number it may have a smaller batch, because the GPUs do not divide it."""
    known = tuple(sorted(speeds.items()))
    truth = GroundTruth(ScalingProfile(known[0][0], 600.0, known))
    gpus = min(max(gpus, known[0][0]), known[-1][0])
    choice = FixedBatchAgent(truth.application, truth.init_batch_size).choose(1, gpus)
    assert truth.speed_at((gpus,), choice).in_epoch(0)[1] == 1.0


@given(scale=st.floats(0.01, 100.0), sqr=st.floats(0.0, 10.0), var=st.floats(0.0, 10.0))
def test_no_efficiency_is_above_1(scale: float, sqr: float, var: float) -> None:
    assert 0 < efficiency(GradientStatistics(sqr, var), scale) <= 1 + 1e-12
