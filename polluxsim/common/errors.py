"""The errors that a user can cause. All are subclasses of `PolluxSimError` and have a message of one line."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path


class PolluxSimError(Exception):
    """An error that the user can correct. The message states the name, the value, the requirement and the remedy."""


class InvalidInputError(PolluxSimError):
    """An input is invalid: a file or one of its lines, or a name or a time that a run does not have."""


class InvalidConfigError(PolluxSimError):
    """A setting is unknown or has an invalid value."""


class UnknownApplicationError(InvalidInputError):
    """A workload names an application without a profile."""


class InvalidAllocationError(PolluxSimError):
    """A policy returned a decision that cannot be applied."""


class OverAllocationError(InvalidAllocationError):
    """A policy gave more GPUs, CPUs or memory of a node than the node has."""


class BrokenGangError(InvalidAllocationError):
    """A policy gave a job another number of GPUs than the only one on which it can run."""


class TooFewReplicasError(InvalidAllocationError):
    """A policy gave a job fewer GPUs than the job can run on."""


class InvalidBatchSizeError(InvalidAllocationError):
    """A policy chose a batch size that a job cannot use."""


class PolicyError(PolluxSimError):
    """A policy raised an exception, took too long, or states something invalid about itself."""


class MappingRuleError(PolluxSimError):
    """A mapping rule raised an exception."""


class ViewClosedError(PolluxSimError):
    """A policy used its view after the decision for which the view was made."""


class TurnError(PolluxSimError):
    """A simulation was continued, or given a decision, at the wrong time."""


class SweepError(PolluxSimError):
    """A sweep is not complete. The finished runs are stored; `failed` has the error of each failed run, by its key."""

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
    text = repr(value).replace("\n", " ")  # an array of NumPy has several lines
    return text if len(text) <= 60 else text[:57] + "..."


def did_you_mean(word: object, known: Iterable[str], prefix: str = "") -> str:
    """Return the end of an error about an unknown name: the most similar known name after a prefix, if any.

    >>> did_you_mean("polux", ["fifo", "pollux"])
    '; did you mean pollux?'
    """
    from difflib import get_close_matches  # noqa: PLC0415  (slow to load, and only needed for errors)

    near = get_close_matches(str(word), known, n=1)
    # A name that is known, but not allowed here, is no advice.
    if not near or near[0] == word:
        return ""
    return f"; did you mean {prefix}{near[0]}?"


def listed(names: Iterable[str], most: int = MOST_LISTED) -> str:
    """Return at most `most` names with commas, and the number of the remaining names.

    >>> listed(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    all_names = list(names)
    text = ", ".join(all_names[:most])
    if len(all_names) > most:
        text += f" and {len(all_names) - most} more"
    return text


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
    # As a user writes it: 9 and not 9.0. But a longer number must keep its digits.
    if isinstance(value, float) and float(f"{value:g}") == value:
        value_text = f"{value:g}"
    message = f"{name} is {value_text}, must be {requirement}"
    if remedy:
        message += f"; {remedy}"
    return InvalidConfigError(message)


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
