"""CPUs and memory of nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

from polluxsim.common.errors import invalid_setting
from polluxsim.common.tables import Row
from polluxsim.common.values import Range, check
from polluxsim.hardware.placements import Placement

UNLIMITED = 1e12  # CPUs or GB of a node without a stated number; larger than any request
MIB = 2**20 / 1e9  # a mebibyte [GB]
ROUNDING = 1e-9  # largest relative rounding error of sums of CPUs or memory


class Host(NamedTuple):
    """CPUs and memory of a node, or per GPU of a job."""

    cpus: float  # [cores]
    memory: float  # [GB]

    def times(self, count: float) -> Host:
        """Return both amounts times `count`.

        >>> Host(3, 62.5).times(8)
        Host(cpus=24, memory=500.0)
        """
        return Host(self.cpus * count, self.memory * count)

    def less(self, other: Host) -> Host:
        """Return the difference of both amounts."""
        return Host(self.cpus - other.cpus, self.memory - other.memory)

    def plus(self, other: Host) -> Host:
        """Return the sum of both amounts."""
        return Host(self.cpus + other.cpus, self.memory + other.memory)

    def at_most(self, other: Host) -> Host:
        """Return the minimum of each amount."""
        return Host(min(self.cpus, other.cpus), min(self.memory, other.memory))

    def but_not_negative(self) -> Host:
        """Return the amounts with 0 in place of negative amounts."""
        return Host(max(self.cpus, 0.0), max(self.memory, 0.0))

    def part_of(self, other: Host) -> float:
        """Return the larger of two shares: of the CPUs of another host and of its memory [1]."""
        return max(self.cpus / other.cpus, self.memory / other.memory)

    def count(self, other: Host) -> int:
        """Return how many times the other fits into this, up to rounding. An amount of 0 always fits."""
        times = (total / part for total, part in zip(self, other, strict=True) if part > 0)
        return max(int(min(times, default=UNLIMITED) * (1 + ROUNDING)), 0)

    def holds(self, other: Host) -> bool:
        """Return whether the other fits into this, up to rounding."""
        slack = 1 + ROUNDING
        return other.cpus <= self.cpus * slack and other.memory <= self.memory * slack


NOTHING = Host(0.0, 0.0)

NO_GRANTS: Mapping[str, Host] = {}  # no CPUs and memory of jobs that differ from the shares of their GPUs


class Hosted(NamedTuple):
    """CPUs and memory per GPU of a job, and the resulting speed of the job."""

    host: Host
    speed: float  # relative to the profile or the duration [1]


def least(hosts: Iterable[Host]) -> Host:
    """Return the fewest CPUs and the least memory of one or more hosts."""
    cpus, memory = zip(*hosts, strict=True)
    return Host(min(cpus), min(memory))


def shares_of(hosts: Sequence[Host], gpus_per_node: Sequence[int]) -> tuple[Host, ...]:
    """Return the CPUs and memory per GPU of each node; all of them for a node without a GPU."""
    pairs = zip(hosts, gpus_per_node, strict=True)
    return tuple(Host(host.cpus / (gpus or 1), host.memory / (gpus or 1)) for host, gpus in pairs)


def with_gpus(shares: Sequence[Host], placement: Placement) -> Host:
    """Return the CPUs and memory per GPU of a placement: the least share of its nodes."""
    if len(placement) == 1:  # the usual case, and faster
        return shares[placement[0][0]]
    return least(shares[node] for node, _ in placement)


def read_host(settings: Any) -> Host:
    """Return the CPUs and memory of a node from settings {cpus: …, memory: …}, or one of both [cores; GB].

    Raise InvalidConfigError if the settings have another form, or a number is invalid.
    """
    if not isinstance(settings, Mapping) or not settings or not settings.keys() <= set(Host._fields):
        raise invalid_setting("CPUs and memory of a node of the cluster", settings, "{cpus: …, memory: …}")
    for name, value in settings.items():
        check(f"{name} of a node of the cluster", value, Annotated[float, Range(above=0, most=UNLIMITED)])
    # A number that is left out limits no job.
    return Host(float(settings.get("cpus", UNLIMITED)), float(settings.get("memory", UNLIMITED)))


def host_settings(host: Host) -> dict[str, float]:
    """Return the CPUs and memory of a node in the form that `read_host` reads."""
    return {name: value for name, value in host._asdict().items() if value < UNLIMITED}


HOST_COLUMNS = ("cpu_milli", "memory_mib")  # of a list of nodes


def host_of_row(row: Row) -> Host:
    """Return the CPUs and memory of a node in a list of nodes. Raise InvalidInputError if a number is invalid."""
    return Host(row.number("cpu_milli", above=0) / 1000, row.number("memory_mib", above=0) * MIB)
