"""The ledger charges accounts for the service that jobs attain, also under evictions and preemption."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest

from polluxsim.checks.driving import run_policy
from polluxsim.checks.random_worlds import Allowed, random_world
from polluxsim.policies.tools.gangs import schedule_gangs
from polluxsim.policies.tools.ledger import Ledger, queue_of, user_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from polluxsim.hardware.placements import JobId
    from polluxsim.policies.contract.view import ClusterView, Decision, JobView

WORLDS = range(100, 116)


class Charged:
    """A preemptive policy that compares the balances of its ledger with the attained service of all jobs."""

    def __init__(self, account_of: Callable[[JobView], str]) -> None:
        self.account_of = account_of
        self.ledger: Ledger[str] = Ledger()
        self.jobs: dict[JobId, JobView] = {}
        self.num_evicted = 0

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        self.ledger.settle(view)
        self.jobs |= {job.job_id: job for job in view.jobs}
        self.num_evicted += len(view.changes.evicted)
        attained = Counter[str]()
        for job in self.jobs.values():
            attained[self.account_of(job)] += job.attained_service  # type: ignore[assignment]
        for account, service in attained.items():
            assert self.ledger.balance(account, view.time) == pytest.approx(service)
        decision = schedule_gangs(view, sorted(view.jobs, key=lambda job: job.attained_service))
        self.ledger.follow(view, decision, self.account_of)
        return decision


@pytest.mark.parametrize("account_of", [user_of, queue_of, lambda job: job.job_id], ids=["user", "queue", "job"])
def test_a_balance_is_the_attained_service(account_of: Callable[[JobView], str]) -> None:
    num_evicted = 0
    for number in WORLDS:
        world = random_world(number, Allowed(scaled=False))
        if any(job.past is not None for job in world.jobs):  # a ledger does not know the service before the run
            continue
        policy = Charged(account_of)
        run_policy(world, policy)
        num_evicted += policy.num_evicted
    assert num_evicted > 0


def test_a_balance_that_is_set_counts_from_then_on() -> None:
    policy = Charged(user_of)
    world = random_world(WORLDS[0], Allowed(types=False, scaled=False))
    run_policy(world, policy)
    ledger = policy.ledger
    user = next(iter(ledger._charges))
    ledger.set_balance(user, 5.0, 1e6)
    assert ledger.balance(user, 2e6) == 5.0
    ledger.keep([])
    assert not ledger.has(user)
