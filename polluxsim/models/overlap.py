"""Overlap of computing and synchronising, not compiled, for profiles; `throughput` compiles it."""

from __future__ import annotations


def overlapped(grad: float, sync: float, gamma: float) -> float:
    """Return (grad^γ + sync^γ)^(1/γ), the time of a pass that synchronises [s].

    Source: Pollux (OSDI '21), §3.2.

    >>> overlapped(3.0, 4.0, 1.0), overlapped(3.0, 4.0, 2.0)
    (7.0, 5.0)
    """
    larger, smaller = max(grad, sync), min(grad, sync)
    return float(larger * (1.0 + (smaller / larger) ** gamma) ** (1.0 / gamma))
