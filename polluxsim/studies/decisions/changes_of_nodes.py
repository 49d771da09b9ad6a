"""Reservations and drained nodes of a record, as the JSON file beside it states them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import floor, inf, isfinite
from pathlib import Path
from typing import Any, NamedTuple

from polluxsim.common.errors import InvalidInputError, short
from polluxsim.logs.site.hostlist import expanded
from polluxsim.policies.slurm.values import NodeSet, SlurmReservation, node_set
from polluxsim.studies.decisions.asked import ROUNDING


class RecordedReservation(NamedTuple):
    """A reservation, with times on the clock of the record [s]."""

    name: str
    nodes: tuple[str, ...]
    created: int
    start: int
    end: int


class Drain(NamedTuple):
    """A time in which nodes accept no job, because they are down or drained [s on the clock of the record]."""

    nodes: tuple[str, ...]
    start: int
    end: float  # ∞ if the nodes do not come back


class ChangesOfNodes(NamedTuple):
    """What was created, drained and resumed during a record."""

    reservations: tuple[RecordedReservation, ...] = ()
    drains: tuple[Drain, ...] = ()

    def reservations_at(self, second: int, node_names: Iterable[str], zero: int) -> list[SlurmReservation]:
        """Return the reservations that exist in a second, with times since the epoch."""
        numbers = {name: number for number, name in enumerate(node_names)}
        present = []
        for reservation in self.reservations:
            if reservation.created <= second < reservation.end:
                # A node on which no job ran has no number, and matters to no decision.
                nodes = node_set(numbers[name] for name in reservation.nodes if name in numbers)
                present.append(
                    SlurmReservation(reservation.name, nodes, reservation.start + zero, reservation.end + zero)
                )
        return present

    def drained_at(self, second: int, node_names: Iterable[str]) -> NodeSet:
        """Return the nodes that accept no job in a second."""
        numbers = {name: number for number, name in enumerate(node_names)}
        drained = 0
        for drain in self.drains:
            # The order within a second is unknown; a job may start before its node drains.
            if drain.start < second < drain.end:
                drained |= node_set(numbers[name] for name in drain.nodes if name in numbers)
        return drained


NO_CHANGES = ChangesOfNodes()


def changes_in(path: Path, content: Mapping[str, Any], fraction: float) -> ChangesOfNodes:
    """Return the changes that the file beside a record states, in whole seconds of Slurm's clock.

    Raise InvalidInputError if an entry is incomplete or invalid.

    Parameters
    ----------
    content
        The content of the file.
    fraction
        Fraction of a second by which Slurm's clock is behind that of the file [s].
    """
    reservations = []
    for entry in _entries(path, content, "reservations"):
        created, start, end = (_second(path, entry, name, fraction) for name in ("created", "start", "end"))
        name = str(entry.get("name", ""))
        reservations.append(RecordedReservation(name, _nodes(path, entry), created, start, end))
    drains = []
    for entry in _entries(path, content, "drains"):
        start = _second(path, entry, "start", fraction)
        end_of_drain = _second(path, entry, "end", fraction) if "end" in entry else inf
        drains.append(Drain(_nodes(path, entry), start, end_of_drain))
    return ChangesOfNodes(tuple(reservations), tuple(drains))


def _entries(path: Path, content: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """Return a list of objects in the file. Raise InvalidInputError if it is none."""
    entries = content.get(name, [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise InvalidInputError(f"{path}: {name} is {short(entries)}, must be a list of objects")
    return entries


def _nodes(path: Path, entry: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the nodes of an entry. Raise InvalidInputError if it names none."""
    names = expanded(str(entry.get("nodes", "")))
    if not names:
        raise InvalidInputError(f"{path}: nodes of {dict(entry)}, must be names of nodes, like n[1-2]")
    return tuple(names)


def _second(path: Path, entry: Mapping[str, Any], name: str, fraction: float) -> int:
    """Return a time of an entry in whole seconds. Raise InvalidInputError if it is none."""
    time = entry.get(name)
    # JSON in Python may contain NaN and Infinity, which are in no second.
    if not isinstance(time, int | float) or not isfinite(time):
        raise InvalidInputError(f"{path}: {name} of {dict(entry)}, must be a time [s]")
    return floor(time - fraction + ROUNDING)
