"""What is wrong with the import of a log: the error that ends it, and the reasons for rows that are no jobs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from polluxsim.common.errors import InvalidInputError
from polluxsim.logs.formats.base import GPU
from polluxsim.logs.import_report import ImportReport, Tally
from polluxsim.logs.importing import import_trace


@dataclass(frozen=True)
class Reading:
    """How a log is imported: the options of `polluxsim log import`."""

    format: str  # name of the format
    time_zone: str | None = None
    columns: str = ""
    unit: str = GPU

    def imported(self, log: Path, *, skip_bad: bool) -> ImportReport:
        """Import a log and return the report.

        Raise InvalidInputError if the import ends with an error, and InvalidConfigError if an option is invalid.
        """
        with TemporaryDirectory() as folder:
            return import_trace(
                self.format,
                log,
                Path(folder) / "log.parquet",
                skip_bad=skip_bad,
                time_zone=self.time_zone,
                columns=self.columns,
                unit=self.unit,
            )


class ImportFault(NamedTuple):
    """What is wrong with an import. `is_same` compares `error` and `reasons` only."""

    error: str  # class and reason of the error that ends the import, without places and values; empty if it succeeds
    reasons: frozenset[str]  # reasons for bad rows, dropped rows and suspicious values
    message: str  # of the error, with places and values; empty if the import succeeds
    lines: frozenset[int]  # lines of the log of which the import says something

    def is_same(self, other: ImportFault) -> bool:
        """Return whether another import has the same error and the same reasons."""
        return self.error == other.error and self.reasons == other.reasons

    def renamed(self, rename: Callable[[str], str]) -> ImportFault:
        """Return the fault with other names in its reasons, because some name a resource of the log."""
        # Only the parts that `is_same` compares.
        return self._replace(error=rename(self.error), reasons=frozenset(map(rename, self.reasons)))

    def __str__(self) -> str:
        parts = []
        if self.message:
            parts.append(f"refused: {self.message}")
        else:
            parts.append("imported")
        parts += sorted(self.reasons)
        return "; ".join(parts)

    @property
    def is_none(self) -> bool:
        """Return whether the import has no error and no reason."""
        return not self.error and not self.reasons


def fault_of(log: Path, reading: Reading) -> ImportFault:
    """Return the fault of the import of a log. Raise InvalidConfigError if the reading is invalid."""
    try:
        report = reading.imported(log, skip_bad=False)
    except InvalidInputError as error:
        message = _without(log, str(error))
        reason = f"{type(error).__name__}: {_reason_in(message)}"
        # A second import, which skips bad rows, finds what stands behind the first one.
        rest = _rest_of(log, reading, message)
        return ImportFault(reason, rest.reasons, message, rest.lines | _lines_in(message))
    return _of_report(report)


def _rest_of(log: Path, reading: Reading, message: str) -> ImportFault:
    """Return what an import that skips bad rows says about a log that was refused with `message`.

    This is its report; if it ends with another error, the reason in that error; else nothing.
    """
    try:
        return _of_report(reading.imported(log, skip_bad=True))
    except InvalidInputError as error:
        other_message = _without(log, str(error))
    if other_message == message:
        return ImportFault("", frozenset(), "", frozenset())
    return ImportFault("", frozenset([_reason_in(other_message)]), "", _lines_in(other_message))


def _of_report(report: ImportReport) -> ImportFault:
    """Return the fault of an import that succeeded, from its report."""
    kinds: dict[str, Iterable[Tally]] = {
        "bad row": report.bad,
        "dropped": report.dropped,
        "suspicious": report.suspicious,
    }
    reasons = set[str]()
    lines = set[int]()
    for kind, tallies in kinds.items():
        for tally in tallies:
            reasons.add(f"{kind}: {tally.reason}")
            lines |= {place.line for place in tally.places}
    if any(item.unknown for item in report.gpu_types):
        reasons.add("a GPU type without known figures")
    return ImportFault("", frozenset(reasons), "", frozenset(lines))


def _without(log: Path, message: str) -> str:
    """Return a message without the path of the log, because a copy in another folder must have the same fault."""
    return message.replace(f"{log}, ", "").replace(f"{log}: ", "").replace(str(log), "the log")


_LINE = re.compile(r"\bline (\d+)")

_VALUES = re.compile(r"^line \d+: |(?:; )?found (?:'[^']*'|\"[^\"]*\"|\S+)|; it has .*?(?=, whose|; 'polluxsim|$)")
"""Places and values of the input in a message."""


def _lines_in(message: str) -> frozenset[int]:
    return frozenset(int(number) for number in _LINE.findall(message))


def _reason_in(message: str) -> str:
    """Return the reason that a message states, without places, values and numbers of rows."""
    reason = _VALUES.sub("", message)
    reason = re.sub(r"in \d+ rows", "in all rows", reason)
    # An extract has fewer rows and other counts, and may list the reasons in another order.
    start, colon, counts = reason.partition("in all rows: ")
    parts = sorted(re.sub(r"^\d+ × ", "", part) for part in counts.split("; "))
    return start + colon + "; ".join(parts)
