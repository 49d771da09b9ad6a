"""A run's folder: Parquet tables with units in their schemas and a run.json that makes the run complete."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import isinf
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from uuid import uuid4

from polluxsim.errors import InvalidInputError, short
from polluxsim.files import appearing_together
from polluxsim.record_tables import LATEST, MOST_GPU_SECONDS, read_records, write_records
from polluxsim.records import (
    AllocationRecord,
    CheckpointRecord,
    HostRecord,
    JobRecord,
    OutageRecord,
    ReasonRecord,
    Result,
    RoundRecord,
    SharingRecord,
    TimingRecord,
)

if TYPE_CHECKING:
    from pathlib import Path

_RecordT = TypeVar("_RecordT", bound=NamedTuple)

RUN_FILE = "run.json"
ALLOCATIONS_FILE = "allocations.parquet"
REASONS_FILE = "reasons.parquet"
OUTAGES_FILE = "outages.parquet"
CHECKPOINTS_FILE = "checkpoints.parquet"
SHARING_FILE = "sharing.parquet"
HOSTS_FILE = "hosts.parquet"
RUN_FILES = (
    RUN_FILE, "jobs.parquet", "rounds.parquet", ALLOCATIONS_FILE, "timing.parquet", REASONS_FILE, OUTAGES_FILE,
    CHECKPOINTS_FILE,
)  # fmt: skip
"""Files of every run's folder."""
SOMETIMES = (SHARING_FILE, HOSTS_FILE)
"""Files of a run whose jobs shared GPUs, and of one whose nodes say what CPUs and memory they have."""


@dataclass(frozen=True)
class Run:
    """A finished run as its folder tells it.

    Attributes
    ----------
    name
        The folder's name.
    info
        Contents of run.json: config, seed, versions, summary.
    result
        The records, without wall-clock times.
    """

    name: str
    info: Mapping[str, Any]
    result: Result


def write_run(folder: Path, result: Result, info: Mapping[str, Any]) -> None:
    """Write a run, whole or not at all; a folder that has a run.json holds a finished run.

    Parameters
    ----------
    folder
        Where to; made if it is not there. A run that was there before is replaced.
    result
        The records.
    info
        What run.json is to say.
    """
    about = {"end_time": result.end_time, "standstill": result.standstill, "gpu_seconds": result.gpu_seconds}
    text = _json({**about, **info})
    with appearing_together(folder, last=RUN_FILE, only_if_written=SOMETIMES) as temporary:
        write_records(temporary / "jobs.parquet", JobRecord, result.job_records)
        write_records(temporary / "rounds.parquet", RoundRecord, result.round_records)
        write_records(temporary / ALLOCATIONS_FILE, AllocationRecord, result.allocation_records)
        write_records(temporary / "timing.parquet", TimingRecord, result.timing_records)
        write_records(temporary / REASONS_FILE, ReasonRecord, result.reason_records)
        write_records(temporary / OUTAGES_FILE, OutageRecord, result.outage_records)
        write_records(temporary / CHECKPOINTS_FILE, CheckpointRecord, result.checkpoint_records)
        if result.sharing_records:
            write_records(temporary / SHARING_FILE, SharingRecord, result.sharing_records)
        if result.host_records:
            write_records(temporary / HOSTS_FILE, HostRecord, result.host_records)
        (temporary / RUN_FILE).write_text(text + "\n", encoding="utf-8")


def _json(value: Mapping[str, Any]) -> str:
    """Return values as JSON; what is infinite becomes a number too large for any float, as JSON has no other word.

    >>> json.loads(_json({"threshold": float("-inf")}))
    {'threshold': -inf}
    """
    marks = {mark: f"{sign}1e999" for mark, sign in ((f"{uuid4()}", ""), (f"{uuid4()}", "-"))}
    plus, minus = marks

    def marked(item: Any) -> Any:
        if isinstance(item, Mapping):
            return {name: marked(part) for name, part in item.items()}
        if isinstance(item, list | tuple):
            return [marked(part) for part in item]
        return (plus if item > 0 else minus) if isinstance(item, float) and isinf(item) else item

    text = json.dumps(marked(value), indent=2, sort_keys=True, allow_nan=False)
    for mark, number in marks.items():
        text = text.replace(f'"{mark}"', number)
    return text


def read_run(folder: Path) -> Run:
    """Read a run back; columns that were not recorded yet when it was written have their defaults.

    Raises
    ------
    InvalidInputError
        If the folder does not hold a finished run.
    """
    if not (folder / RUN_FILE).is_file():
        raise InvalidInputError(f"{folder}: not a finished run, needed is a folder with {RUN_FILE}")
    try:
        info = json.loads((folder / RUN_FILE).read_text(encoding="utf-8"))
        end_time, gpu_seconds = info["end_time"], info.get("gpu_seconds")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidInputError(f"{folder / RUN_FILE}: not what polluxsim writes ({error})") from None
    _check_seconds(folder, "end_time", end_time, LATEST)
    if gpu_seconds is not None:
        _check_seconds(folder, "gpu_seconds", gpu_seconds, MOST_GPU_SECONDS)
    result = Result(
        job_records=read_records(folder / "jobs.parquet", JobRecord),
        round_records=read_records(folder / "rounds.parquet", RoundRecord),
        allocation_records=read_records(folder / ALLOCATIONS_FILE, AllocationRecord),
        end_time=float(end_time),
        standstill=info.get("standstill"),
        outage_records=_read_if_there(folder / OUTAGES_FILE, OutageRecord),
        gpu_seconds=gpu_seconds,
        checkpoint_records=_read_if_there(folder / CHECKPOINTS_FILE, CheckpointRecord),
        sharing_records=_read_if_there(folder / SHARING_FILE, SharingRecord),
        host_records=_read_if_there(folder / HOSTS_FILE, HostRecord),
    )
    return Run(folder.resolve().name, info, result)


def _read_if_there(path: Path, record_type: type[_RecordT]) -> tuple[_RecordT, ...]:
    return read_records(path, record_type) if path.is_file() else ()


def _check_seconds(folder: Path, name: str, value: object, most: float) -> None:
    if not (isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= most):
        what = f"{name} is {short(value)}, allowed is a number of seconds from 0 to {most:g}"
        raise InvalidInputError(f"{folder / RUN_FILE}: {what}")


def read_timings(folder: Path) -> tuple[TimingRecord, ...]:
    """Read the wall-clock times of a run, which `read_run` leaves out.

    Raises
    ------
    InvalidInputError
        If the folder does not hold them.
    """
    return read_records(folder / "timing.parquet", TimingRecord)


def read_reasons(folder: Path) -> tuple[ReasonRecord, ...] | None:
    """Read why a run's jobs got what they got; None for a run of before reasons were recorded."""
    path = folder / REASONS_FILE
    return read_records(path, ReasonRecord) if path.is_file() else None


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings with dotted names.

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
