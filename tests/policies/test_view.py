"""The view of the cluster: times of rounds, parts of a view, and proxies of jobs."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polluxsim.common.instants import first_round, slack
from polluxsim.hardware.clusters import Cluster
from polluxsim.hardware.placements import Placement
from polluxsim.policies.contract.view import Changes, ClusterView, Health, JobProxy, JobSnapshot, SharedGpus


def view(interval: float) -> ClusterView:
    return ClusterView(interval, (4,), (), round_interval=interval)


@given(st.floats(0.01, 1e4), st.integers(1, 100_000))
def test_the_time_of_a_round_is_its_own_round(interval: float, number: int) -> None:
    assert view(interval).round_at(number * interval) == number * interval


@given(st.floats(0.01, 1e4), st.floats(1e-3, 1e8))
def test_it_is_the_first_round_that_is_not_earlier(interval: float, time: float) -> None:
    found = view(interval).round_at(time)
    assert found == first_round(time, interval) * interval
    assert found >= time - slack(time)
    number = round(found / interval)
    assert number == 1 or (number - 1) * interval < time


def test_with_fractional_intervals_rounding_skips_no_round() -> None:
    assert view(0.71).round_at(52 * 0.71) == 52 * 0.71
    intervals = [0.71, 0.3, 0.1, 1.1, 7.7, 59.9]
    assert [
        number for each in intervals for number in range(1, 2000) if view(each).round_at(number * each) != number * each
    ] == []


@pytest.mark.parametrize("interval", [0.0, 60.0])
def test_never_is_never(interval: float) -> None:
    assert view(interval).round_at(inf) == inf
    assert view(0.0).round_at(61.5) == 61.5


def snapshot(name: str, placement: Placement = (), gpus: int = 2) -> JobSnapshot:
    return JobSnapshot(name, 0.0, gpus, 1, placement, 0.0, 0, 8, None, None)  # type: ignore[arg-type]


def test_a_part_of_a_view_has_nothing_of_other_jobs_and_nodes() -> None:
    jobs = [snapshot("a", ((0, 2),)), snapshot("b", ((1, 1),), 1), snapshot("c")]
    held = {"a": ((0, 0), (0, 1)), "b": ((1, 0),)}
    changes = Changes(arrived=jobs[2:], passed_epoch=["a", "b"], learnt=["b"], nodes=True, evicted=["b", "c"])
    health = Health((1, 2), (0, 1, 1), ((0, 60.0), (2, 90.0)), (4, 8))
    whole = ClusterView(0.0, (4, 0, 0), jobs, changes, health=health, sharing=SharedGpus(held, {"a": 1.0, "b": 0.5}))
    seen = {"a": JobProxy(jobs[0], max_replicas=3), "c": jobs[2]}
    part = whole.part((4, 0), seen, changes.among(seen, nodes=False), nodes=range(2))
    assert [job.job_id for job in part.jobs] == ["a", "c"]
    assert (part.jobs[0].max_replicas, part.jobs[0].placement, jobs[0].max_replicas) == (3, ((0, 2),), 8)
    assert part.jobs[1] is jobs[2]
    assert (part.running, part.waiting, part.free, part.demand) == ([seen["a"]], [jobs[2]], [2, 0], 4)
    changes = Changes(arrived=jobs[2:], passed_epoch=["a"], learnt=[], nodes=False, evicted=["c"], altered=[])
    assert part.changes == changes
    assert part.health == Health((1,), (0, 1, 1), ((0, 60.0),), (4,))
    assert part.sharing == SharedGpus({"a": held["a"]}, {"a": 1.0})
    assert part.nominal_gpus == 8


def test_a_question_about_an_unknown_type_leaves_the_cluster_as_it_is() -> None:
    types = Cluster.of_groups([[1, 8, "a100-40"], [2, 4, "t4"]]).node_types
    of_types = ClusterView(0.0, (8, 4, 4), (), node_types=types)
    assert not of_types.nodes_of("h100")
    assert of_types.gpus_of("h100") == 0
    assert list(types.nodes) == ["a100-40", "t4"]


def test_a_proxy_shows_the_job_but_for_its_own_values_and_can_be_copied() -> None:
    job = snapshot("a", ((0, 2),))
    proxy = JobProxy(job, placement=())
    for each in (proxy, deepcopy(proxy)):
        assert (each.job_id, each.placement, each.num_replicas) == ("a", (), 2)
        assert JobSnapshot.of(each) == replace(job, placement=())
        with pytest.raises(AttributeError):
            each.nothing  # noqa: B018
    with pytest.raises(AttributeError):
        proxy.placement = ()  # type: ignore[misc]


def test_an_error_within_an_attribute_of_a_view_keeps_its_message() -> None:
    job: Any = SimpleNamespace(job_id="a", num_replicas=1)
    with pytest.raises(AttributeError, match="has no attribute 'placement'"):
        ClusterView(0.0, (4,), [job]).running  # noqa: B018
