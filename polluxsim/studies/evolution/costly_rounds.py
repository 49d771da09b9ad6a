"""The costliest rounds of a program, by regret against the best reference, in sentences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack

from polluxsim.common.durations import clock
from polluxsim.common.errors import PolluxSimError
from polluxsim.engine.simulation import Simulation
from polluxsim.look.regret import costliest_rounds
from polluxsim.policies.contract.policy import Policy
from polluxsim.policies.guest.host import GuestPolicy
from polluxsim.run.one_round import OtherPolicy
from polluxsim.run.regret import RegretRequest, regrets_of
from polluxsim.studies.evolution.worlds import KNOWING, POLICY_SEED, REFERENCES, TaskWorld

SAMPLE = 6  # rounds that are compared, evenly spaced over the decisions
MOST_DECISIONS = 400  # where a program decides more often, the comparison takes long, so other worlds are preferred

MakeGuest = Callable[[list[GuestPolicy]], GuestPolicy]
"""Function that returns the program in a new process, which belongs to a family."""


def costly_rounds(world: TaskWorld, source: str, make: MakeGuest) -> str:
    """Return the costliest of some rounds of a program in a world, as lines with the regrets and reasons.

    The program is compared with the reference that has the smallest mean JCT in the world. A future begins with the
    decisions of the program until the round; the reference then decides one round. Reasons of a reference that knows
    durations are left out. If the rounds cannot be compared, the text says why.
    """
    mean_jct = world.mean_jct
    assert mean_jct is not None
    name = min(mean_jct, key=lambda reference: mean_jct[reference])
    # Each copy of the run has the program in a process of its own. The family lists them all, so that all are ended.
    family: list[GuestPolicy] = []

    def start() -> tuple[Simulation, Policy]:
        guest = make(family)
        return Simulation(world.scenario(guest, source), POLICY_SEED), guest

    with ExitStack() as stack:
        stack.callback(lambda: _close(family))
        try:
            regrets = regrets_of(start, OtherPolicy(name, REFERENCES[name]), RegretRequest(SAMPLE))
        except PolluxSimError as error:
            return f"no round was compared: {error}"
    lines = [
        f"{SAMPLE} rounds of one world were compared with the decisions of {name}. A cost is what the decision of the "
        "program costs, in seconds of mean JCT."
    ]
    for first, *reasons in costliest_rounds(regrets, clock):
        lines.append(first)
        lines += [reason for reason in reasons if not _is_secret(reason, name)]
    # The first line is the heading, so no round was costly.
    if len(lines) == 1:
        lines.append("In no compared round is the decision of the reference better.")
    return "\n".join(lines)


def _is_secret(reason: str, reference: str) -> bool:
    """Return whether a sentence is a reason of a reference that knows durations, and so may state a duration."""
    return reference in KNOWING and reason.startswith(f"{reference} on ")


def _close(family: Sequence[GuestPolicy]) -> None:
    """End the processes of a family."""
    for guest in family:
        guest.close()
