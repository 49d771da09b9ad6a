"""What nodes have beside GPUs: CPUs and memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple

from polluxsim.common.errors import InvalidConfigError, short

if TYPE_CHECKING:
    from collections.abc import Iterable

    Placement = tuple[tuple[int, int], ...]

UNLIMITED = 1e12
"""CPUs or GB of a node of which nobody says how many it has: more than anybody can ask for."""

MIB = 2**20 / 1e9
"""A mebibyte [GB]."""

ROUNDING = 1e-9
"""By this share of a node's CPUs or memory, sums may be off."""


class Host(NamedTuple):
    """CPUs (cores, or parts of them) and memory [GB]: of a node, or for each GPU of a job."""

    cpus: float
    memory: float

    def times(self, count: float) -> Host:
        """Return so many times as much.

        >>> Host(3, 62.5).times(8)
        Host(cpus=24, memory=500.0)
        """
        return Host(self.cpus * count, self.memory * count)

    def less(self, other: Host) -> Host:
        """Return what is left without the other."""
        return Host(self.cpus - other.cpus, self.memory - other.memory)

    def plus(self, other: Host) -> Host:
        """Return both together."""
        return Host(self.cpus + other.cpus, self.memory + other.memory)

    def at_most(self, other: Host) -> Host:
        """Return the lesser of both, of each."""
        return Host(min(self.cpus, other.cpus), min(self.memory, other.memory))

    def but_not_negative(self) -> Host:
        """Return 0 for what is owed."""
        return Host(max(self.cpus, 0.0), max(self.memory, 0.0))

    def part_of(self, other: Host) -> float:
        """Return the larger one of the parts that it is of the other's CPUs and memory."""
        return max(self.cpus / other.cpus, self.memory / other.memory)

    def count(self, other: Host) -> int:
        """Return how often the other fits into this, but for rounding."""
        times = (there / part for there, part in zip(self, other, strict=True) if part > 0)
        return max(int(min(times, default=UNLIMITED) * (1 + ROUNDING)), 0)

    def holds(self, other: Host) -> bool:
        """Return whether the other is no more than this, but for rounding."""
        slack = 1 + ROUNDING
        return other.cpus <= self.cpus * slack and other.memory <= self.memory * slack


NOTHING = Host(0.0, 0.0)

NOBODY: Mapping[str, Host] = {}
"""That no job is granted other CPUs and memory than go with its GPUs."""


class Hosted(NamedTuple):
    """What each GPU of a job has of its nodes' CPUs and memory, and how fast the job is with it."""

    host: Host
    speed: float


def least(hosts: Iterable[Host]) -> Host:
    """Return the fewest CPUs and the least memory of any."""
    cpus, memory = zip(*hosts, strict=True)
    return Host(min(cpus), min(memory))


def shares_of(hosts: Sequence[Host], gpus_per_node: Sequence[int]) -> tuple[Host, ...]:
    """Return what a GPU of each node has where CPUs and memory go with GPUs; of a node without any, all."""
    pairs = zip(hosts, gpus_per_node, strict=True)
    return tuple(Host(host.cpus / (gpus or 1), host.memory / (gpus or 1)) for host, gpus in pairs)


def with_gpus(shares: Sequence[Host], placement: Placement) -> Host:
    """Return what each GPU of a placement has, by the shares of its nodes: on several nodes, the least of any."""
    if len(placement) == 1:
        return shares[placement[0][0]]
    return least(shares[node] for node, _ in placement)


def host_said(said: Any) -> Host:
    """Return what a configuration says that a node has: {cpus: …, memory: …}, or one of these [cores; GB].

    Raises
    ------
    InvalidConfigError
        If it says something else, or what is no number above 0.
    """
    if not isinstance(said, Mapping) or not said or not said.keys() <= set(Host._fields):
        raise InvalidConfigError(f"cluster: a node has {short(said)}, allowed are {{cpus: …, memory: …}}")
    for name, value in said.items():
        if type(value) not in (int, float) or not (isfinite(value) and 0 < value <= UNLIMITED):
            raise InvalidConfigError(f"cluster: {name} of a node is {short(value)}, allowed is a number > 0")
    return Host(*(float(said.get(name, UNLIMITED)) for name in Host._fields))


def as_said(host: Host) -> dict[str, float]:
    """Return what a node has as `host_said` takes it."""
    return {name: value for name, value in host._asdict().items() if value < UNLIMITED}
