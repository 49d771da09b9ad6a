"""What a run is made of between two happenings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from polluxsim.engine.agenda import Agenda
    from polluxsim.engine.jobs import Jobs
    from polluxsim.engine.nodes import Nodes
    from polluxsim.engine.reasons import Inquiry
    from polluxsim.engine.recorder import Recorder
    from polluxsim.engine.rounds import Rounds
    from polluxsim.engine.scenario import Scenario
    from polluxsim.engine.shutter import Shutter


@dataclass(slots=True)
class State:
    """The pieces that work on one run, each with one concern, which its class tells."""

    scenario: Scenario
    agenda: Agenda
    jobs: Jobs
    nodes: Nodes
    rounds: Rounds
    inquiry: Inquiry
    records: Recorder
    shutter: Shutter
