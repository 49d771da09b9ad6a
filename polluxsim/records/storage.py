"""A run's folder: Parquet tables with units in their schemas, and a run.json that marks a run as complete."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite, isinf
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from polluxsim.common.durations import clock, from_clock
from polluxsim.common.errors import InvalidInputError, listed, short
from polluxsim.common.files import appearing_together, printable
from polluxsim.records.completeness import FILES, REMEDY, check_files, files_in
from polluxsim.records.results import (
    AllocationRecord,
    BeforeRun,
    CheckpointRecord,
    ChooserRecord,
    HostRecord,
    JobRecord,
    OutageRecord,
    ReasonRecord,
    ReasonText,
    Result,
    RoundRecord,
    SharingRecord,
    StartRecord,
    TimingRecord,
)
from polluxsim.records.tables import LATEST, MOST_GPU_SECONDS, read_records, write_records

if TYPE_CHECKING:
    from polluxsim.common.dates import Date, Origin

RUN_FILE = "run.json"
CONFIG_GROUPS = ("agent", "cluster", "engine", "policy", "profiles", "workload")
"""Parts of a run's settings."""
REASONS = "reasons"
"""Part of run.json with the sentences and the units of the reasons, by kind."""
MAY_BE_NULL = ("summary", "config.agent")
"""Parts of run.json that may be null."""

ALLOCATIONS_FILE = "allocations.parquet"
OUTAGES_FILE = "outages.parquet"
HOSTS_FILE = "hosts.parquet"
STARTS_FILE = "starts.parquet"
CHOOSERS_FILE = "choosers.parquet"

# Every table of a run: the records of a result that it has, and their kind.
_TABLES: Mapping[str, tuple[str, type[NamedTuple]]] = {
    "jobs.parquet": ("job_records", JobRecord),
    "rounds.parquet": ("round_records", RoundRecord),
    ALLOCATIONS_FILE: ("allocation_records", AllocationRecord),
    "timing.parquet": ("timing_records", TimingRecord),
    "reasons.parquet": ("reason_records", ReasonRecord),
    OUTAGES_FILE: ("outage_records", OutageRecord),
    "checkpoints.parquet": ("checkpoint_records", CheckpointRecord),
    "sharing.parquet": ("sharing_records", SharingRecord),
    HOSTS_FILE: ("host_records", HostRecord),
    STARTS_FILE: ("start_records", StartRecord),
    CHOOSERS_FILE: ("chooser_records", ChooserRecord),
}
_NEEDED = ("jobs.parquet", "rounds.parquet", ALLOCATIONS_FILE)
_READ_APART = ("timing.parquet", "reasons.parquet")

SOMETIMES = ("sharing.parquet", HOSTS_FILE, STARTS_FILE, CHOOSERS_FILE)
"""Files that only some runs write.

The files are for shared GPUs, for CPUs and memory if the cluster states them, for restart delays that the policy names,
and for batch sizes that the policy chooses.
"""
RUN_FILES = (RUN_FILE, *(name for name in _TABLES if name not in SOMETIMES))
"""Files of every run's folder."""


@dataclass(frozen=True)
class Run:
    """A finished run, read from its folder or made in memory."""

    name: str  # that of the folder, or another one in memory
    info: Mapping[str, Any]  # contents of run.json: config, seed, versions, summary
    result: Result  # the records; those that were read lack wall-clock times and reasons
    # Modules outside polluxsim whose classes may be loaded if the run is simulated again.
    allow_classes: tuple[str, ...] = ()
    folder: Path | None = None  # None for a run in memory

    @property
    def round_interval(self) -> float | None:
        """Return the time between two rounds [s]; None if the settings do not state it."""
        settings = flat(self.info.get("config") or {})
        interval = settings.get("engine.round_interval")
        # A file that was changed by hand may have a text there.
        return interval if isinstance(interval, int | float) else None

    @property
    def origin(self) -> Origin | None:
        """Return the date of second 0; None if the run has no dates. Raise InvalidInputError if it is damaged."""
        value = self.info.get("origin")
        if value is None:
            return None
        from polluxsim.common.dates import Origin  # noqa: PLC0415  (few runs have dates)

        try:
            return Origin.read(value)
        except InvalidInputError as error:
            raise InvalidInputError(f"{self.name}/{RUN_FILE}: {error}; make the run again") from None

    def clock(self, seconds: float) -> str:
        """Return a time of the run [s] as H:MM:SS, with its date behind it if the run has dates and the time is finite.

        Raise InvalidInputError if the origin of the dates is damaged.
        """
        origin = self.origin
        if origin is None or isinf(seconds):
            return clock(seconds)
        return f"{clock(seconds)} ({origin.text(seconds)})"

    def seconds(self, given: float | str | Date) -> float:
        """Return a time of the run in seconds: a number, a text like 3h or 3:00:00, or a date.

        Raise InvalidInputError if the text is no time, or if it is a date that is before the run or in no run.
        """
        from polluxsim.common.dates import Date, read_date  # noqa: PLC0415  (a plain run does not need it)

        time: float | Date | None
        if isinstance(given, str):
            time = read_date(given) or from_clock(given)
        else:
            time = given
        if isinstance(time, Date):
            return self._seconds_of(time)
        if time is None or not (isfinite(time) and time >= 0):
            must = "seconds ≥ 0, a time like 90min, 1.5h, H:MM or H:MM:SS, or a date like 2026-03-04T14:00"
            raise InvalidInputError(f"TIME is {given!r}, must be {must}")
        return time

    def _seconds_of(self, date: Date) -> float:
        origin = self.origin
        if origin is None:
            raise InvalidInputError(
                f"{date.text} is a date, but {self.name} has no dates: only replays of a log with dates have them, "
                "without load_factor and resample_hours; give a time since the start, like 3h"
            )
        seconds = origin.seconds(date)
        if seconds < 0:
            raise InvalidInputError(
                f"{date.text} is before the start of {self.name}, {origin.text(0.0)}; give a later date"
            )
        return seconds

    def must_have_jobs(self) -> None:
        """Raise an InvalidInputError if the run had no jobs."""
        if not self.result.job_records:
            raise InvalidInputError(f"{self.name}: a run without jobs has nothing to show")

    def must_have_metrics(self) -> None:
        """Raise an InvalidInputError if the run had no jobs, or only jobs that no metric counts."""
        self.must_have_jobs()
        if not any(job.is_counted for job in self.result.job_records):
            raise InvalidInputError(
                f"{self.name}: no metric has a value, because all jobs are from before the start of the run; "
                "'polluxsim why' and 'polluxsim timeline' show such a run"
            )


def write_run(folder: Path, result: Result, info: Mapping[str, Any]) -> None:
    """Write a run, completely or not at all. A folder with a run.json holds a finished run.

    The folder is made if necessary, and a run in it is replaced. `info` is the content of run.json, to which this
    function adds what it takes from the result, and the files. Raise OSError if the run cannot be written.
    """
    about: dict[str, Any] = {
        "end_time": result.end_time,
        "standstill": result.standstill,
        "gpu_seconds": result.gpu_seconds,
    }
    if result.before_run is not None:
        about["before_run"] = result.before_run._asdict()
    if result.reason_texts:
        about[REASONS] = {kind: text._asdict() for kind, text in result.reason_texts.items()}
    with appearing_together(folder, last=RUN_FILE, only_if_written=SOMETIMES) as temporary:
        for name, (field, record_type) in _TABLES.items():
            records = getattr(result, field)
            if records or name not in SOMETIMES:
                write_records(temporary / name, record_type, records)
        # After the tables, because run.json states their sizes and digests.
        text = _json({**about, **info, FILES: files_in(temporary)})
        (temporary / RUN_FILE).write_text(text + "\n", encoding="utf-8")


def _json(value: Mapping[str, Any]) -> str:
    """Return values as JSON. An infinite value becomes a number too large for a float, because JSON has no infinity.

    >>> json.loads(_json({"threshold": float("-inf")}))
    {'threshold': -inf}
    """
    # `json` cannot write 1e999. It writes a random text, which no value contains, and the number replaces the text.
    plus = str(uuid4())
    minus = str(uuid4())

    def marked(item: Any) -> Any:
        if isinstance(item, Mapping):
            return {name: marked(part) for name, part in item.items()}
        if isinstance(item, list | tuple):
            return [marked(part) for part in item]
        if isinstance(item, float) and isinf(item):
            return plus if item > 0 else minus
        return item

    text = json.dumps(marked(value), indent=2, sort_keys=True, allow_nan=False)
    return text.replace(f'"{plus}"', "1e999").replace(f'"{minus}"', "-1e999")


def read_run(folder: Path) -> Run:
    """Read a run, without wall-clock times and reasons. Columns that an older version did not write get their defaults.

    Raise InvalidInputError if the folder does not hold a finished run, or one of its files is damaged.
    """
    info = read_info(folder)
    tables: dict[str, Any] = {}
    for name, (field, record_type) in _TABLES.items():
        if name in _READ_APART:  # large tables that few commands need
            continue
        # Older versions and some runs do not write each table.
        if name in _NEEDED or (folder / name).is_file():
            tables[field] = read_records(folder / name, record_type)
    result = Result(
        **tables,
        end_time=float(info["end_time"]),
        standstill=info.get("standstill"),
        gpu_seconds=info.get("gpu_seconds"),
        before_run=_before_run(folder, info.get("before_run")),
        reason_texts=_reason_texts(folder, info.get(REASONS)),
    )
    place = folder.resolve()  # the name of "." is empty
    return Run(printable(place.name), info, result, folder=place)


def located(path: str, folder: Path | None) -> str:
    """Return the path of the file that a relative path in the settings of a run names, as seen from the present folder.

    The path is relative to the folder in which the run was made, which is usually above the run's `folder`. The present
    folder counts first if it is above the run, and then the nearest folder above the run that has the file. Return the
    path itself if none has it, if it is absolute, or for a run in memory.
    """
    if folder is None or Path(path).is_absolute():
        return path
    # The path is as the run has it if the run was made here, even if a folder nearer to the run has such a file.
    if Path.cwd() in folder.parents and Path(path).exists():
        return path
    for above in folder.parents:
        if (above / path).exists():
            return str(above / path)
    return path


def read_info(folder: Path) -> dict[str, Any]:
    """Read and check run.json of a finished run, and the sizes of the files that it states.

    Raise InvalidInputError if the folder does not hold a finished run, or a part or file of it is damaged.
    """
    if not folder.exists():
        raise InvalidInputError(f"{folder}: there is no such folder; name the folder of a finished run")
    if not (folder / RUN_FILE).is_file():
        runs = sorted(path.parent.name for path in folder.glob(f"*/{RUN_FILE}"))
        advice = f"; name one of its runs: {listed(runs, 5)}" if runs else "; name the folder of a run"
        raise InvalidInputError(f"{folder}: not a finished run, because it has no {RUN_FILE}{advice}")
    try:
        info: dict[str, Any] = json.loads((folder / RUN_FILE).read_text(encoding="utf-8"))
        # A value other than a mapping raises one of the errors below.
        end_time = info["end_time"]
        gpu_seconds = info.get("gpu_seconds")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidInputError(
            f"{folder / RUN_FILE}: damaged, or not written by polluxsim ({error}); {REMEDY}"
        ) from None
    # Before the parts: a damaged folder is made again as a whole, whatever else is wrong in it.
    check_files(folder, info)
    _check_seconds(folder, "end_time", end_time, LATEST)
    _check_parts(folder / RUN_FILE, info)
    if gpu_seconds is not None:
        _check_seconds(folder, "gpu_seconds", gpu_seconds, MOST_GPU_SECONDS)
    return info


def _check_parts(path: Path, info: Mapping[str, Any]) -> None:
    """Check that the parts of run.json that commands read are mappings, including the parts of the settings.

    Raise InvalidInputError for the first part that is none. The parts in `MAY_BE_NULL` may be null.
    """
    parts = {name: info[name] for name in ("summary", "versions") if name in info}
    parts |= _settings_parts(info)
    for name, part in parts.items():
        name_in_run = name.rpartition("before.")[2]  # without the dotted name of an ancestor
        may_be_null = name_in_run in MAY_BE_NULL
        if not isinstance(part, dict) and not (part is None and may_be_null):
            raise InvalidInputError(f"{path}: {name} is {short(part)}, must be a mapping; make the run again")


def _settings_parts(run: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return by dotted name the settings of a run with their groups, its descent, and the same parts of its ancestors.

    `prefix` is the dotted name of an ancestor.
    """
    parts = {f"{prefix}{name}": run[name] for name in ("config", "descent") if name in run}
    config = run.get("config")
    descent = run.get("descent")
    if isinstance(config, dict):
        parts |= {f"{prefix}config.{group}": config[group] for group in CONFIG_GROUPS if group in config}
    if isinstance(descent, dict) and "before" in descent:
        before = descent["before"]
        parts[f"{prefix}descent.before"] = before
        if isinstance(before, dict):
            parts |= _settings_parts(before, f"{prefix}descent.before.")
    return parts


def _before_run(folder: Path, value: object) -> BeforeRun | None:
    """Return the numbers of jobs that were submitted before the run. Raise InvalidInputError if they are invalid."""
    if value is None:
        return None
    if not isinstance(value, dict) or not _are_counts_before_run(value):
        must = f"numbers of at least 0 for {', '.join(BeforeRun._fields)}"
        problem = f"before_run is {short(value)}, must be {must}"
        raise InvalidInputError(f"{folder / RUN_FILE}: {problem}; make the run again")
    return BeforeRun(**value)


def _are_counts_before_run(values: Mapping[str, object]) -> bool:
    """Return whether values have names of `BeforeRun`, and are whole numbers of at least 0."""
    if not values.keys() <= set(BeforeRun._fields):
        return False
    # Not `isinstance`, because a bool is an int too.
    return all(type(number) is int and number >= 0 for number in values.values())


def _reason_texts(folder: Path, value: object) -> dict[str, ReasonText]:
    """Return the sentences and units of reasons by kind. Raise InvalidInputError if they are invalid."""
    if value is None:  # an older version wrote the run
        return {}
    path = folder / RUN_FILE
    if not isinstance(value, dict):
        raise InvalidInputError(f"{path}: {REASONS} is {short(value)}, must be a mapping; make the run again")
    texts = {}
    for kind, text in value.items():
        if not isinstance(text, dict) or not _is_reason_text(text):
            must = "a sentence (text) and units (texts by name)"
            raise InvalidInputError(f"{path}: {REASONS}.{kind} is {short(text)}, must be {must}; make the run again")
        texts[kind] = ReasonText(**text)
    return texts


def _is_reason_text(value: Mapping[str, object]) -> bool:
    """Return whether a mapping has the sentence and the units of a kind of reasons, and nothing else."""
    if value.keys() != set(ReasonText._fields) or not isinstance(value["sentence"], str):
        return False
    units = value["units"]
    return isinstance(units, dict) and all(isinstance(unit, str) for unit in units.values())


def _check_seconds(folder: Path, name: str, value: object, largest: float) -> None:
    """Raise InvalidInputError if a value of run.json is not a number of seconds up to the largest one [s]."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= largest:
        return
    problem = f"{name} is {short(value)}, must be a number of seconds from 0 to {largest:g}"
    raise InvalidInputError(f"{folder / RUN_FILE}: {problem}; make the run again")


def read_timings(folder: Path) -> tuple[TimingRecord, ...]:
    """Read the wall-clock times of a run, which `read_run` leaves out. Raise InvalidInputError if they are damaged."""
    return read_records(folder / "timing.parquet", TimingRecord)


def read_reasons(folder: Path) -> tuple[ReasonRecord, ...] | None:
    """Read the reasons of a run's allocations; None if an older version wrote the run, without reasons.

    Raise InvalidInputError if the table is damaged.
    """
    path = folder / "reasons.parquet"
    if not path.is_file():
        return None
    return read_records(path, ReasonRecord)


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings with dotted names. An empty mapping has no name in the result.

    >>> flat({"policy": {"p": -1.0, "search": "exact"}, "seed": 0})
    {'policy.p': -1.0, 'policy.search': 'exact', 'seed': 0}
    """
    result = dict[str, Any]()
    for name, value in values.items():
        if isinstance(value, Mapping):
            result |= flat(value, f"{prefix}{name}.")
        else:
            result[f"{prefix}{name}"] = value
    return result
