"""Partitions of a cluster."""

import pytest

from polluxsim.common.errors import InvalidConfigError
from polluxsim.hardware.clusters import Cluster


def test_groups_state_partitions() -> None:
    cluster = Cluster.of_groups(
        [
            {"nodes": 2, "gpus": 8, "partitions": ["gpu"]},
            {"nodes": 1, "gpus": 4, "partitions": ["gpu", "long"]},
        ]
    )
    assert cluster.gpus_per_node == (8, 8, 4)
    assert cluster.partitions == {"gpu": (0, 1, 2), "long": (2,)}
    assert cluster.first_nodes(2).partitions == {"gpu": (0, 1)}


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([{"nodes": 1, "gpus": 8, "partitions": "gpu"}], r"partitions .* are 'gpu', must be a list of names"),
        (
            [{"nodes": 1, "gpus": 8, "partitions": ["gpu"]}, [1, 4]],
            r"a group of 1 nodes with 4 GPUs is in no partition",
        ),
    ],
)
def test_wrong_partitions_are_refused(groups: list[object], message: str) -> None:
    with pytest.raises(InvalidConfigError, match=message):
        Cluster.of_groups(groups)  # type: ignore[arg-type]


def test_partition_with_a_node_that_does_not_exist_is_refused() -> None:
    with pytest.raises(
        InvalidConfigError, match=r"partition 'gpu' has the nodes .* must have ascending numbers from 0"
    ):
        Cluster((8, 8), partitions={"gpu": (0, 2)})
