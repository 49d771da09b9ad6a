"""Views of policies are open only while a policy decides, and they are read-only."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from polluxsim.errors import ViewClosedError

if TYPE_CHECKING:
    from polluxsim.engine.time_rules import TimeRule


class ReadOnly:
    """Base class of views. Assigning to an attribute raises an `AttributeError`.

    The engine sets attributes of views by `set_field`. Reading an attribute is as fast as without this class.
    """

    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a view is read-only, {name} cannot be assigned; return a Decision to change a job")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a view is read-only, {name} cannot be deleted")


set_field = object.__setattr__
"""Set an attribute of a view, for the engine itself."""


class Shutter:
    """Whether the views of a run are open, and the time that they show."""

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
