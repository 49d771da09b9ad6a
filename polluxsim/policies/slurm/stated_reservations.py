"""Reservations of a simulation, as a user writes them in `policy.reservations` with the names of scontrol(1).

`{maint: {StartTime: 3600, EndTime: 7200, Nodes: 0-1}, course: {StartTime: 0, EndTime: 600, Nodes: 3, Jobs: [a]}}` has
times in seconds on the clock of the run, and nodes by number. `Jobs` names the jobs that ask for the reservation
(sbatch `--reservation`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from polluxsim.common.errors import InvalidConfigError, allowed_among, invalid_setting, short
from polluxsim.common.values import NonNegativeInt, check
from polluxsim.hardware.placements import JobId
from polluxsim.policies.slurm.node_values import by_number
from polluxsim.policies.slurm.values import SlurmReservation, node_set

SETTING = "policy.reservations"
KEYS = ("StartTime", "EndTime", "Nodes", "Jobs")


class StatedReservations(NamedTuple):
    """The reservations of a simulation."""

    all: Sequence[SlurmReservation]
    of_jobs: Mapping[JobId, str]  # reservation that a job asks for, by name of the job

    def times(self) -> list[int]:
        """Return when a reservation begins or ends [s], each once and in rising order."""
        return sorted({time for reservation in self.all for time in (reservation.start, reservation.end)})


NO_RESERVATIONS = StatedReservations((), {})


def read_reservations(setting: Mapping[str, Any]) -> StatedReservations:
    """Return the reservations that a user writes as `policy.reservations`.

    Raise InvalidConfigError if a key is missing or unknown, a value invalid, or a job in two reservations.
    """
    reservations = []
    of_jobs: dict[JobId, str] = {}
    for name, entry in setting.items():
        words = f"{SETTING}.{name}"
        if not isinstance(entry, Mapping):
            raise invalid_setting(words, entry, "a mapping, like {StartTime: 3600, EndTime: 7200, Nodes: 0-1}")
        for key in entry:
            if key not in KEYS:
                raise InvalidConfigError(f"{words} has the key {str(key)!r}, {allowed_among(str(key), KEYS)}")
        for key in ("StartTime", "EndTime", "Nodes"):
            if key not in entry:
                raise InvalidConfigError(f"{words} has no {key}; state it")
        for key in ("StartTime", "EndTime"):
            check(f"{words}.{key}", entry[key], NonNegativeInt)
        start = int(entry["StartTime"])
        end = int(entry["EndTime"])
        if end <= start:
            raise invalid_setting(f"{words}.EndTime", end, f"later than StartTime, {start}")
        nodes = node_set(nodes_in(f"{words}.Nodes", entry["Nodes"]))
        reservations.append(SlurmReservation(str(name), nodes, start, end))
        jobs = entry.get("Jobs", ())
        if isinstance(jobs, str) or not isinstance(jobs, Sequence):
            raise invalid_setting(f"{words}.Jobs", jobs, "names of jobs, like [a, b]")
        for job in jobs:
            if str(job) in of_jobs:
                raise InvalidConfigError(f"{words}.Jobs names {short(job)}, which has a reservation; leave out one")
            of_jobs[str(job)] = str(name)
    return StatedReservations(tuple(reservations), of_jobs)


def nodes_in(words: str, nodes: object) -> list[int]:
    """Return the numbers of nodes in a text. Raise InvalidConfigError if a part is no number or range, or repeats one.

    >>> nodes_in("policy.reservations.maint.Nodes", "0-2,5")
    [0, 1, 2, 5]
    """
    parts = str(nodes).split(",")
    try:
        return list(by_number(words, dict.fromkeys(parts, True)))
    except InvalidConfigError as error:
        # The error of the parts shows values that the user did not write.
        raise invalid_setting(words, nodes, "numbers of nodes, each once, like 0-2,5") from error
