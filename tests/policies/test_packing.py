"""Laws of finding GPUs: what is free is what nobody holds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from polluxsim.hardware.placements import Placement
from polluxsim.policies.sharing.antman import _first_with
from polluxsim.policies.tools.free_gpus import FreeGpus, pack, remove

nodes = st.lists(st.integers(0, 5), min_size=1, max_size=5)


@st.composite
def nodes_with_a_job(draw: st.DrawFn) -> tuple[list[int], tuple[tuple[int, int], ...]]:
    free = draw(nodes)
    held = [(node, draw(st.integers(0, gpus))) for node, gpus in enumerate(free)]
    return free, tuple((node, gpus) for node, gpus in held if gpus)


@given(nodes)
def test_a_job_is_packed_exactly_where_there_is_room(free: list[int]) -> None:
    for wanted in range(1, sum(free) + 2):
        placement = FreeGpus(free).pack(wanted)
        assert (placement is None) == (wanted > sum(free))
        if placement is None:
            continue
        assert sum(gpus for _, gpus in placement) == wanted
        assert FreeGpus(free).has(placement)
        assert len({node for node, _ in placement}) == len(placement)
        # The emptiest nodes first: no other node could spare one of those used.
        largest = sorted(free, reverse=True)
        assert sum(largest[: len(placement) - 1]) < wanted
        assert sorted((free[node] for node, _ in placement), reverse=True) == largest[: len(placement)]


@given(nodes_with_a_job())
def test_what_is_taken_is_free_no_more_and_what_is_given_back_is(
    drawn: tuple[list[int], tuple[tuple[int, int], ...]],
) -> None:
    free, placement = drawn
    left = remove(free, placement)
    for wanted in range(1, sum(free) + 2):
        after, again = FreeGpus(free), FreeGpus(free)
        after.take(placement)
        again.take(placement)
        again.give_back(placement)
        assert after.pack(wanted) == FreeGpus(left).pack(wanted)
        assert again.pack(wanted) == FreeGpus(free).pack(wanted)


@given(nodes_with_a_job(), nodes_with_a_job())
def test_packing_one_job_after_the_other_takes_each_gpu_once(
    first: tuple[list[int], tuple[tuple[int, int], ...]], second: tuple[list[int], tuple[tuple[int, int], ...]]
) -> None:
    free, held = first
    wanted = sum(gpus for _, gpus in held)
    assert pack(free, wanted, keep=held) == (held or FreeGpus(free).pack(wanted))
    gone = second[1]
    if gone and not FreeGpus(free).has(gone):  # its nodes are gone or taken
        count = sum(gpus for _, gpus in gone)
        assert pack(free, count, keep=gone) == FreeGpus(free).pack(count)
    several, taken = FreeGpus(free), [0] * len(free)
    while (placement := several.pack(1)) is not None:
        for node, gpus in placement:
            taken[node] += gpus
    assert taken == free


def test_gpus_are_kept_on_a_node_with_enough_else_on_the_one_with_most() -> None:
    free = {0: [(0, 0)], 1: [(1, 0), (1, 1)], 2: [(2, 0), (2, 1), (2, 2)]}
    assert [_first_with(free, wanted) for wanted in (1, 2, 4)] == [free[0], free[1], free[2]]


@given(st.lists(st.integers(0, 8), min_size=1, max_size=6), st.data())
def test_the_emptiest_node_comes_first_after_any_changes(gpus: list[int], data: st.DataObject) -> None:
    free = FreeGpus(gpus)
    held: list[Placement] = []
    for _ in range(8):
        if held and data.draw(st.booleans()):
            free.give_back(held.pop(data.draw(st.integers(0, len(held) - 1))))
            continue
        expected = list(free.gpus)
        wanted = data.draw(st.integers(1, 10))
        placement = free.pack(wanted)
        if placement is None:
            assert wanted > sum(expected)
            continue
        held.append(placement)
        for node, count in placement:
            assert node == expected.index(max(expected))
            assert count == min(expected[node], wanted)
            expected[node] -= count
            wanted -= count
        assert free.gpus == expected
        assert free.total == sum(expected)
