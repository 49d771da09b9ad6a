"""The errors a user can cause, one family under `PolluxSimError`, each a single clear line."""

from __future__ import annotations

from difflib import get_close_matches
from math import isfinite
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from pathlib import Path


class PolluxSimError(Exception):
    """An error that the user can correct. The message states what is wrong, the value, and what is allowed."""


class InvalidInputError(PolluxSimError):
    """A file, or a line of one, that cannot be what it should be."""


class InvalidConfigError(PolluxSimError):
    """A setting that is unknown or outside what is allowed."""


class UnknownApplicationError(InvalidInputError):
    """A workload names an application that the profiles do not have."""


class InvalidAllocationError(PolluxSimError):
    """A policy answered with an allocation that the cluster cannot carry out."""


class PolicyError(PolluxSimError):
    """A policy raised an exception."""


class MappingRuleError(PolluxSimError):
    """A mapping rule raised an exception."""


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
    """Return the end of an error about an unknown name: the most similar known name, if one is similar.

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
    """Raise an InvalidConfigError for a setting whose value is not a known word."""
    if value not in known:
        raise InvalidConfigError(f"{name} is {short(value)}, {allowed_among(value, known)}")


def bad_line(path: Path | str, line: int, what: str) -> InvalidInputError:
    """Return the error for one line of a file, counted from 1 (the header of a CSV file is line 1).

    `path` is the file as the user named it. `what` states the value found and the allowed values.
    """
    return InvalidInputError(f"{path}, line {line}: {what}")
