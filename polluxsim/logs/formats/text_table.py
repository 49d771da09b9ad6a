"""Logs that are text tables: all that differs between them is a layout and a function for one row."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from polluxsim.logs.formats.base import BadRowError, Clock, Dropped, Entry, LogJob
from polluxsim.logs.formats.log_rows import Layout, LogRow, read_rows, source_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import tzinfo
    from pathlib import Path


def unknown_cluster(source: Path) -> int | None:
    """Return None: the size of the cluster is not known."""
    return None


@dataclass(frozen=True)
class TableFormat:
    """A log in a text table; a `Format`.

    Parameters
    ----------
    name, citation, caveat, clock, time_zone, extras
        As in `Format`.
    layout
        Columns and how cells are told apart.
    parse
        Makes a job of a row and the zone of its times, or says why it is none; raises `BadRowError`.
    files
        Pattern of its files' names, where the source is a folder.
    cluster_size
        Finds the GPUs of the log's cluster, or None [GPUs].
    """

    name: str
    citation: str
    layout: Layout
    parse: Callable[[LogRow, tzinfo], LogJob | Dropped]
    caveat: str = ""
    clock: Clock = Clock.RELATIVE
    time_zone: str = "UTC"
    extras: tuple[str, ...] = ()
    files: str = "*.csv"
    cluster_size: Callable[[Path], int | None] = field(default=unknown_cluster)

    def cluster_gpus(self, source: Path) -> int | None:
        """Return the GPUs of the log's cluster if known."""
        return self.cluster_size(source)

    def read(self, source: Path, zone: tzinfo) -> Iterator[Entry]:
        """Yield what each row is, file by file."""
        for path in source_files(source, self.files):
            for row in read_rows(path, self.layout):
                yield row if isinstance(row, BadRowError) else self._entry(row, zone)

    def _entry(self, row: LogRow, zone: tzinfo) -> Entry:
        if self.layout.has_header and all(cell.strip() == name for name, cell in row.values.items()):
            return row.dropped("the header again")  # dumps that were put one behind the other
        try:
            return self.parse(row, zone)
        except BadRowError as error:
            return error
