"""Cluster logs that can be read, one file per format, by name.

To add a format:

1. Put a file beside this one. If its logs are text tables with a line for each job, all it needs is a
   function `_parse(row)` that returns a `LogJob`, or `row.dropped("why it is no job with GPUs")`.
2. Read cells with `row.name`, `row.seconds`, `row.gpus`, `row.time`, `row.count`, `row.one_of`: they raise
   the error that names file, line, value and what is allowed. `row.word` is for text that may be blank.
3. Give it as `MINE = TableFormat(name=..., citation=..., layout=Layout(columns), parse=_parse, clock=...)`.
4. Columns beyond the core ones: name them in `extras`, in the order of `LogJob.extras`, and give each a type,
   a unit and a meaning in `EXTRA_COLUMNS` of `polluxsim.logs.schema`.
5. Put what is readable but strange into `LogJob.oddities`, a constant text per kind: the report counts them.
6. Add the instance to `FORMATS` below. A log that is no text table is a subclass of `Format`
   (`philly_raw.py`).
7. Put a small sample into tests/logs/fixtures and a line into `SAMPLES` of tests/logs/log_samples.py: the
   tests that all formats share (strictness, counting, fuzzing) then run on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from polluxsim.errors import InvalidConfigError
from polluxsim.logs.formats.acme import KALOS, SEREN
from polluxsim.logs.formats.alibaba import OPENB2023, PAI2020
from polluxsim.logs.formats.base import BadRowError, Clock, Dropped, Entry, Format, JobStatus, LogJob, Place
from polluxsim.logs.formats.helios import HELIOS
from polluxsim.logs.formats.itp import ITP
from polluxsim.logs.formats.joblists import GAVEL, SIA, TIRESIAS
from polluxsim.logs.formats.philly import PHILLY
from polluxsim.logs.formats.philly_raw import PHILLY_RAW
from polluxsim.logs.formats.slurm import SLURM

if TYPE_CHECKING:
    from collections.abc import Mapping

_ALL: tuple[Format, ...] = (
    PHILLY_RAW, PHILLY, ITP, HELIOS, SEREN, KALOS, PAI2020, OPENB2023, SIA, GAVEL, TIRESIAS, SLURM,
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
