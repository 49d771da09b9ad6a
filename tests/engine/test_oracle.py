from __future__ import annotations

import pytest
from toy import ToyProfile

from polluxsim.engine.oracle import JobOracle, Truth
from polluxsim.types import BatchChoice

TRUTH = Truth(ToyProfile(seconds=2.0, epochs=(100.0, 300.0)))
TWO_GPUS = ((2,), BatchChoice(10, 0))  # a batch of 20 is worth 2 M0-steps, so it makes one a second


@pytest.mark.parametrize(
    ("epoch", "progress", "expected"), [(0, 0.0, 300.0), (0, 60.0, 240.0), (1, 100.0, 200.0), (1, 250.0, 50.0)]
)
def test_remaining_time_is_exact_within_an_epoch(epoch: int, progress: float, expected: float) -> None:
    assert JobOracle(TRUTH, epoch, progress).remaining_time(*TWO_GPUS) == pytest.approx(expected)


def test_remaining_iterations_are_by_whole_epochs() -> None:
    assert [JobOracle(TRUTH, 0, p).remaining_iterations(20) for p in (0.0, 60.0)] == [100.0, 100.0]
    assert JobOracle(TRUTH, 1, 250.0).remaining_iterations(20) == 1.0
