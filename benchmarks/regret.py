"""Compare decisions of shipped policies in drawn worlds, and check the regrets.

    python benchmarks/regret.py [--worlds 300] [--pairs 2] [--own 3] [--first 0]

In each world, another drawn policy decides each round of the run of a drawn policy, for some pairs of policies. Nodes
fail in some worlds, jobs fail by themselves in others, and some worlds have several GPU types. Each round has a value
or a stated reason, and nodes fail at the same times in the run and in its forks. `--own` compares each shipped policy
with itself in some worlds: all regrets are 0, and a fork with its own decision has the same records. The exit status is
1 if a check fails.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import cache
from math import isfinite
from random import Random
from time import process_time

from check_worlds import SHIPPED

from polluxsim.checks.checking import made
from polluxsim.checks.driving import start_run
from polluxsim.checks.parameters import with_parameters
from polluxsim.checks.random_worlds import Allowed, random_world
from polluxsim.checks.worlds import World
from polluxsim.common.errors import PolluxSimError
from polluxsim.engine.simulation import Simulation, run_to_end
from polluxsim.policies.contract.policy import Policy, traits_of
from polluxsim.records.regret import RoundRegret
from polluxsim.records.results import Result
from polluxsim.run.decision_walk import Outcomes, Walk, course_of
from polluxsim.run.named_policies import NamedPolicy, named_policy
from polluxsim.run.one_round import OtherPolicy, RoundTrials, Start, check_other

SEED = 1  # of the other policy's draws
WALL_CLOCK = "timing_records"  # records that differ between equal runs


@cache
def shipped(name: str) -> NamedPolicy:
    """Return a shipped policy."""
    return named_policy(name)


def world_for(number: int, *policies: str) -> World:
    """Return the drawn world with a number, in which all policies can run; the first one has drawn parameters."""
    limits = [Allowed.under(traits_of(shipped(name).make())) for name in policies]
    allowed = Allowed(*(all(getattr(one, name) for one in limits) for name in ("rigid", "types", "scaled")))
    return with_parameters(random_world(number, allowed), shipped(policies[0]), number)


def start_of(world: World, policy: str) -> Start:
    """Return the start of the run of a policy in a world."""

    def start() -> tuple[Simulation, Policy]:
        own = made(shipped(policy), world)
        return start_run(world, own), own

    return start


class WatchedTrials(RoundTrials):
    """Trials that keep the results of all futures."""

    def __init__(self, start: Start, other: OtherPolicy, outcomes: Outcomes) -> None:
        super().__init__(start, other, outcomes, SEED)
        self.results: list[Result] = []

    def finish(self, run: Simulation, policy: Policy) -> Outcomes:
        """Simulate a future to its end, and keep its result."""
        outcomes = super().finish(run, policy)
        self.results.append(run.result())
        return outcomes


def outages(result: Result, end: float) -> list[tuple[float, int, str]]:
    """Return the start, node and kind of the outages that begin before a time [s]."""
    return [(record.time, record.node, record.kind) for record in result.outage_records if record.time < end]


def faults_of_pair(number: int, own: str, other: str) -> tuple[list[str], Counter[str]]:
    """Return what is wrong with the regrets of a policy in a world, and how often rounds have a value or a reason."""
    world = world_for(number, own, other)
    start = start_of(world, own)
    second = OtherPolicy(other, lambda: made(shipped(other), replace(world, parameters=())))
    counts = Counter[str]()
    run, policy = start()
    try:
        check_other(second, run.scenario)
    except PolluxSimError:
        return [], Counter({"refused pairs": 1})
    walk = Walk(run, policy)
    try:
        course = course_of(walk)
    except PolluxSimError:  # the policy itself fails in this world
        return [], Counter({"runs that fail": 1})
    whole = run.result()
    trials = WatchedTrials(start, second, course.outcomes)
    faults = []
    for decision in range(len(course.times)):
        regret = trials.regret(decision)
        faults += [f"{fault} at {regret.time:g} s" for fault in faults_of_round(regret)]
        counts[_state(regret)] += 1
    for result in trials.results:
        end = min(result.end_time, whole.end_time)
        if outages(result, end) != outages(whole, end):
            faults.append("nodes fail at other times in a fork")
    return faults, counts


def faults_of_round(regret: RoundRegret) -> Iterator[str]:
    """Yield what is wrong with the regret of a round."""
    if bool(regret.values) == bool(regret.not_comparable):
        yield "a round has no value and no reason, or both"
    if not regret.differences and any(regret.values):
        yield f"equal decisions have a regret of {regret.values}"
    if not all(map(isfinite, regret.values)):
        yield f"a regret is {regret.values}"


def _state(regret: RoundRegret) -> str:
    if regret.not_comparable:
        return "not comparable"
    return "different decisions" if regret.differences else "equal decisions"


def faults_of_own(number: int, name: str) -> list[str]:
    """Return what is wrong with the regrets of a policy against itself in a world, and with forks that it decides."""
    world = world_for(number, name)
    start = start_of(world, name)
    whole = run_to_end(*start())
    course = course_of(Walk(*start()))
    trials = RoundTrials(
        start, OtherPolicy(name, lambda: made(shipped(name), world), is_own=True), course.outcomes, SEED
    )
    faults = []
    for decision in range(len(course.times)):
        regret = trials.regret(decision)
        if regret.differences or regret.values != (0.0,):
            faults.append(f"decision {decision} differs from itself: {regret.differences}, {regret.values}")
    for decision in {0, len(course.times) // 3, len(course.times) - 1}:
        if forced_again(start, decision) != replace(whole, timing_records=()):
            faults.append(f"a fork with the own decision {decision} has other records")
    return faults


def forced_again(start: Start, number: int) -> Result:
    """Return the result of a run in which a copy of the policy makes a decision in a fork, without wall-clock times."""
    run, policy = start()
    view = run.advance()
    for _ in range(number):
        assert view is not None
        run.commit(run.ask(policy, view))
        view = run.advance()
    assert view is not None
    other_run, other = deepcopy((run, policy))
    run.ask(policy, view)  # its answer is dropped
    fork, own = deepcopy((run, policy))
    assert other_run.view is not None
    fork.commit(other_run.ask(other, other_run.view))
    return replace(run_to_end(fork, own), timing_records=())


def check_pairs(numbers: Sequence[int], pairs: int) -> int:
    """Compare decisions in worlds, and return the number of faults."""
    counts = Counter[str]()
    wrong = 0
    for number in numbers:
        rng = Random(number)
        for _ in range(pairs):
            own, other = rng.sample(SHIPPED, 2)
            faults, of_pair = faults_of_pair(number, own, other)
            counts += of_pair
            wrong += len(faults)
            for fault in faults:
                print(f"world {number}, {own} with {other}: {fault}", flush=True)
    text = ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items()))
    print(f"{len(numbers)} worlds, {pairs} pairs of policies each: {text}; {wrong} faults")
    return wrong


def check_own(numbers: Sequence[int]) -> int:
    """Compare each shipped policy with itself in worlds, and return the number of faults."""
    wrong = 0
    skipped = 0
    for name in SHIPPED:
        for number in numbers:
            try:
                faults = faults_of_own(number, name)
            except PolluxSimError:  # the policy fails in this world
                skipped += 1
                continue
            wrong += len(faults)
            for fault in faults:
                print(f"world {number}, {name}: {fault}", flush=True)
    print(f"{len(SHIPPED)} policies against themselves in {len(numbers)} worlds each: {wrong} faults, {skipped} fail")
    return wrong


def main() -> None:
    """Compare, and exit with 1 if a check fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", type=int, default=300, metavar="N")
    parser.add_argument("--pairs", type=int, default=2, metavar="N", help="pairs of policies in each world")
    parser.add_argument("--own", type=int, default=3, metavar="N", help="worlds for each policy against itself")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="number of the first world")
    options = parser.parse_args()
    started = process_time()
    wrong = check_pairs(range(options.first, options.first + options.worlds), options.pairs)
    wrong += check_own(range(options.first, options.first + options.own))
    print(f"{process_time() - started:.0f} s of CPU")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
