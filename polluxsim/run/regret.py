"""The regret of the decisions of a run: how much the total JCT changes if another policy decides one round.

`regrets_of` is for a run in memory, `regrets_of_run` for a finished run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from numbers import Integral
from typing import NamedTuple

from polluxsim.common.errors import InvalidConfigError, short
from polluxsim.records.regret import RoundRegret, Takeover
from polluxsim.run.decision_walk import Course, Walk, course_of, num_counted
from polluxsim.run.one_round import OtherPolicy, Start, Trials, check_other


@dataclass(frozen=True)
class RegretRequest:
    """Which decisions are compared.

    Raise InvalidConfigError if a number is less than 1.
    """

    sample: int | None = None  # number of rounds, evenly spaced over the decisions; None for all
    seeds: int = 1  # repetitions of each pair of futures; the first has the random numbers of the run

    def __post_init__(self) -> None:
        for name, number in (("sample", self.sample), ("seeds", self.seeds)):
            if number is not None and not (isinstance(number, Integral) and number >= 1):
                raise InvalidConfigError(f"{name} is {short(number)}, must be a whole number of at least 1")

    def numbers(self, num_rounds: int) -> list[int]:
        """Return the numbers of the rounds that are compared, in rising order.

        >>> RegretRequest(sample=3).numbers(10)
        [1, 5, 8]
        """
        if self.sample is None or self.sample >= num_rounds:
            return list(range(num_rounds))
        return [(2 * place + 1) * num_rounds // (2 * self.sample) for place in range(self.sample)]

    def takeover_numbers(self, num_rounds: int) -> list[int]:
        """Return the numbers of the rounds at which a policy takes over, in rising order; the first is 0.

        >>> RegretRequest(sample=3).takeover_numbers(10)
        [0, 3, 6]
        """
        if self.sample is None or self.sample >= num_rounds:
            return list(range(num_rounds))
        return [place * num_rounds // self.sample for place in range(self.sample)]


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
        regretted = [(regret.regret, regret) for regret in self.rounds if regret.regret is not None]
        ordered = sorted((pair for pair in regretted if pair[0] > 0), key=lambda pair: (-pair[0], pair[1].number))
        return [regret for _, regret in ordered[:count]]


class Step(NamedTuple):
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
        V by round, in order of time.
    """

    own_policy: str
    other_policy: str
    num_rounds: int
    num_jobs: int
    total_jct: float
    takeovers: tuple[Takeover, ...]

    @property
    def steps(self) -> list[Step]:
        """Return the steps between rounds that can be compared. Their gains add up to the first V less the last."""
        comparable = [(takeover, takeover.total_jct) for takeover in self.takeovers if takeover.total_jct is not None]
        steps = []
        for (earlier, before), (later, after) in pairwise(comparable):
            steps.append(Step(earlier.number, earlier.time, later.time, before - after))
        return steps


def regrets_of(start: Start, other: OtherPolicy, request: RegretRequest | None = None, *, seed: int = 0) -> Regrets:
    """Return the regret of the decisions of a run in memory.

    Parameters
    ----------
    start
        Function that returns the run before its first decision, and its policy, each time it is called. Both are copied
        with `copy.deepcopy` at each decision.
    other
        The policy that decides one round.
    request
        Which rounds are compared; None for all.
    seed
        Seed of the random generators of the other policy.

    Raises
    ------
    InvalidConfigError
        If the other policy has a trait that the run lacks.
    PolicyError
        If the policy of the run fails. A failure of the other policy makes a round not comparable.

    Examples
    --------
    >>> from polluxsim.engine.simulation import Simulation               # doctest: +SKIP
    >>> start = lambda: (Simulation(scenario, seed=0), Las())            # doctest: +SKIP
    >>> regrets = regrets_of(start, OtherPolicy("srsf", Srsf))           # doctest: +SKIP
    >>> for round_regret in regrets.costliest(3):                        # doctest: +SKIP
    ...     print(round_regret.time, round_regret.kinds, round_regret.regret / regrets.num_jobs)
    """
    request = request or RegretRequest()
    run, policy = start()
    check_other(other, run.scenario)
    course = course_of(Walk(run, policy))
    trials = Trials(start, other, course.outcomes, seed, request.seeds)
    rounds = tuple(trials.regret(number) for number in request.numbers(len(course.times)))
    return _regrets(run.scenario.policy_name, other, course, rounds)


def _regrets(own_policy: str, other: OtherPolicy, course: Course, rounds: Sequence[RoundRegret]) -> Regrets:
    return Regrets(
        own_policy,
        other.name,
        num_rounds=len(course.times),
        num_jobs=num_counted(course.outcomes),
        total_jct=course.total_jct,
        is_drawn=course.is_drawn,
        rounds=tuple(rounds),
    )
