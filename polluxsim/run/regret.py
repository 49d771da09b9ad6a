"""The regret of the decisions of a run: how much the total JCT changes if another policy decides one round.

`regrets_of` is for a run in memory, and `regret_of_runs.regrets_of_run` for a finished run. Both decide single rounds
with `one_round`, which says what a fork has in common with the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral

from polluxsim.common.errors import InvalidConfigError, short
from polluxsim.records.regret import Regrets, RoundRegret
from polluxsim.run.decision_walk import RunOutcome, Walk, course_of, num_counted
from polluxsim.run.one_round import OtherPolicy, RoundTrials, Start, check_other


@dataclass(frozen=True)
class RegretRequest:
    """Which decisions are compared.

    Raise InvalidConfigError if a number is less than 1.
    """

    sample: int | None = None  # number of rounds, evenly spaced over the decisions; None for all
    seeds: int = 1  # repetitions of each pair of futures; the first has the random numbers of the run

    def __post_init__(self) -> None:
        for name, number in (("sample", self.sample), ("seeds", self.seeds)):
            # A number of NumPy is an Integral, but no int.
            if number is not None and not (isinstance(number, Integral) and number >= 1):
                raise InvalidConfigError(f"{name} is {short(number)}, must be a whole number of at least 1")

    def numbers(self, num_rounds: int) -> list[int]:
        """Return the numbers of the rounds that are compared, in rising order: all, or the middles of equal stretches.

        >>> RegretRequest(sample=3).numbers(10)
        [1, 5, 8]
        """
        if self.sample is None or self.sample >= num_rounds:
            return list(range(num_rounds))
        numbers = []
        for place in range(self.sample):
            # The middle is place + ½ stretches from the start; whole numbers have no rounding errors.
            numbers.append((2 * place + 1) * num_rounds // (2 * self.sample))
        return numbers

    def takeover_numbers(self, num_rounds: int) -> list[int]:
        """Return the numbers of the rounds at which a policy takes over, in rising order.

        They are the starts of equal stretches. The first is 0, because a path begins with the run itself.

        >>> RegretRequest(sample=3).takeover_numbers(10)
        [0, 3, 6]
        """
        if self.sample is None or self.sample >= num_rounds:
            return list(range(num_rounds))
        return [place * num_rounds // self.sample for place in range(self.sample)]


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
        Which rounds are compared; None for all, without repetitions.
    seed
        Seed of the random generators of the other policy.

    Raises
    ------
    InvalidConfigError
        If the other policy has a trait that the run lacks.
    InvalidInputError
        If the other policy cannot schedule the jobs.
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
    # The run is simulated once to its end, for the number of its rounds and the ends of its jobs.
    course = course_of(Walk(run, policy))
    trials = RoundTrials(start, other, course.outcomes, seed, request.seeds)
    rounds = tuple(trials.regret(number) for number in request.numbers(len(course.times)))
    return _regrets(run.scenario.policy_name, other, course, rounds)


def _regrets(own_policy: str, other: OtherPolicy, course: RunOutcome, rounds: Sequence[RoundRegret]) -> Regrets:
    """Return the regrets of rounds with facts about the run."""
    return Regrets(
        own_policy,
        other.name,
        num_rounds=len(course.times),
        num_jobs=num_counted(course.outcomes),
        total_jct=course.total_jct,
        is_drawn=course.is_drawn,
        rounds=tuple(rounds),
    )
