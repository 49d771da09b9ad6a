"""The errors a user can cause, one family under `PolluxSimError`, each a single clear line."""

from __future__ import annotations

from difflib import get_close_matches
from math import isfinite
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from pathlib import Path


class PolluxSimError(Exception):
    """Anything a user can put right: the message says what, the value, and what is allowed."""


class InvalidInputError(PolluxSimError):
    """A file, or a line of one, that cannot be what it should be."""


class InvalidConfigError(PolluxSimError):
    """A setting that is unknown or outside what is allowed."""


class UnknownApplicationError(InvalidInputError):
    """A workload names an application that the profiles do not have."""


class InvalidAllocationError(PolluxSimError):
    """A policy answered with an allocation that the cluster cannot carry out."""


class PolicyError(PolluxSimError):
    """A policy raised an error of its own."""


class MappingRuleError(PolluxSimError):
    """A mapping rule raised an error of its own."""


class ViewClosedError(PolluxSimError):
    """A policy's view was looked at after the decision that it was for."""


class TurnError(PolluxSimError):
    """A simulation was asked to go on, or told a decision, when it was not the time for it."""


class SweepError(PolluxSimError):
    """A sweep is not complete; the runs that are finished are kept.

    Parameters
    ----------
    message
        What went wrong.
    failed
        Error of each run that failed, by the run's key.
    """

    def __init__(self, message: str, failed: Mapping[str, Exception] | None = None) -> None:
        super().__init__(message)
        self.failed = failed or {}


class LostProcessError(PolluxSimError):
    """The process that made a run ended by itself."""


MOST_LISTED = 20
"""Names that an error lists at most."""


def short(value: object) -> str:
    """Return a value as an error shows it, of 60 characters at most."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """Return the end of an error about an unknown name: what it may have been meant to be, if that is near.

    >>> did_you_mean("polux", ["fifo", "pollux"])
    '; did you mean pollux?'
    """
    near = get_close_matches(str(word), known, n=1)
    return f"; did you mean {near[0]}?" if near and near[0] != word else ""


def listed(names: Iterable[str], most: int = MOST_LISTED) -> str:
    """Return names with commas, at most `most` of them, and the number of the rest.

    >>> listed(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    every = list(names)
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return f"{', '.join(every[:most])}{more}"


def allowed_among(word: object, known: Collection[str]) -> str:
    """Return the end of an error about an unknown name: the known names, and the nearest of them."""
    return f"allowed are {listed(known)}{did_you_mean(word, known)}"


def check_number(name: str, value: float, holds: bool, allowed: str) -> None:
    """Raise an InvalidConfigError for a setting that is not finite, or of which what is allowed does not hold."""
    if not (isfinite(value) and holds):
        raise InvalidConfigError(f"{name} is {value:g}, allowed is {allowed}")


def check_choice(name: str, value: object, known: Collection[str]) -> None:
    """Raise an InvalidConfigError for a setting that is none of the known words."""
    if value not in known:
        raise InvalidConfigError(f"{name} is {short(value)}, {allowed_among(value, known)}")


def bad_line(path: Path | str, line: int, what: str) -> InvalidInputError:
    """Return the error for one line of a file, counted from 1 (the header of a CSV file is line 1).

    `path` is as the user named it, `what` the value found and what is allowed.
    """
    return InvalidInputError(f"{path}, line {line}: {what}")
