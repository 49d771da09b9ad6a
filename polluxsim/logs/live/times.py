"""Times in the outputs of Slurm's queries: seconds since 1970-01-01 UTC, which are found with patterns.

The queries are run with UTC as time zone, so that a date without a zone is one in UTC.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime


def time_of_cycle(text: str) -> int | None:
    """Return the time of the last cycle of the backfill in the output of sdiag [s]; None if it cannot be read.

    >>> time_of_cycle("Last cycle when: Sat Nov 28 15:50:12 2026 (1795881012)")
    1795881012
    """
    lines = re.findall(r"Last cycle when: (.*)", text)
    if not lines:
        return None
    # Newer versions print the seconds behind the date.
    epoch = re.search(r"\((\d+)\)", lines[-1])
    if epoch is not None:
        return int(epoch[1])
    try:
        return int(datetime.strptime(lines[-1].strip(), "%a %b %d %H:%M:%S %Y").replace(tzinfo=UTC).timestamp())
    except ValueError:
        return None


def latest_evaluation(squeue: str, latest: int) -> int:
    """Return `latest`, or the latest time at which slurmctld evaluated a job of `squeue --json`, if that is later [s].

    >>> latest_evaluation('"last_sched_evaluation": 12, "last_sched_evaluation": 9', 10)
    12
    """
    # A pattern also reads an output that is cut off. Since 23.02, a number is an object.
    evaluations = re.findall(r'"last_sched_evaluation": ?(?:\{[^}]*"number": ?)?(\d+)', squeue)
    return max([latest, *map(int, evaluations)])
