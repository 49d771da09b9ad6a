"""An agent, trained or not, as a policy like any other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from polluxsim.gym.layout import Layout
from polluxsim.gym.turn import Turn

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from polluxsim.gym.layout import Observation
    from polluxsim.policies.view import ClusterView, Decision


class Agent(Protocol):
    """Chooses an action."""

    def __call__(self, observation: Observation, mask: NDArray[np.int8]) -> int:
        """Return one of the actions that the mask allows, by what is seen."""


@dataclass(frozen=True)
class AgentPolicy:
    """Starts the jobs that an agent picks, for `simulate`, `sweep` and `compare`."""

    agent: Agent
    layout: Layout = field(default_factory=Layout)

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Let the agent pick until it stops, or nothing is left that could start; it is asked when there is news."""
        turn = Turn(self.layout, view)
        is_due = turn.is_news or not view.running
        while is_due and turn.can_pick and turn.pick(self.agent(turn.observation, turn.mask)):
            pass
        return turn.decision()
