"""Terms of queues with quotas, and rules of preemption among them."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import NamedTuple

ANY, LOWER_PRIORITY, NEVER = "any", "lower-priority", "never"  # jobs that may be preempted


class Terms(NamedTuple):
    """Terms of a queue in the cohort."""

    quota: int = 0  # GPUs that the queue owns
    borrowing_limit: float = inf  # most GPUs that the queue may hold beyond its quota
    lending_limit: float = inf  # most GPUs of the quota that other queues may borrow
    weight: float = 1.0  # for fair sharing

    @property
    def reserved(self) -> float:
        """Return the GPUs of the quota that other queues cannot borrow."""
        return max(self.quota - self.lending_limit, 0)


class Rules(NamedTuple):
    """Rules of preemption. The parameters of `Quotas` describe them."""

    within_queue: str = LOWER_PRIORITY
    reclaim: str = ANY
    fair_sharing: bool = False


def most_gpus(terms: Mapping[str, Terms], queue: str, num_gpus: int) -> float:
    """Return the most of `num_gpus` GPUs that a queue can hold if all other queues are idle."""
    mine = terms.get(queue, Terms())
    reserved = sum(each.reserved for name, each in terms.items() if name != queue)
    return min(mine.quota + mine.borrowing_limit, num_gpus - reserved)
