"""Phases A, B and C of a job by contention."""

from __future__ import annotations

import numpy as np
import pytest

from polluxsim.look.plot.job_life import Life, StepCurve
from polluxsim.studies.paper.measures import phases


def curve(edges: list[float], values: list[float]) -> StepCurve:
    return StepCurve(np.array(edges, dtype=float), np.array(values, dtype=float))


def test_phases_are_cut_by_contention_and_averaged_over_time() -> None:
    life = Life(
        "j", "Pollux",
        gpus=curve([0, 10, 20, 30, 60], [0, 32, 4, 16]),
        batch_size=curve([0, 10, 20, 30, 60], [np.nan, 3200, 400, 3200]),
        efficiency=curve([0, 10, 20, 30, 60], [np.nan, 0.5, 0.9, 0.8]),
    )  # fmt: skip
    found = phases(life, curve([0, 15, 20, 40, 50, 60], [2, 2, 20, 8, 3]))
    assert {name: phase.length for name, phase in found.items()} == {"A": 10, "B": 20, "C": 10}  # 40 to 50 is neither
    assert found["A"][1:] == (32, 3200, 100, 0.5)
    assert found["B"][1:] == (10, 1800, pytest.approx(150), pytest.approx(0.85))
    assert found["C"][1:] == (16, 3200, 200, 0.8)


def test_a_job_that_comes_with_the_crowd_has_no_phase_before_it() -> None:
    life = Life("j", "", curve([0, 9], [4]), curve([0, 9], [40]), curve([0, 9], [0.5]))
    assert set(phases(life, curve([0, 5, 9], [20, 2]))) == {"B", "C"}


def test_a_life_without_efficiency_has_no_phases() -> None:
    life = Life("j", "", curve([0, 9], [4]), curve([0, 9], [40]))
    with pytest.raises(ValueError, match="without efficiency"):
        phases(life, curve([0, 9], [1]))
