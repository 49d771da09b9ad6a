"""The agreement of a policy with a record: decisions, quiet seconds and disagreements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from polluxsim.common.durations import length
from polluxsim.studies.decisions.orders import Decider, agrees, nearest
from polluxsim.studies.decisions.record import Record, RecordedJob, Second, Started, seconds_of


class Disagreement(NamedTuple):
    """A second in which no order gives the recorded starts."""

    time: float  # [s]
    recorded: frozenset[Started]
    starts: frozenset[Started]  # of the policy, in the order that is nearest to the record
    of_record: Mapping[str, str]  # what the record states about jobs, in words
    of_policy: Mapping[str, str]  # why the policy starts a job or not, in words

    @property
    def jobs(self) -> list[str]:
        """Return the jobs about which the two sides differ, by name."""
        return sorted({start.job for start in self.recorded ^ self.starts})


@dataclass
class DecisionAgreement:
    """How many decisions of a record a policy would have made."""

    decisions: int = 0
    agreeing_decisions: int = 0
    quiet: int = 0  # quiet seconds that are judged
    agreeing_quiet: int = 0
    unjudged_quiet: int = 0
    disagreements: list[Disagreement] = field(default_factory=list)
    wrong_quiet: list[Disagreement] = field(default_factory=list)

    @property
    def share(self) -> float:
        """Return the share of the decisions that agree [1]; 1 without decisions."""
        if not self.decisions:
            return 1.0
        return self.agreeing_decisions / self.decisions

    @property
    def rank(self) -> tuple[int, int]:
        """Return a key that is larger for a better agreement: decisions first, then quiet seconds."""
        return self.agreeing_decisions, self.agreeing_quiet


def agreement(
    record: Record, decider: Decider, *, most_wrong: float = inf, tells_reasons: bool = True
) -> DecisionAgreement:
    """Return the agreement of a policy with a record, each second of which starts from the recorded state.

    Parameters
    ----------
    most_wrong
        Largest number of disagreements about decisions; the comparison ends with the next one, because other policies
        agree better.
    tells_reasons
        Whether disagreements have the nearest order and reasons, which takes longer.
    """
    result = DecisionAgreement()
    for second in seconds_of(record):
        # No start in a second proves nothing if perhaps no scheduler ran in it.
        if not second.is_decision and not decider.judges_quiet:
            result.unjudged_quiet += 1
            continue
        is_right = agrees(second, decider)
        if second.is_decision:
            result.decisions += 1
            result.agreeing_decisions += is_right
        else:
            result.quiet += 1
            result.agreeing_quiet += is_right
        if is_right:
            continue
        wrong = result.disagreements if second.is_decision else result.wrong_quiet
        wrong.append(_disagreement(second, decider, tells_reasons))
        if len(result.disagreements) > most_wrong:
            break
    return result


def _disagreement(second: Second, decider: Decider, tells_reasons: bool) -> Disagreement:
    """Return the disagreement about a second, with the order of its events in which the policy is nearest."""
    if not tells_reasons:
        return Disagreement(second.second, second.started, frozenset(), {}, {})
    attempt = nearest(second, decider)
    reasons = decider.reasons(attempt.moment, attempt.scheduler)
    facts = {}
    for job in [*second.pending, *second.submitted]:
        facts[job.name] = _facts(job, second)
    return Disagreement(second.second, second.started, attempt.starts, facts, reasons)


def _facts(job: RecordedJob, second: Second) -> str:
    """Return what the record states about a job that waits in a second."""
    waited = second.second - job.submitted
    place = 1 + sum(other.position < job.position for other in (*second.pending, *second.submitted))
    request = f"it asks for {job.gpus} GPU{'s' * (job.gpus != 1)} for {length(job.limit)}"
    wait = f"it has waited {length(waited)}, as number {place} of the queue"
    if job.start == second.second:
        return f"starts it; {request}, and {wait}"
    return f"starts it {length(job.start - second.second)} later; {request}, and {wait}"
