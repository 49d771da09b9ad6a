"""When policies may look at their views, and what time the views show; views are read-only."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from polluxsim.errors import ViewClosedError

if TYPE_CHECKING:
    from polluxsim.engine.time_rules import TimeRule


class ReadOnly:
    """Base of views: whoever assigns to an attribute of one gets an error.

    The engine sets attributes of views by `set_field`. Reading an attribute is as fast as without this class.
    """

    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(
            f"a view is read-only, {name} cannot be assigned; a policy changes jobs by what it returns"
        )

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a view is read-only, {name} cannot be deleted")


set_field = object.__setattr__
"""Set an attribute of a view, for the engine itself."""


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
