"""Values that a user states for nodes by number, as slurm.conf states them by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeVar

from polluxsim.common.errors import InvalidConfigError, invalid_setting

ValueT = TypeVar("ValueT")

EXAMPLE = "{0-15: 10, 20: 5}"
NUMBERS = re.compile(r"(\d+)(?:-(\d+))?")


def by_number(setting: str, values: Mapping[str, ValueT]) -> dict[int, ValueT]:
    """Return values by the numbers of nodes.

    >>> by_number("policy.weight", {"0-1": 10, "3": 5})
    {0: 10, 1: 10, 3: 5}

    Raise InvalidConfigError if a key is neither a number nor a range, or a node has two values.
    """
    by_node: dict[int, ValueT] = {}
    for text, value in values.items():
        match = NUMBERS.fullmatch(str(text))
        if match is None:
            raise invalid_setting(setting, dict(values), f"values of nodes by number, like {EXAMPLE}")
        # A single number is a range of one node.
        first, last = match.groups()
        for node in range(int(first), int(last or first) + 1):
            if node in by_node:
                raise InvalidConfigError(f"{setting} states node {node} twice; leave out one of both")
            by_node[node] = value
    return by_node


def check_nodes(setting: str, values: Mapping[str, ValueT], num_nodes: int) -> None:
    """Raise InvalidConfigError if a setting states a node that the cluster does not have."""
    highest = max(by_number(setting, values), default=0)
    if highest >= num_nodes:
        raise InvalidConfigError(
            f"{setting} states node {highest}, and the cluster has the nodes 0 to {num_nodes - 1}; correct the number"
        )
