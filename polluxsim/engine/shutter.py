"""Whether policies may look at their views now, and what time these show."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polluxsim.errors import ViewClosedError

if TYPE_CHECKING:
    from polluxsim.engine.time_rules import TimeRule


class Shutter:
    """Says whether views may be looked at, and what time they show."""

    __slots__ = ("is_open", "rule", "time")

    def __init__(self, rule: TimeRule) -> None:
        self.rule = rule
        self.time = 0.0
        self.is_open = False

    def look(self) -> None:
        """Make sure that the views show the present.

        Raises
        ------
        ViewClosedError
            If the policy has decided already.
        """
        if not self.is_open:
            raise ViewClosedError(
                "a view was looked at after the decision that it was for; what a policy keeps it copies, a job by "
                "JobSnapshot.of(job)"
            )
