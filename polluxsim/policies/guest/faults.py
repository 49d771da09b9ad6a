"""Faults of programs, and the limits that they must keep."""

from __future__ import annotations

from dataclasses import dataclass

from polluxsim.common.errors import PolicyError

GIB = 2**30


class ProgramError(PolicyError):
    """A program is refused, fails, gives an invalid answer, or exceeds a limit.

    The message names the line of the program where it is known, or the limit.
    """


class RefusedProgramError(ProgramError):
    """The source of a program contains what no program may contain."""


class LateProgramError(ProgramError):
    """A program exceeds a limit of time."""


@dataclass(frozen=True)
class ProcessLimits:
    """What the process of a program may use."""

    decision: float = 1.0  # longest time of a decision [s]
    start: float = 20.0  # longest time from the start of the process to its first answer [s]
    memory: int = GIB  # largest memory [bytes]

    @property
    def memory_in_words(self) -> str:
        """Return the largest memory, like "1 GiB"."""
        return f"{self.memory / GIB:g} GiB"
