"""The errors that a user can cause. All are subclasses of `PolluxSimError` and have a message of one line."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path


class PolluxSimError(Exception):
    """An error that the user can correct. The message states the name, the value, the requirement and the remedy."""


class InvalidInputError(PolluxSimError):
    """A file or a line of a file is invalid."""


class InvalidConfigError(PolluxSimError):
    """A setting is unknown or has an invalid value."""


class UnknownApplicationError(InvalidInputError):
    """A workload names an application without a profile."""


class InvalidAllocationError(PolluxSimError):
    """A policy returned an allocation that the cluster cannot apply."""


class OverAllocationError(InvalidAllocationError):
    """A policy gave more GPUs, CPUs or memory of a node than the node has."""


class BrokenGangError(InvalidAllocationError):
    """A policy gave a job without a profile another number of GPUs than its user requests."""


class TooFewReplicasError(InvalidAllocationError):
    """A policy gave a job fewer GPUs than the job can run on."""


class InvalidBatchSizeError(InvalidAllocationError):
    """A policy chose a batch size that a job cannot use."""


class PolicyError(PolluxSimError):
    """A policy raised an exception."""


class MappingRuleError(PolluxSimError):
    """A mapping rule raised an exception."""


class ViewClosedError(PolluxSimError):
    """A policy used its view after the decision for which the view was made."""


class TurnError(PolluxSimError):
    """A simulation was continued, or given a decision, at the wrong time."""


class SweepError(PolluxSimError):
    """A sweep is not complete. Finished runs are kept; `failed` has the error of each failed run, by its key."""

    def __init__(self, message: str, failed: Mapping[str, Exception] | None = None) -> None:
        super().__init__(message)
        self.failed = failed or {}


class NothingRanError(PolluxSimError):
    """No job of a run ever got a GPU. The results of the run are written."""


class LostProcessError(PolluxSimError):
    """The process of a run ended unexpectedly."""


MOST_LISTED = 20  # largest number of names in an error


def short(value: object) -> str:
    """Return a value for an error, on one line and at most 60 characters long."""
    text = repr(value).replace("\n", " ")
    return text if len(text) <= 60 else text[:57] + "..."


def did_you_mean(word: object, known: Iterable[str], prefix: str = "") -> str:
    """Return the end of an error about an unknown name: the most similar known name after a prefix, if any.

    >>> did_you_mean("polux", ["fifo", "pollux"])
    '; did you mean pollux?'
    """
    from difflib import get_close_matches  # noqa: PLC0415  (slow to load, and only needed for errors)

    near = get_close_matches(str(word), known, n=1)
    return f"; did you mean {prefix}{near[0]}?" if near and near[0] != word else ""


def listed(names: Iterable[str], most: int = MOST_LISTED) -> str:
    """Return at most `most` names with commas, and the number of the remaining names.

    >>> listed(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    every = list(names)
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return f"{', '.join(every[:most])}{more}"


def one_of(word: object, known: Collection[str]) -> str:
    """Return the second part of an error about an unknown name: the known names, and the most similar one.

    >>> one_of("polux", ["fifo", "pollux"])
    'one of fifo, pollux; did you mean pollux?'
    """
    return f"one of {listed(known)}{did_you_mean(word, known)}"


def allowed_among(word: object, known: Collection[str]) -> str:
    """Return the requirement of `one_of` as the end of a sentence."""
    return f"must be {one_of(word, known)}"


def invalid_setting(name: str, value: object, requirement: str, remedy: str = "") -> InvalidConfigError:
    """Return the error about a setting: its name, its value, the requirement with the reason, and the remedy.

    >>> print(invalid_setting("cluster.least_nodes", 9, "1 to 4, the nodes of the cluster", "set cluster.num_nodes=9"))
    cluster.least_nodes is 9, must be 1 to 4, the nodes of the cluster; set cluster.num_nodes=9
    """
    value_text = short(value)
    if isinstance(value, float) and float(f"{value:g}") == value:
        value_text = f"{value:g}"
    return InvalidConfigError(f"{name} is {value_text}, must be {requirement}{f'; {remedy}' if remedy else ''}")


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Raise an `InvalidInputError` about the file if the block cannot read it."""
    try:
        yield
    except OSError as error:
        raise InvalidInputError(f"{path}: cannot be read ({error.strerror})") from None


def bad_line(path: Path | str, line: int, what: str) -> InvalidInputError:
    """Return the error about a line of a file, or a row of a Parquet file, counted from 1."""
    return InvalidInputError(f"{path}, line {line}: {what}")
