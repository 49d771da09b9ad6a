"""Times in the outputs of Slurm's queries."""

from __future__ import annotations

import re
from datetime import UTC, datetime


def time_of_cycle(text: str) -> int | None:
    """Return the time of the last cycle of the backfill in the output of sdiag [s]; None without it.

    >>> time_of_cycle("Last cycle when: Sat Nov 28 15:50:12 2026 (1795881012)")
    1795881012
    """
    lines = re.findall(r"Last cycle when: (.*)", text)
    if not lines:
        return None
    epoch = re.search(r"\((\d+)\)", lines[-1])
    if epoch is not None:
        return int(epoch[1])
    try:
        return int(datetime.strptime(lines[-1].strip(), "%a %b %d %H:%M:%S %Y").replace(tzinfo=UTC).timestamp())
    except ValueError:
        return None


def latest_evaluation(squeue: str, latest: int) -> int:
    """Return the latest of a time and the evaluations of jobs that squeue prints [s].

    >>> latest_evaluation('"last_sched_evaluation": 12, "last_sched_evaluation": 9', 10)
    12
    """
    evaluations = re.findall(r'"last_sched_evaluation": ?(?:\{[^}]*"number": ?)?(\d+)', squeue)
    return max([latest, *map(int, evaluations)])
