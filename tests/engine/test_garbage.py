"""Garbage is collected seldom inside a run, and as before after it."""

from __future__ import annotations

import gc
from threading import Barrier, Thread
from typing import TYPE_CHECKING

import pytest

from polluxsim.common.errors import PolicyError
from polluxsim.engine.policy_calls import ALLOCATIONS, rare_collections
from polluxsim.engine.simulation import simulate
from polluxsim.hardware.clusters import Cluster
from polluxsim.workloads.workload import Job, Workload

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def threshold() -> Iterator[tuple[int, int, int]]:
    before = gc.get_threshold()
    gc.set_threshold(600, 9, 8)
    yield (600, 9, 8)
    gc.set_threshold(*before)


class Fails:
    def __init__(self) -> None:
        self.seen: tuple[int, int, int] = (0, 0, 0)

    def allocate(self, view: object, rng: object) -> dict[str, tuple[int, ...]]:
        self.seen = gc.get_threshold()
        raise ValueError


def test_a_run_that_fails_leaves_the_threshold_as_it_was(threshold: tuple[int, int, int]) -> None:
    policy = Fails()
    with pytest.raises(PolicyError):
        simulate(Workload((Job.rigid("a", 0.0, 1, 60.0),)), {}, Cluster.uniform(1, 1), policy)
    assert policy.seen == (ALLOCATIONS, 9, 8)
    assert gc.get_threshold() == threshold


def test_threads_that_overlap_leave_the_threshold_as_it_was(threshold: tuple[int, int, int]) -> None:
    first_is_in, second_is_in, first_is_out = Barrier(2), Barrier(2), Barrier(2)
    seen = []

    def first() -> None:
        with rare_collections():
            first_is_in.wait()
            second_is_in.wait()
        seen.append(gc.get_threshold())
        first_is_out.wait()

    def second() -> None:
        first_is_in.wait()
        with rare_collections():
            second_is_in.wait()
            first_is_out.wait()

    threads = [Thread(target=first), Thread(target=second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [(ALLOCATIONS, 9, 8)]
    assert gc.get_threshold() == threshold


def test_a_user_who_collects_less_or_not_at_all_is_left_alone() -> None:
    for first in (0, 10 * ALLOCATIONS):
        gc.set_threshold(first, 9, 8)
        with rare_collections():
            assert gc.get_threshold() == (first, 9, 8)
