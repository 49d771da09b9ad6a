"""Job lists that other simulators of deep-learning clusters read: Sia, Gavel and Tiresias."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from polluxsim.hardware.placements import MOST_SECONDS
from polluxsim.logs.formats.base import Dropped, LogJob, source_files
from polluxsim.logs.formats.log_rows import LogRow, TableFormat, TableLayout, read_rows

NO_DURATION = "a job's length is work, not time: durations are empty and the offered load is not known"

GAVEL_COLUMNS = (
    "job_type", "command", "working_directory", "num_steps_arg", "needs_data_dir", "total_steps",
    "scale_factor", "priority_weight", "slo", "arrival_time",
)  # fmt: skip

OLDER_GAVEL_COLUMNS = (
    "job_type", "command", "num_steps_arg", "needs_data_dir", "total_steps", "arrival_time", "scale_factor",
)  # fmt: skip
"""Columns of the first lists in Gavel's repository (scheduler/traces/msr)."""

SHOCKWAVE_COLUMNS = (*GAVEL_COLUMNS[:7], "mode", "priority_weight", "slo", "duration", "arrival_time")


def _parse_sia(row: LogRow) -> LogJob | Dropped:
    """Return the job of a row, without a duration, because the list states work only."""
    num_gpus = row.count("num_replicas")
    if num_gpus == 0:
        return row.dropped("no GPU")
    return LogJob(
        place=row.place,
        job=row.name("name"),
        submitted=row.instant("time"),
        duration=None,
        num_gpus=num_gpus,
        extras=(row.name("application"), row.count("batch_size", at_least=1)),
    )


class GavelRow(NamedTuple):
    """Values of a row of a Gavel or Shockwave list."""

    arrival: float  # [s]
    duration: float | None  # [s]; only in Shockwave's lists
    gpus: int  # number of GPUs
    job_type: str  # model, perhaps with its batch size
    total_steps: int  # optimiser steps at the first batch size


def read_gavel_row(row: LogRow) -> GavelRow:
    """Read and check a row of a Gavel or Shockwave list."""
    return GavelRow(
        arrival=row.instant("arrival_time"),
        duration=row.optional_within("duration", 0, MOST_SECONDS),
        gpus=row.count("scale_factor", at_least=1),
        job_type=row.name("job_type"),
        total_steps=row.count("total_steps", at_least=1),
    )


def _parse_gavel(row: LogRow) -> LogJob:
    arrival, duration, gpus, *extras = read_gavel_row(row)
    # The list has no job names.
    return LogJob(row.place, f"gavel-{row.line}", arrival, duration, gpus, extras=tuple(extras))


MILLISECONDS = "iteration_time"
"""Column of Muri's lists, which have the columns of Tiresias and more, and times in milliseconds."""


def _parse_tiresias(row: LogRow) -> LogJob | Dropped:
    """Return the job of a row of Tiresias' list, or of Muri's, which has times in milliseconds."""
    num_gpus = row.count("num_gpu")
    if num_gpus == 0:
        return row.dropped("no GPU")
    seconds_per_unit = 1.0
    if MILLISECONDS in row.values:
        seconds_per_unit = 1e-3
    return LogJob(
        place=row.place,
        job=row.name("job_id"),
        submitted=row.instant("submit_time") * seconds_per_unit,
        duration=row.seconds("duration") * seconds_per_unit,
        num_gpus=num_gpus,
        extras=(row.name("model_name"), row.count("iterations")),
    )


class TiresiasFormat(TableFormat):
    """A job list of Tiresias or of Muri."""

    def for_source(self, source: Path, columns: str) -> TiresiasFormat:
        """Return the format, with a note if the times of a list are milliseconds.

        Raise InvalidConfigError if columns are mapped, and InvalidInputError if the list cannot be read.
        """
        super().for_source(source, columns)
        # The header tells whose list it is, so the first row is enough.
        first = next(read_rows(source_files(source, self.files)[0], self.layout), None)
        if not isinstance(first, LogRow) or MILLISECONDS not in first.values:
            return self
        note = f"the list has the column {MILLISECONDS} of Muri's lists, so its times are read as milliseconds"
        return replace(self, caveat=note)


SIA = TableFormat(
    name="sia",
    citation="job list of Sia, Jayaram Subramanya et al., SOSP '23",
    caveat=NO_DURATION,
    layout=TableLayout(("name", "time", "application", "num_replicas", "batch_size")),
    parse=_parse_sia,
    extras=("application", "batch_size"),
)

GAVEL = TableFormat(
    name="gavel",
    citation="job list of Gavel, Narayanan et al., OSDI '20, and of Shockwave, NSDI '23",
    caveat="a job's length is work; durations stand in Shockwave's lists only, and are those at the first batch size",
    layout=TableLayout(
        GAVEL_COLUMNS,
        delimiter="\t",
        has_header=False,
        quoted=False,
        other_columns=(OLDER_GAVEL_COLUMNS, SHOCKWAVE_COLUMNS),
    ),
    parse=_parse_gavel,
    extras=("application", "iterations"),
    files="*.trace",
)

TIRESIAS = TiresiasFormat(
    name="tiresias",
    citation="job list of Tiresias, Gu et al., NSDI '19",
    layout=TableLayout(("job_id", "num_gpu", "submit_time", "iterations", "model_name", "duration", "interval")),
    parse=_parse_tiresias,
    extras=("application", "iterations"),
)
