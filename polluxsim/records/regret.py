"""The regret of single decisions of a run, compared with those of another policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum
from typing import NamedTuple, TypeAlias

from polluxsim.hardware.placements import JobId
from polluxsim.records.results import ReasonRecord, ReasonText

KINDS = ("start", "wait", "preempt", "move", "resize")
"""Kinds of differences, from the other policy's side.

- start: it gives GPUs to a job that waits under the policy of the run.
- wait: it lets a job wait that the policy of the run starts.
- preempt: one of the two takes all GPUs of a running job, and the other does not.
- move: it gives a job as many GPUs in other places.
- resize: it gives a job another number of GPUs, or another batch size, CPUs or restart delay on the same GPUs. Or it
  asks for another number of nodes.
"""

WHOLE_CLUSTER = ""  # in place of the name of a job: the number of nodes differs

StatedReason: TypeAlias = tuple[ReasonRecord, ReasonText]
"""A reason of a policy, and the sentence and units of its kind."""


class Difference(NamedTuple):
    """A job that two policies treat differently in a round."""

    job: JobId  # `WHOLE_CLUSTER` if the number of nodes differs
    kind: str  # one of `KINDS`


@dataclass(frozen=True)
class RoundRegret:
    """What the decision of one round cost, compared with the decision of another policy.

    Attributes
    ----------
    number
        The number of the decision in the run, from 0.
    time
        The time of the round [s].
    differences
        The jobs that the policies treat differently, in order of submission. Empty if the decisions are equal.
    values
        Total JCT of the run less total JCT of the fork, for each repetition [job-seconds]. Empty if not comparable.
    not_comparable
        Why the futures cannot be compared. Empty if they can.
    jct_changes
        JCT in the run less JCT in the fork, for each job whose JCT changes [s]; a mean over the repetitions.
    reasons
        Reasons of the policy of the run for jobs of `differences`, and of the other policy.
    """

    number: int
    time: float
    differences: tuple[Difference, ...] = ()
    values: tuple[float, ...] = ()
    not_comparable: str = ""
    jct_changes: Mapping[JobId, float] = field(default_factory=dict)
    reasons: tuple[Sequence[StatedReason], Sequence[StatedReason]] = ((), ())

    @property
    def regret(self) -> float | None:
        """Return the regret [job-seconds]; None if the futures cannot be compared.

        It is positive if the other decision is better.
        """
        if not self.values:
            return None
        return fsum(self.values) / len(self.values)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Return the kinds of the differences, each once."""
        kinds = {difference.kind for difference in self.differences}
        return tuple(kind for kind in KINDS if kind in kinds)


class Takeover(NamedTuple):
    """The end of a run in which another policy decides up to a round, and the policy of the run from then on.

    The policy of the run is then a new object, which is told of all active jobs, with the generator of its own start.
    """

    number: int  # of the round in the run of the other policy; the number of all its rounds if it decides all of them
    time: float  # of this round, or of the end of the run [s]
    total_jct: float | None  # over all counted jobs [s]; None if it cannot be compared with the run
    not_comparable: str = ""  # why
