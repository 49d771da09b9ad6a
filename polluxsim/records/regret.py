"""The regret of single decisions of a run, compared with those of another policy.

The fork of a round is the run in which the other policy decides this round, and the policy of the run all later ones. A
difference is always the run less the fork, so that a positive regret means that the other decision is better.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import fsum
from typing import NamedTuple, TypeAlias

from polluxsim.hardware.placements import JobId
from polluxsim.records.results import ReasonRecord, ReasonText

KINDS = ("start", "wait", "preempt", "move", "resize")
"""Kinds of differences, from the other policy's side.

- start: it gives GPUs to a job that waits under the policy of the run.
- wait: it lets a job wait that the policy of the run starts or rejects.
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
    # GPUs of the job after the decision of the policy of the run, and after that of the other policy. Nodes for
    # `WHOLE_CLUSTER`.
    own: int
    other: int


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
        JCT in the run less JCT in the fork, for each job whose JCT changes in a repetition [s]; a mean over all.
    reasons
        Reasons of the policy of the run, and of the other policy, for two jobs of `differences`: of those with a
        reason, the one that gains most and the one that loses most.
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
        """Return the kinds of the differences, each once, in the order of `KINDS`."""
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


@dataclass(frozen=True)
class Regrets:
    """The regret of decisions of a run. Regrets of several rounds do not add up.

    Attributes
    ----------
    own_policy, other_policy
        Names of the policy of the run, and of the policy that decides one round.
    num_rounds
        Number of rounds in which the policy of the run decided.
    num_jobs
        Number of jobs in the mean JCT of the run. A regret over this number is a change of the mean JCT.
    total_jct
        Sum of their completion times [s].
    is_drawn
        Whether the futures also differ by chance, because the policy draws random numbers or jobs fail by themselves.
    rounds
        The compared rounds, in order of time.
    """

    own_policy: str
    other_policy: str
    num_rounds: int
    num_jobs: int
    total_jct: float
    is_drawn: bool
    rounds: tuple[RoundRegret, ...]

    def costliest(self, count: int) -> list[RoundRegret]:
        """Return the rounds with the largest regrets above 0, the largest first."""
        costly = [(regret.regret, regret) for regret in self.rounds if regret.regret is not None and regret.regret > 0]
        # At equal regrets, the earlier round comes first.
        costly.sort(key=lambda pair: (-pair[0], pair[1].number))
        return [regret for _, regret in costly[:count]]


class PathStep(NamedTuple):
    """The change of the total JCT if the other policy decides until a later round, instead of an earlier one."""

    number: int  # of the earlier round
    time: float  # of the earlier round [s]
    until: float  # time of the later round, or the end of the run of the other policy [s]
    gain: float  # V(earlier) − V(later) [job-seconds]; positive if the decisions of the other policy are better


@dataclass(frozen=True)
class RegretPath:
    """The way from the run of a policy to the run of another policy, in steps that add up.

    V(k) is the total JCT if the other policy decides before round k of its own run, and the policy of the run from then
    on. V(0) is the run itself, and the last V is the run of the other policy.

    Attributes
    ----------
    num_rounds
        Number of rounds in which the other policy decides in its own run.
    num_jobs
        Number of jobs in the mean JCT of the run.
    total_jct
        Sum of their completion times in the run [s].
    takeovers
        V by round, in order of time; the last one is after all rounds.
    """

    own_policy: str
    other_policy: str
    num_rounds: int
    num_jobs: int
    total_jct: float
    takeovers: tuple[Takeover, ...]

    @property
    def steps(self) -> list[PathStep]:
        """Return the steps between rounds that can be compared. Their gains add up to the first V less the last.

        A round that cannot be compared is inside of a longer step, or before or after all steps.
        """
        comparable = [(takeover, takeover.total_jct) for takeover in self.takeovers if takeover.total_jct is not None]
        steps = []
        for (earlier, before), (later, after) in pairwise(comparable):
            steps.append(PathStep(earlier.number, earlier.time, later.time, before - after))
        return steps
