"""Formats of cluster logs by name, one module for each family of formats.

To add a format:

1. Add a module here, or extend the module of its family. A text table with one line for each job needs only a
   function `_parse(row)` that returns a `LogJob`, or `row.dropped("why this row is not a job with GPUs")`.
2. Read cells with `row.name`, `row.seconds`, `row.gpus`, `row.time`, `row.count`, `row.one_of`. They raise an error
   with the file, the line, the value and what is allowed. `row.word` reads text that may be blank.
3. Define `MINE = TableFormat(name=..., citation=..., layout=Layout(columns), parse=_parse, clock=...)`. A JSON file
   with a list of objects is a `JsonFormat` with a function for one `JsonRow` (`kubernetes.py`, `philly_raw.py`).
4. Name further columns in `extras`, in the order of `LogJob.extras`. Give each a type, a unit and a meaning in
   `EXTRA_COLUMNS` of `polluxsim.logs.trace_table`.
5. Put readable but strange values into `LogJob.oddities`, with one constant text for each kind. The report counts them.
6. Add the instance to `FORMATS` below. A log of another kind is a subclass of `Format`.
7. Add a small sample to tests/logs/fixtures and a line to `SAMPLES` of tests/logs/log_samples.py. The tests that all
   formats share (strictness, counting, fuzzing) then run on it. Add a kind of mutant to tests/test_mutants.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from polluxsim.common.errors import InvalidConfigError
from polluxsim.logs.formats.alibaba import OPENB2023, PAI2020
from polluxsim.logs.formats.base import BadRowError, Clock, Dropped, Entry, Format, JobStatus, LogJob, Place
from polluxsim.logs.formats.job_lists import GAVEL, SIA, TIRESIAS
from polluxsim.logs.formats.kubernetes import KUEUE, VOLCANO
from polluxsim.logs.formats.philly import PHILLY, PHILLY_RAW
from polluxsim.logs.formats.published import HELIOS, ITP, KALOS, SEREN
from polluxsim.logs.formats.slurm import SLURM
from polluxsim.logs.formats.table import TABLE

if TYPE_CHECKING:
    from collections.abc import Mapping

_ALL: tuple[Format, ...] = (
    PHILLY_RAW, PHILLY, ITP, HELIOS, SEREN, KALOS, PAI2020, OPENB2023, SIA, GAVEL, TIRESIAS, SLURM, KUEUE,
    VOLCANO, TABLE,
)  # fmt: skip

FORMATS: Mapping[str, Format] = {trace_format.name: trace_format for trace_format in _ALL}
"""Every format by the name a user gives."""

__all__ = [
    "FORMATS", "BadRowError", "Clock", "Dropped", "Entry", "Format", "JobStatus", "LogJob", "Place",
    "find_format",
]  # fmt: skip


def find_format(name: str) -> Format:
    """Return the format of that name.

    Raises
    ------
    InvalidConfigError
        If there is none.
    """
    if name not in FORMATS:
        raise InvalidConfigError(f"format {name!r} is not known, allowed are {', '.join(FORMATS)}")
    return FORMATS[name]
