"""Rows of sacct without anything odd, which are most rows of an output, read without a `LogRow` for each.

An output for a year has millions of rows, and most of the time of an import goes into looking cells up by column and
checking them one by one. `PlainRows` reads a row whose cells all have their usual form, by the functions that
`slurm_jobs.parse_job` uses too. It leaves every other row to `parse_job`, so the latter alone decides what is wrong
with a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import tzinfo
from operator import itemgetter
from pathlib import Path

from polluxsim.common.tables import read_number
from polluxsim.hardware.placements import MOST_SECONDS
from polluxsim.logs.formats.base import (
    ONLY_GPUS,
    BadRowError,
    CountedResource,
    Dropped,
    JobStatus,
    LogJob,
    Place,
    RowReason,
)
from polluxsim.logs.formats.log_rows import LogRow, OpenTable, read_word, split_cells
from polluxsim.logs.formats.slurm_jobs import (
    JOB_ID,
    MAX_PRIORITY,
    REQUEST_COLUMNS,
    REQUESTS,
    STEP,
    RecurringValues,
    job_of,
    read_elapsed,
    read_status,
)
from polluxsim.logs.formats.slurm_json import ARRAY_LIMIT
from polluxsim.logs.formats.slurm_resources import (
    CPU_COLUMNS,
    MOST_VALUES,
    RESOURCE_COLUMNS,
    held_gpus,
    why_without_gpu,
)
from polluxsim.logs.formats.times import Times, read_time

NEEDED = ("State", "Submit", "Start")
"""Columns of a table that may have plain rows, beside those of the job's id and duration."""


class PlainRows:
    """The rows of one table that have nothing odd."""

    def __init__(self, path: Path, table: OpenTable, zone: tzinfo | None, units: Sequence[CountedResource]) -> None:
        """`zone` is the zone of times that state none; `units` are what counts as GPUs."""
        header = table.header
        self._path = path
        self._layout = table.layout
        self._header = header
        self._file = path.name
        self._zone = zone
        self._units = units
        self._width = len(header)
        id_column = "JobID" if "JobID" in header else "JobIDRaw"
        elapsed_column = "ElapsedRaw" if "ElapsedRaw" in header else "Elapsed"
        self._read_duration = read_number if elapsed_column == "ElapsedRaw" else read_elapsed
        # Only rows of JSON have the limit of an array, and they are read by `parse_job`.
        self._may_be_plain = {id_column, elapsed_column, *NEEDED} <= set(header) and ARRAY_LIMIT not in header
        self._job_id = self._position(id_column)
        self._name = self._position("JobName")
        self._submit = self._position("Submit")
        self._eligible = self._position("Eligible")
        self._start = self._position("Start")
        self._end = self._position("End")
        self._elapsed = self._position(elapsed_column)
        self._priority = self._position("Priority")
        self._submit_line = self._position("SubmitLine")
        recurring_columns = ["State", *RESOURCE_COLUMNS, *REQUEST_COLUMNS]
        if units != ONLY_GPUS:
            recurring_columns += CPU_COLUMNS
        self._recurring_cells = itemgetter(*map(self._position, recurring_columns))
        self._remembered = dict[str, RecurringValues | str | None]()  # by the text of the cells

    def _position(self, column: str) -> int:
        """Return the position of a column; that of the blank cell behind the row for a column that is absent."""
        if column not in self._header:
            return self._width
        return self._header.index(column)

    def entry(self, line: int, text: str) -> LogJob | Dropped | None:
        """Return the job of a line, or why it is none; None if the row is not plain."""
        # Only text beyond ASCII may hold bytes that are not UTF-8.
        if not self._may_be_plain or not text.isascii():
            return None
        cells = split_cells(text, self._layout)
        if cells is None or len(cells) != self._width:
            return None
        cells.append("")  # the cell of absent columns
        job_id = cells[self._job_id]
        # A bracket is the waiting rest of an array, which `parse_job` drops.
        if not job_id.isdecimal() and ("[" in job_id or JOB_ID.fullmatch(job_id) is None):
            is_step = job_id[:1].isdecimal() and "." in job_id
            return Dropped(Place(self._file, line), STEP) if is_step else None
        # The start goes first: a row without one is odd or never ran.
        start = read_time(cells[self._start], self._zone)
        recurring = None
        if start is not None:
            recurring = self._recurring(line, cells)
        if start is None or recurring is None:
            return None
        if isinstance(recurring, str):
            return Dropped(Place(self._file, line), recurring)
        return self._job(line, cells, recurring, start)

    def _job(self, line: int, cells: list[str], recurring: RecurringValues, start: float) -> LogJob | None:
        """Return the job of a row with GPUs and a start; None if the row is not plain."""
        submit_text = cells[self._submit]
        eligible_text = cells[self._eligible]
        end_text = cells[self._end]
        submitted = read_time(submit_text, self._zone)
        if submitted is None:
            return None
        eligible: float | None = submitted
        if eligible_text and eligible_text != submit_text:
            eligible = read_time(eligible_text, self._zone)
        end = read_time(end_text, self._zone) if end_text else None
        duration = self._read_duration(cells[self._elapsed])
        has_odd_end = end is None and end_text
        if eligible is None or has_odd_end or duration is None or not 0 < duration <= MOST_SECONDS:
            return None
        times = Times(submitted, max(submitted, eligible), start, end)
        if not times.agree(duration):
            return None
        priority_text = cells[self._priority]
        priority = read_number(priority_text) if priority_text else None
        if priority_text and (priority is None or not 0 <= priority <= MAX_PRIORITY):
            return None
        return job_of(
            Place(self._file, line),
            cells[self._job_id],
            recurring,
            times,
            duration,
            name=read_word(cells[self._name]),
            has_eligible=bool(eligible_text),
            priority=priority,
            submit_line=cells[self._submit_line],
        )

    def _recurring(self, line: int, cells: list[str]) -> RecurringValues | str | None:
        """Return what the recurring cells say: values of a job, the reason why a row is no job, or None if odd."""
        # One long text is found faster than many short ones. No cell has the delimiter in it.
        text = self._layout.delimiter.join(self._recurring_cells(cells))
        if text in self._remembered:
            return self._remembered[text]
        values = dict(zip(self._header, cells[:-1], strict=True))
        recurring = self._read_recurring(LogRow(self._path, line, values, self._zone))
        # A log whose cells are all different must not fill the memory.
        if len(self._remembered) < MOST_VALUES:
            self._remembered[text] = recurring
        return recurring

    def _read_recurring(self, row: LogRow) -> RecurringValues | str | None:
        """Return what the recurring cells of a row say, in the order in which `parse_job` checks them."""
        try:
            status: JobStatus | None = read_status(row)
            if status is None:
                return RowReason.NEVER_RAN
            gpus = held_gpus(row, self._units)
            if gpus.number == 0:
                return why_without_gpu(row, self._units)
            return RecurringValues(status, gpus, REQUESTS.of(row))
        except BadRowError:
            return None
