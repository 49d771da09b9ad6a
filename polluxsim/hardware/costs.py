"""Costs of nodes: a price of a node-hour, or the price of a GPU type for each GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from polluxsim.hardware.gpu_types import GPU_TYPES, GpuType

HOURS_OF_MONTH = 365.25 * 24 / 12  # mean length of a month [h]


class Price(NamedTuple):
    """The price of a node [$/h]."""

    of_node: float = 0.0  # 0 if the GPUs have a price
    gpu: GpuType | None = None  # type whose price each GPU has; None if nodes have a price

    def monthly(self, gpus_per_node: Sequence[int]) -> float:
        """Return the price of nodes in a month, given the GPUs of each node [$].

        >>> Price(2.0).monthly([8, 8])
        2922.0
        """
        hourly = self.of_node * len(gpus_per_node)
        if self.gpu is not None:
            hourly = self.gpu.price * sum(gpus_per_node)
        return hourly * HOURS_OF_MONTH

    def __str__(self) -> str:
        if self.gpu is not None:
            return f"${self.gpu.price:g} for a GPU-hour of {self.gpu.name}"
        return f"${self.of_node:g} for a node-hour"


def read_price(text: str) -> Price | None:
    """Return the price in a text: the price of a node-hour [$], or the name of a GPU type; None for other texts.

    >>> str(read_price("24.5")), str(read_price("t4")), read_price("rtx2080ti"), read_price("-1")
    ('$24.5 for a node-hour', '$0.978 for a GPU-hour of t4', None, None)
    """
    gpu = GPU_TYPES.get(text)
    if gpu is not None:
        return Price(gpu=gpu) if gpu.price else None  # a price of 0 means that it is unknown
    try:
        price = float(text)
    except ValueError:
        return None
    return Price(price) if 0 < price < 1e9 else None


def priced_types() -> list[str]:
    """Return the names of the GPU types with a known price."""
    return [name for name, gpu in GPU_TYPES.items() if gpu.price]


def in_dollars(amount: float) -> str:
    """Return an amount as text.

    >>> in_dollars(14318.2), in_dollars(-25.5)
    ('$14,318', '−$26')
    """
    rounded = round(amount)
    return f"−${-rounded:,}" if rounded < 0 else f"${rounded:,}"
