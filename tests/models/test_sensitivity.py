"""Speeds by CPUs and memory: the published tables, and that the least amount for a speed is the least."""

from __future__ import annotations

from math import inf, nextafter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polluxsim.hardware.hosts import Host
from polluxsim.models.sensitivity import Sensitivity, is_curve
from polluxsim.workloads.synergy import models_by_task

# Throughputs over those with 3 CPUs and 62.5 GB for each GPU, as the simulator published with Synergy (OSDI '22) has
# them: rows by CPUs, columns by memory.
CPUS = (1, 2, 3, 4, 5, 6, 9, 12, 24)
MEMORY = (20.0, 62.5, 125.0, 187.5, 250.0)
PUBLISHED = {
    "alexnet": [
        [0.1, 0.3, 0.3, 0.3, 0.3], [0.1, 0.66, 0.66, 0.66, 0.66], [0.1, 1, 1, 1, 1], [0.1, 1.25, 1.25, 1.25, 1.25],
        [0.1, 1.53, 1.53, 1.53, 1.53], [0.1, 1.75, 1.75, 1.75, 1.75], [0.1, 2, 2, 2, 2], [0.1, 2, 2.94, 2.94, 2.94],
        [0.1, 2, 2.94, 2.94, 2.94],
    ],
    "m5": [
        [0.1, 0.3, 0.3, 0.3, 0.3], [0.1, 0.66, 0.66, 0.66, 0.66], [0.1, 1, 1, 1, 1], [0.1, 1.2, 1.2, 1.2, 1.2],
        [0.1, 1.4, 1.4, 1.4, 1.4], *[[0.1, 1.5, 2, 2.5, 2.5]] * 4,
    ],
    "gnmt": [[1.0] * 5] * 9,
}  # fmt: skip

amounts = st.lists(st.floats(0.1, 100), min_size=1, max_size=5, unique=True).map(sorted)
curves = amounts.flatmap(
    lambda knots: st.lists(st.floats(0.01, 10), min_size=len(knots), max_size=len(knots)).map(
        lambda speeds: tuple(zip(knots, sorted(speeds), strict=True))
    )
)


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_tables_are_the_lesser_of_both_curves(name: str) -> None:
    (model,) = (model for models in models_by_task().values() for model in models if model.name == name)
    known = Sensitivity(model.cpu_speeds, model.memory_speeds)
    assert [[known.speed(Host(cpus, gb)) for gb in MEMORY] for cpus in CPUS] == PUBLISHED[name]


@given(curves, st.floats(0.001, 10))
def test_the_least_for_a_speed_is_the_least(curve: tuple[tuple[float, float], ...], speed: float) -> None:
    known, otherwise = Sensitivity(curve), Host(1.0, 7.0)
    assert is_curve(curve)
    speed = min(speed, known.full)
    found = known.least(speed, otherwise)
    assert found.memory == otherwise.memory
    assert known.speed(found) >= speed
    less = nextafter(found.cpus * (1 - 1e-9), 0)
    assert known.speed(Host(less, inf)) < speed


@given(curves, curves, st.floats(0, 200), st.floats(0, 200), st.floats(0, 50))
def test_more_is_never_slower(
    cpus: tuple[tuple[float, float], ...], memory: tuple[tuple[float, float], ...], few: float, gb: float, more: float
) -> None:
    known = Sensitivity(cpus, memory)
    assert known.speed(Host(few, gb)) <= known.speed(Host(few + more, gb)) * (1 + 1e-12) <= known.full * (1 + 1e-12)
    assert known.speed(Host(few, gb)) <= known.speed(Host(few, gb + more)) * (1 + 1e-12)
    assert known.speed(Host(0.0, gb)) == 0


@pytest.mark.parametrize(
    "curve", [((1, 1), (1, 2)), ((1, 2), (2, 1)), ((0, 1),), ((1, -1),), ((1,),), [(1, 1)], ((1, inf),)]
)
def test_what_is_no_curve_is_none(curve: object) -> None:
    assert not is_curve(curve)
