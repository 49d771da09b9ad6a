"""Policies that place whole jobs keep the shapes of jobs in drawn worlds in which jobs request nodes.

`python benchmarks/check_laws.py --kind packed --worlds 300` draws more worlds.
"""

from __future__ import annotations

import pytest

from polluxsim.checks.checking import made
from polluxsim.checks.driving import run_policy
from polluxsim.checks.findings import Fault, Finding
from polluxsim.checks.laws import RunLaws
from polluxsim.checks.packed_worlds import packed
from polluxsim.checks.parameters import with_parameters
from polluxsim.checks.random_worlds import Allowed, random_world
from polluxsim.hardware.node_shapes import Shape
from polluxsim.hardware.placements import Placement
from polluxsim.policies.contract.policy import traits_of
from polluxsim.policies.tools.free_gpus import FreeGpus
from polluxsim.run.named_policies import named_policy

KEEPS_SHAPES = (
    "conservative", "drf", "easy", "edf", "fair-queues", "fifo", "gittins", "las", "multifactor", "priority", "qssf",
    "quotas", "scaled", "sjf", "srsf", "srtf", "tiresias", "tiresias-l",
)  # fmt: skip


def findings_in(number: int, policy: str) -> list[Finding]:
    """Return the findings of a policy in a packed world."""
    guest = named_policy(policy)
    world = packed(random_world(number, Allowed.under(traits_of(guest.make()))), number)
    world = with_parameters(world, guest, number)
    policy_of_world = made(guest, world)
    laws = RunLaws(world, policy_of_world)
    run_policy(world, policy_of_world, laws=laws)
    return list(laws.findings.values())


@pytest.mark.parametrize("policy", KEEPS_SHAPES)
def test_jobs_keep_their_shapes(policy: str) -> None:
    assert traits_of(named_policy(policy).make()).keeps_shapes
    for number in range(12):
        assert findings_in(number, policy) == []


@pytest.mark.parametrize("policy", ["fifo", "easy", "srtf"])
def test_a_policy_that_spreads_jobs_is_found(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def spread(free: FreeGpus, shape: Shape, nodes: tuple[int, ...] = ()) -> Placement | None:
        return free.pack(shape.gpus, nodes) if free.fits(shape, nodes) else None

    monkeypatch.setattr(FreeGpus, "pack_shape", spread)
    faults = {finding.fault for number in range(40) for finding in findings_in(number, policy)}
    assert Fault.SHAPE in faults
