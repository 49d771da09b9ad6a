"""Policies that obey limits start no job beyond a limit in drawn worlds, and decide the same when asked again.

`python benchmarks/check_laws.py --kind limited --worlds 300` draws more worlds.
"""

from __future__ import annotations

import pytest

from polluxsim.checks.checking import checked_world
from polluxsim.checks.findings import Fault, Finding
from polluxsim.checks.limited_worlds import limited
from polluxsim.checks.packed_worlds import packed
from polluxsim.checks.parameters import with_parameters
from polluxsim.checks.random_worlds import Allowed, random_world
from polluxsim.checks.worlds import World
from polluxsim.policies.contract.policy import traits_of
from polluxsim.policies.contract.view import JobView
from polluxsim.policies.tools.held_by_limit import HeldByLimit
from polluxsim.policies.tools.waiting_table import Mask, WaitingTable
from polluxsim.run.named_policies import named_policy

OBEY_LIMITS = (
    "conservative", "easy", "edf", "fifo", "gittins", "las", "multifactor", "priority", "qssf", "scaled", "sjf", "srsf",
    "srtf", "tiresias", "tiresias-l",
)  # fmt: skip


def limited_world(number: int, policy: str) -> World:
    guest = named_policy(policy)
    world = random_world(number, Allowed.under(traits_of(guest.make())))
    if number % 2:
        world = packed(world, number)
    return with_parameters(limited(world, number), guest, number)


def findings_in(number: int, policy: str) -> list[Finding]:
    """Return the findings of a policy in a limited world."""
    return checked_world(policy, limited_world(number, policy), faults=(Fault.STANDING,))


@pytest.mark.parametrize("policy", OBEY_LIMITS)
def test_no_start_exceeds_a_limit(policy: str) -> None:
    assert traits_of(named_policy(policy).make()).obeys_limits
    for number in range(12):
        assert findings_in(number, policy) == []


@pytest.mark.parametrize("policy", ["fifo", "easy", "srtf", "conservative"])
def test_a_policy_that_counts_no_jobs_is_found(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(held: HeldByLimit, job: JobView) -> None:
        return None

    def rows_at_limit(held: HeldByLimit, table: WaitingTable) -> Mask:
        return ~table.is_present

    monkeypatch.setattr(HeldByLimit, "stop", stop)
    monkeypatch.setattr(HeldByLimit, "rows_at_limit", rows_at_limit)
    faults = {finding.fault for number in range(40) for finding in findings_in(number, policy)}
    assert Fault.LIMIT in faults
