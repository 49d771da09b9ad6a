from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polluxsim.models.efficiency import GradientStatistics, efficiency, gain

positive = st.floats(1e-6, 1e6)
scales = st.floats(1.0, 1e4)


@given(positive, positive, scales)
def test_gain_is_between_one_step_and_perfect_scaling(sqr: float, var: float, scale: float) -> None:
    assert 1 - 1e-9 <= gain(GradientStatistics(sqr, var), scale) <= scale * (1 + 1e-9)


@given(positive, positive, scales)
def test_efficiency_is_the_papers_form_with_the_noise_scale(sqr: float, var: float, scale: float) -> None:
    statistics = GradientStatistics(sqr, var)
    noise, batch_size = statistics.noise_scale(100), 100 * scale
    assert efficiency(statistics, scale) == pytest.approx((noise + 100) / (noise + batch_size))


def test_no_signal_in_the_gradient_scales_perfectly() -> None:
    assert gain(GradientStatistics(sqr=0.0, var=1.0), 8.0) == 8.0


def test_no_gradient_at_all_is_one_step() -> None:
    assert gain(GradientStatistics(sqr=0.0, var=0.0), 8.0) == 1.0
