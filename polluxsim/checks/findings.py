"""The kinds of faults of policies, and the test that shows a fault."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from polluxsim.checks.worlds import World
    from polluxsim.errors import InvalidAllocationError


class Fault(StrEnum):
    """Kinds of faults."""

    ERROR = "it fails"
    OVER_ALLOCATION = "over-allocation"
    GANG = "a broken gang"
    ANSWER = "an answer that is none"
    HANG = "it does not decide"
    EMPTY = "an empty cluster"
    CHANCE = "chance outside rng"
    ORDER = "the order of a set"
    MEMORY = "memory of other runs"
    STARVATION = "starvation"
    STANDING = "a decision that does not stand"
    GROWTH = "decisions that become slow"
    IDLE = "idle GPUs"
    RESERVATION = "a broken reservation"
    QUOTA = "a job that waits within its quota"
    DEADLINE = "an admitted job that is late"
    MIN_REPLICAS = "fewer GPUs than a job can run on"


@dataclass(frozen=True)
class Finding:
    """A fault of a policy in a world.

    Parameters
    ----------
    fault
        Kind of the fault.
    message
        Description of the fault.
    world
        World in which it happens, or None if it needs no world.
    """

    fault: Fault
    message: str
    world: World | None = None

    @property
    def kind(self) -> tuple[Fault, str]:
        """Return the fault and its message without numbers and names, which findings with one cause share."""
        told = self.fault in (Fault.ERROR, Fault.ANSWER)
        return self.fault, re.sub(r"[\d.]+|'.*?'|\(.*\)", "", self.message) if told else ""


def of_answer(error: InvalidAllocationError) -> Finding:
    """Return the finding for an invalid answer."""
    text = str(error)
    if "over-allocated" in text:
        return Finding(Fault.OVER_ALLOCATION, text)
    if "its min_replicas is" in text:
        return Finding(Fault.MIN_REPLICAS, text)
    return Finding(Fault.GANG if "a rigid job was given" in text else Fault.ANSWER, text)


def as_test(finding: Finding, policy: str) -> str:
    """Return the code of a test that fails while the policy has the fault. `policy` is its name or file."""
    name = re.sub(r"\W+", "_", str(finding.fault))
    if finding.world is None:
        return (
            f"from polluxsim.checks import check\n\n\ndef test_{name}() -> None:\n    assert not check({policy!r}, 0)\n"
        )
    return (
        "from polluxsim.checks import World, checked_world\n"
        "from polluxsim.workloads.workload import Job\n\n\n"
        f"def test_{name}() -> None:\n"
        f"    world = {_folded(repr(finding.world))}\n"
        f"    assert not checked_world({policy!r}, world)\n"
    )


def _folded(code: str) -> str:
    """Return the code of a world with a line for each job."""
    return re.sub(r"(?<=\() ?(?=Job\()|(?<=,) (?=Job\()", "\n        ", code)
