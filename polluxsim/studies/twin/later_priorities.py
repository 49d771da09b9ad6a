"""The priority of a job that is submitted later, under priority/basic and priority/multifactor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median_low
from typing import NamedTuple

from polluxsim.logs.live.jobs import StateJob
from polluxsim.logs.live.nodes import minutes
from polluxsim.logs.live.state import SlurmState
from polluxsim.studies.twin.asks import Ask

BASIC_PRIORITIES = 4_000_000_000  # priorities above this are those of priority/basic, which fall from job to job
MAX_AGE = 7 * 86_400  # default of `PriorityMaxAge` [s]

PriorityOf = Callable[[Ask, str, int], float]
"""Returns the priority of a job that asks for something, of an account, that is submitted at a time [s]."""


class Weights(NamedTuple):
    """Weights of priority/multifactor that the configuration of the state tells."""

    fair_share: int
    age: int
    max_age: int  # [s]

    def of_age(self, seconds: int) -> float:
        """Return the part of the age in a priority. A negative age is that of a job that is submitted later."""
        return self.age * min(max(seconds / self.max_age, -1.0), 1.0)


def weights_of(state: SlurmState) -> Weights | None:
    """Return the weights of priority/multifactor; None if fair shares do not count, or the state does not tell."""
    settings = {key.lower(): value for key, value in state.settings.items()}
    fair_share = _number(settings.get("priorityweightfairshare", ""))
    if not fair_share:
        return None
    max_age = minutes(settings.get("prioritymaxage", "")) or MAX_AGE
    return Weights(fair_share, _number(settings.get("priorityweightage", "")), max_age)


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() else 0


def fair_share_of(state: SlurmState, user: str, account: str) -> float | None:
    """Return the fair-share factor of a user; None if sshare does not tell it.

    If sshare does not have the user in this account, it is that of the account of the user's latest job in the queue,
    or else the smallest one.
    """
    if (account, user) not in state.fair_shares:
        accounts = [job.account for job in state.jobs if job.user == user and (job.account, user) in state.fair_shares]
        account = accounts[-1] if accounts else ""
    if (account, user) in state.fair_shares:
        return state.fair_shares[account, user]
    return min((factor for (_, name), factor in state.fair_shares.items() if name == user), default=None)


def later_priority(state: SlurmState) -> PriorityOf:
    """Return the function that tells the priority of a job that arrives later.

    It is that of the most similar jobs of the queue. If the weights of priority/multifactor and the fair-share factor
    of the user are known, the parts of the fair share and of the age are those of the new job itself.
    """
    ranked = [job for job in state.jobs if job.priority > 0]
    if not ranked or any(job.priority > BASIC_PRIORITIES for job in ranked):
        return lambda ask, account, submit: 0.0  # behind all jobs of the state, in the order of submission
    whole = _by_size(ranked, [job.priority for job in ranked])
    weights = weights_of(state)
    rests: dict[tuple[int, int, int], list[float]] = {}
    if weights is not None:
        rests = _rests(state, ranked, weights)

    def priority(ask: Ask, account: str, submit: int) -> float:
        factor = fair_share_of(state, ask.user, account)
        if weights is None or factor is None or not rests:
            return _of_similar(whole, ask)
        # The age of all waiting jobs grows alike, so a job that comes later stays behind by the time until it comes.
        return _of_similar(rests, ask) + weights.fair_share * factor + weights.of_age(state.now - submit)

    return priority


def _rests(state: SlurmState, ranked: Sequence[StateJob], weights: Weights) -> dict[tuple[int, int, int], list[float]]:
    """Return priorities without the parts of the fair share and of the age, by size of the job.

    They contain the parts of size, partition and QOS.
    """
    jobs = []
    values = []
    for job in ranked:
        factor = fair_share_of(state, job.user, job.account)
        if factor is None:
            continue
        until = job.start if job.is_running else state.now
        age = weights.of_age(max(until - max(job.eligible, job.submit), 0))
        jobs.append(job)
        values.append(job.priority - weights.fair_share * factor - age)
    return _by_size(jobs, values)


def _by_size(jobs: Sequence[StateJob], values: Sequence[float]) -> dict[tuple[int, int, int], list[float]]:
    """Return values of jobs by nodes, CPUs and GPUs."""
    by_size: dict[tuple[int, int, int], list[float]] = {}
    for job, value in zip(jobs, values, strict=True):
        by_size.setdefault((job.num_nodes, job.cpus, job.gpus), []).append(value)
    return by_size


def _of_similar(by_size: dict[tuple[int, int, int], list[float]], ask: Ask) -> float:
    """Return the lower median value of the jobs whose size is nearest."""
    size = (ask.num_nodes, ask.cpus, ask.gpus)
    nearest = min(by_size, key=lambda other: _distance(size, other))
    return median_low(by_size[nearest])


def _distance(size: Sequence[int], other: Sequence[int]) -> int:
    """Return by how much the sizes of two jobs differ: the sum over nodes, CPUs and GPUs."""
    return sum(abs(one - another) for one, another in zip(size, other, strict=True))
