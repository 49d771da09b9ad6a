"""A run's tables as compact columns that a page decodes: typed arrays, deflated, in base64."""

from __future__ import annotations

import base64
import json
import zlib
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from polluxsim.look.colours import job_colour
from polluxsim.look.pauses import Pauses
from polluxsim.look.starts import start_delay
from polluxsim.metrics.gpu_time import effective_time_ratio
from polluxsim.records import Status

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from polluxsim.look.lives import Lives
    from polluxsim.look.report.occupancy import Occupancy, Parts
    from polluxsim.records import AllocationRecord, JobRecord, Result
    from polluxsim.storage import Run

NEVER = -1.0
"""Stands for a time that never came."""

STATUSES = tuple(Status)

MOST_HUES = 8

ALIGNMENT = 8
TYPES = {"float32": "Float32Array", "float64": "Float64Array", "uint8": "Uint8Array", "uint32": "Uint32Array"}
"""What a page calls the types we use; numpy's arrays are written little-endian, as every browser's are."""


def packed(columns: Mapping[str, NDArray[Any]], head: Mapping[str, Any]) -> str:
    """Return columns and a JSON head as text.

    The layout before compression: length of the JSON text (4 bytes, little-endian), the JSON text with type, offset and
    length of every column, then the columns, each at a multiple of 8 bytes from the end of the JSON text's padding.
    """
    places, blocks, offset = {}, [], 0
    for name, column in columns.items():
        data = column.astype(column.dtype.newbyteorder("<")).tobytes()
        places[name] = [TYPES[column.dtype.name], offset, len(column)]
        data += bytes(-len(data) % ALIGNMENT)
        offset += len(data)
        blocks.append(data)
    text = json.dumps({**head, "columns": places}, separators=(",", ":"), allow_nan=False).encode()
    start = len(text).to_bytes(4, "little") + text
    start += bytes(-len(start) % ALIGNMENT)
    return base64.b64encode(zlib.compress(start + b"".join(blocks), 9)).decode("ascii")


def run_columns(result: Result, held: Occupancy, lives: Lives) -> dict[str, NDArray[Any]]:
    """Return a run's columns.

    `job…` have an entry per job, `change…` per change in order of job and time, `held…` per rectangle
    (from `held_place` on only where jobs share GPUs), `down…` per outage of a node, `round…` per round, `life…` per
    point of a job's life.
    """
    jobs, rounds, outages = result.job_records, result.round_records, result.outage_records
    rows = [0, *accumulate(held.gpus_per_node)]
    index = {job.job: number for number, job in enumerate(jobs)}
    changes = sorted(result.allocation_records, key=lambda record: index[record.job])
    applications = sorted({job.application for job in jobs})
    return {
        "job_application": _column("uint32", [applications.index(job.application) for job in jobs]),
        "job_submit": _column("float64", [job.submit_time for job in jobs]),
        "job_start": _column("float64", [_or_never(job.start_time) for job in jobs]),
        "job_end": _column("float64", [_or_never(job.left_at) for job in jobs]),
        "job_status": _column("uint8", [STATUSES.index(job.status) for job in jobs]),
        "job_fairness": _column("float32", [job.finish_time_fairness for job in jobs]),
        "job_asked": _column("uint32", [job.num_replicas for job in jobs]),
        "job_restart_time": _column("float32", [job.restart_time for job in jobs]),
        "job_color": _column("uint32", [_number(_colour(job, applications, i)) for i, job in enumerate(jobs)]),
        "job_restarts": _column("uint32", [job.num_restarts for job in jobs]),
        "job_failures": _column("uint32", [job.num_failures for job in jobs]),
        "job_effective": _column("float32", [effective_time_ratio([job], result.end_time) for job in jobs]),
        "job_gpu_seconds": _column("float64", [job.gpu_seconds for job in jobs]),
        "change_job": _column("uint32", [index[record.job] for record in changes]),
        "change_time": _column("float64", [record.time for record in changes]),
        "change_gpus": _column("uint32", [sum(record.gpus) for record in changes]),
        "change_nodes": _column("uint32", [len(set(record.nodes)) for record in changes]),
        "change_batch": _column("uint32", [record.batch_size for record in changes]),
        "change_accumulation": _column("uint32", [record.accumulation_steps for record in changes]),
        "change_moved": _column("uint8", _moved(changes)),
        "held_start": _column("float64", held.start),
        "held_end": _column("float64", held.end),
        "held_job": _column("uint32", held.job),
        "held_row": _column("uint32", held.row),
        "held_rows": _column("uint32", held.rows),
        **_parts(held.shared),
        "down_start": _column("float64", [outage.time for outage in outages]),
        "down_end": _column("float64", [min(outage.until, result.end_time) for outage in outages]),
        "down_row": _column("uint32", [rows[outage.node] for outage in outages]),
        "down_rows": _column("uint32", [outage.gpus for outage in outages]),
        "round_time": _column("float64", [record.time for record in rounds]),
        "round_efficiency": _column("float32", [record.efficiency for record in rounds]),
        "round_nodes": _column("uint32", [record.nodes for record in rounds]),
        "round_price": _column("float32", [record.hourly_cost for record in rounds]),
        "life_job": lives.job,
        "life_time": lives.time,
        "life_efficiency": lives.efficiency,
        "life_progress": lives.progress,
    }


def save_columns(run: Run, num_nodes: int) -> dict[str, NDArray[Any]]:
    """Return when jobs start to train and stop for checkpoints.

    `change_delay`, `change_save` and `change_cycle` are what a start costs, the first checkpoint after each change, and
    the time from one to the next, as `change…` in `run_columns`; `save…` have an entry for each that does not follow
    from an interval.
    """
    jobs, pauses = run.result.job_records, Pauses(run, num_nodes)
    index = {job.job: number for number, job in enumerate(jobs)}
    changes = sorted(run.result.allocation_records, key=lambda record: index[record.job])
    of, delay = [(jobs[index[each.job]].application, each.nodes) for each in changes], start_delay(run)
    rhythms = [pauses.rhythm(each.time, nodes, name) for each, (name, nodes) in zip(changes, of, strict=True)]
    saves = sorted((index[each.job], each.time) for each in run.result.checkpoint_records)
    return {
        "change_delay": _column("float32", [delay(name, nodes) for name, nodes in of]),
        "change_save": _column("float64", [first for first, _, _ in rhythms]),
        "change_cycle": _column("float64", [cycle for _, cycle, _ in rhythms]),
        "save_job": _column("uint32", [job for job, _ in saves]),
        "save_time": _column("float64", [time for _, time in saves]),
    }


def _parts(shared: Parts | None) -> dict[str, NDArray[Any]]:
    if shared is None:
        return {}
    kinds = {"place": "uint8", "of": "uint8", "speed": "float32", "placed": "float64"}
    return {f"held_{name}": _column(kind, getattr(shared, name)) for name, kind in kinds.items()}


def is_coloured_by_application(applications: Collection[str]) -> bool:
    """Return whether colours tell applications apart: of one, or very many, they tell jobs apart instead."""
    return 1 < len(applications) <= MOST_HUES


def _colour(job: JobRecord, applications: Collection[str], number: int) -> str:
    return job_colour(job.application if is_coloured_by_application(applications) else None, number)


def _number(colour: str) -> int:
    return int(colour[1:], 16)


def _moved(changes: Sequence[AllocationRecord]) -> list[bool]:
    """Return whether each change is one of placement, and not of the batch size alone; changes stand job by job."""
    before = [None, *changes[:-1]]
    return [
        old is None or old.job != new.job or (old.nodes, old.gpus) != (new.nodes, new.gpus)
        for old, new in zip(before, changes, strict=True)
    ]


def _column(kind: str, values: Any) -> NDArray[Any]:
    return np.asarray(values).astype(kind)


def _or_never(time: float | None) -> float:
    return NEVER if time is None else time
