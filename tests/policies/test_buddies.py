"""Buddy placement: each job on as few nodes as possible, whatever was placed before."""

from __future__ import annotations

from math import ceil
from random import Random

import pytest

from polluxsim.hardware.placements import Placement, num_replicas
from polluxsim.policies.contract.view import ClusterView, JobSnapshot
from polluxsim.policies.deadlines.buddies import buddies


def view_of(gpus_per_node: tuple[int, ...], placements: dict[str, Placement]) -> ClusterView:
    jobs = tuple(
        JobSnapshot(name, 0.0, max(num_replicas(placement), 1), 1, placement, 0.0, 0, 99, None, None)  # type: ignore[arg-type]
        for name, placement in placements.items()
    )
    return ClusterView(0.0, gpus_per_node, jobs)


def used(gpus_per_node: tuple[int, ...], placements: dict[str, Placement]) -> list[int]:
    taken = [0] * len(gpus_per_node)
    for placement in placements.values():
        for node, gpus in placement:
            taken[node] += gpus
    return taken


@pytest.mark.parametrize("seed", range(40))
def test_powers_of_two_are_never_split_and_gpus_are_conserved(seed: int) -> None:
    """Jobs come, change and go at random; as long as enough GPUs are free, each has the fewest nodes there can be."""
    rng = Random(seed)
    size = rng.choice([2, 4, 8])
    sizes = (size,) * rng.randint(2, 6)
    placements: dict[str, Placement] = {}
    for step in range(30):
        placements = {name: placement for name, placement in placements.items() if rng.random() < 0.85}
        placements |= {f"{step}-{number}": () for number in range(rng.randint(1, 4))}
        counts, left = dict[str, int](), sum(sizes)
        for name, placement in placements.items():
            gpus = num_replicas(placement) if placement and rng.random() < 0.8 else 2 ** rng.randint(0, 4)
            counts[name] = gpus if gpus <= left else 0
            left -= counts[name]
        before, placements = placements, buddies(view_of(sizes, placements), counts, (), ())
        assert {name: num_replicas(placement) for name, placement in placements.items()} == counts
        assert all(taken <= there for taken, there in zip(used(sizes, placements), sizes, strict=True))
        assert all(len(placement) == ceil(counts[name] / size) for name, placement in placements.items())
        # A job moves only for a larger one.
        moved = [
            counts[name]
            for name, held in before.items()
            if held and counts[name] == num_replicas(held) and set(placements[name]) != set(held)
        ]
        new = [counts[name] for name, held in before.items() if counts[name] != num_replicas(held)]
        assert max(moved, default=0) < max(new, default=1)


def test_a_job_takes_the_node_with_the_least_room_that_suffices() -> None:
    view = view_of((4, 4), {"a": ((0, 2),), "b": ()})
    assert buddies(view, {"a": 2, "b": 1}, (), ())["b"] == ((0, 1),)


@pytest.mark.parametrize(
    ("fixed", "anywhere", "placed"),
    [
        ((), (), {"a": ((1, 2),), "b": ((1, 2),), "new": ((0, 4),)}),
        (("a", "b"), (), {"a": ((0, 2),), "b": ((1, 2),), "new": ((0, 2), (1, 2))}),
        (("a",), (), {"a": ((0, 2),), "b": ((0, 2),), "new": ((1, 4),)}),
        ((), ("new",), {"a": ((0, 2),), "b": ((1, 2),), "new": ((0, 2), (1, 2))}),
    ],
)
def test_jobs_make_room_unless_they_must_not_or_need_not(
    fixed: tuple[str, ...], anywhere: tuple[str, ...], placed: dict[str, Placement]
) -> None:
    view = view_of((4, 4), {"a": ((0, 2),), "b": ((1, 2),), "new": ()})
    assert buddies(view, {"a": 2, "b": 2, "new": 4}, fixed, anywhere) == placed


def test_jobs_of_any_size_are_placed_on_nodes_of_any_size() -> None:
    view = view_of((3, 0, 5), {"a": (), "b": ()})
    placed = buddies(view, {"a": 6, "b": 2}, (), ())
    assert (num_replicas(placed["a"]), num_replicas(placed["b"])) == (6, 2)
