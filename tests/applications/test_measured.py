from __future__ import annotations

import pytest

from polluxsim.applications.measured import EpochRow, MeasuredProfile, PlacementRow, ProfileRangeError, ScalabilityRow
from polluxsim.models.efficiency import GradientStatistics
from polluxsim.models.profile import Application, StepTime

APPLICATION = Application("toy", 10, 20, 1, 8, 2)
PROFILE = MeasuredProfile(
    APPLICATION,
    placements=[
        *(PlacementRow((1,), m, m / 10, m / 100) for m in (1, 8)),
        *(PlacementRow((1, 2), m, m / 5, m / 50) for m in (1, 8)),
        *(PlacementRow((1, 4, 2), m, m / 4, m / 40) for m in (1, 8)),
        *(PlacementRow((1, 2, 4), m, m / 2, m / 20) for m in (1, 8)),
    ],
    scalability=[ScalabilityRow(n, k, m, n + k + m, 0.1) for n in (6, 16) for k in (16, 64) for m in (1, 8)],
    validations={
        10: [EpochRow(100, 100, 0, 1.0, 2.0), EpochRow(200, 200, 0, 1.0, 4.0)],
        20: [EpochRow(99, 60, 0, 3.0, 2.0), EpochRow(210, 120, 0, 3.0, 8.0)],
    },
)


def test_a_measured_placement_is_linear_in_the_atomic_batch_size() -> None:
    assert PROFILE.step_time((1,), 8) == StepTime(0.8, 0.08)
    assert PROFILE.step_time((1,), 3) == StepTime(pytest.approx(0.3), pytest.approx(0.03))


@pytest.mark.parametrize("rotation", [(1, 4, 2), (4, 2, 1), (2, 1, 4)])
def test_rotations_of_a_placement_are_one(rotation: tuple[int, ...]) -> None:
    assert PROFILE.step_time(rotation, 8) == StepTime(2.0, 0.2)


def test_reflections_of_a_placement_are_another() -> None:
    assert PROFILE.step_time((1, 2, 4), 8) == StepTime(4.0, 0.4)


def test_other_placements_are_interpolated_by_their_counts() -> None:
    assert PROFILE.step_time((4,) * 10, 4).step_time == pytest.approx(10 + 40 + 4, rel=0.2)


def test_nodes_beyond_the_measured_ones_count_as_the_last() -> None:
    assert PROFILE.step_time((2,) * 20, 4) == PROFILE.step_time((3,) * 8 + (2,) * 8, 4)


def test_a_node_larger_than_any_measured_counts_as_several() -> None:
    assert PROFILE.step_time((8, 8, 8, 8), 4) == PROFILE.step_time((4,) * 8, 4)
    assert PROFILE.step_time((6,), 4) == PROFILE.step_time((4, 2), 4)


@pytest.mark.parametrize(("placement", "atomic"), [((1,), 9), ((1,), 0), ((4,) * 40, 4)])
def test_outside_the_measurements_is_an_error(placement: tuple[int, ...], atomic: int) -> None:
    with pytest.raises(ProfileRangeError, match="toy: no step time"):
        PROFILE.step_time(placement, atomic)


def test_gradient_statistics_are_linear_between_batch_sizes() -> None:
    assert PROFILE.gradient_statistics(15, 1) == GradientStatistics(2.0, 6.0)
    assert PROFILE.gradient_statistics(20, 0) == GradientStatistics(3.0, 2.0)
    with pytest.raises(ProfileRangeError, match="10 to 20"):
        PROFILE.gradient_statistics(21, 0)


def test_an_epoch_ends_at_the_least_validated_progress() -> None:
    assert [PROFILE.epoch_end(0), PROFILE.epoch_end(1)] == [99, 200]


def test_iterations_are_linear_between_batch_sizes() -> None:
    assert PROFILE.total_iterations(15) == 160
    assert PROFILE.remaining_iterations(15, 0) == 80
    assert PROFILE.remaining_iterations(15, 1) == 1


# Work to completion [M0-steps], noise scale in the first and last epoch, time of one step at M0 on one GPU [s], hours
# on one GPU at M0. Source: the measured profiles themselves, as tabulated with the evaluation of Pollux.
SANITY = {
    "imagenet": (576_526, 928, 1.44e4, 0.9235, 147.9),
    "yolov3": (103_444, 0.65, 5.1e3, 0.3261, 9.37),
    "deepspeech2": (28_536, 10, 2.1e5, 0.6812, 5.40),
    "bert": (14_774, 423, 1.1e3, 0.9215, 3.78),
    "cifar10": (39_063, 73, 3.9e4, 0.1031, 1.12),
    "ncf": (194_174, 1.9e4, 5.9e7, 0.0074, 0.40),
}


@pytest.mark.parametrize("name", SANITY)
def test_measured_applications_have_their_known_values(
    measured_profiles: dict[str, MeasuredProfile], name: str
) -> None:
    work, first, last, step_time, hours = SANITY[name]
    profile = measured_profiles[name]
    limits = profile.application
    assert profile.epoch_end(limits.num_epochs - 1) == pytest.approx(work, abs=1)
    initial = limits.init_batch_size
    noise = [profile.gradient_statistics(initial, e).noise_scale(initial) for e in (0, limits.num_epochs - 1)]
    assert noise == pytest.approx([first, last], rel=0.06)
    measured_step = profile.step_time((1,), initial).step_time if initial <= limits.max_atomic_batch_size else 0
    assert measured_step == pytest.approx(step_time, abs=6e-5)
    assert work * measured_step / 3600 == pytest.approx(hours, rel=0.02)
