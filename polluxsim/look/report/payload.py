"""A run's tables as compact columns that a page decodes: typed arrays, deflated, in base64."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate
from operator import attrgetter, ne
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from polluxsim.hardware.clusters import Cluster
from polluxsim.look.batch_choosers import BatchChoosers
from polluxsim.look.colours import is_coloured_by_application, job_colour
from polluxsim.look.job_progress import Lives, undone_training
from polluxsim.look.occupancy import Occupancy, SharedParts
from polluxsim.look.run_facts import Pauses, start_delay
from polluxsim.look.why.events import failed_nodes, losses, outages_by_node
from polluxsim.look.why.sentences import sentence
from polluxsim.metrics.declared import Metric
from polluxsim.metrics.outcomes import NEVER_SUBMITTED, outcome
from polluxsim.records.results import AllocationRecord, JobRecord, ReasonRecord, Result, Status
from polluxsim.records.storage import Run
from polluxsim.statistics.metric_lines import METRICS, OF_JOBS, OVER_TIME, worded

NEVER = -1.0  # placeholder for the time of an event that did not happen

OUTCOMES = (*map(str, Status), NEVER_SUBMITTED)  # in the order of their numbers in a column

COMPRESSION = 4  # level of zlib. A page of 82,247 jobs is 6 % larger than at level 9, and packed in 1/20 of the time

ALIGNMENT = 8  # columns begin at multiples of it, as typed arrays of JavaScript require [bytes]
TYPES = {"float32": "Float32Array", "float64": "Float64Array", "uint8": "Uint8Array", "uint32": "Uint32Array"}
"""JavaScript names of NumPy types. Arrays are written little-endian, like the arrays of all browsers."""


def packed(columns: Mapping[str, NDArray[Any]], head: Mapping[str, Any]) -> str:
    """Return columns and a JSON head as text.

    The layout before compression: length of the JSON text (4 bytes, little-endian), the JSON text with type, offset and
    length of every column, then the columns, each at a multiple of 8 bytes from the end of the JSON text's padding.
    """
    layout = {}
    blocks = []
    offset = 0
    for name, column in columns.items():
        data = column.astype(column.dtype.newbyteorder("<")).tobytes()
        layout[name] = [TYPES[column.dtype.name], offset, len(column)]
        # A typed array of JavaScript cannot begin between two multiples of the size of its values.
        data += bytes(-len(data) % ALIGNMENT)
        offset += len(data)
        blocks.append(data)
    text = json.dumps({**head, "columns": layout}, separators=(",", ":"), allow_nan=False).encode()
    start = len(text).to_bytes(4, "little") + text
    start += bytes(-len(start) % ALIGNMENT)
    return base64.b64encode(zlib.compress(start + b"".join(blocks), COMPRESSION)).decode("ascii")


def run_columns(result: Result, held: Occupancy, lives: Lives) -> dict[str, NDArray[Any]]:
    """Return the columns of a run, with times in [s] and rows counted in GPUs over all nodes.

    `job…` have an entry per job, `change…` per change in order of job and time, `held…` per rectangle
    (from `held_place` on only where jobs share GPUs), `down…` per outage of a node, `round…` per round, `life…` per
    point of a job's life.
    """
    outages = result.outage_records
    rounds = result.round_records
    first_rows = [0, *accumulate(held.gpus_per_node)]  # by node
    return {
        **_job_columns(result),
        **_change_columns(result),
        "held_start": _column("float64", held.start),
        "held_end": _column("float64", held.end),
        "held_job": _column("uint32", held.job),
        "held_row": _column("uint32", held.row),
        "held_rows": _column("uint32", held.rows),
        **_parts(held.shared),
        "down_start": _field("float64", outages, "time"),
        "down_end": _column("float64", [min(outage.until, result.end_time) for outage in outages]),
        "down_row": _column("uint32", [first_rows[outage.node] for outage in outages]),
        "down_rows": _field("uint32", outages, "gpus"),
        "round_time": _field("float64", rounds, "time"),
        "round_efficiency": _field("float32", rounds, "efficiency"),
        "round_cost": _field("float64", rounds, "cost"),
        "round_nodes": _field("uint32", rounds, "nodes"),
        "round_price": _field("float32", rounds, "hourly_cost"),
        "life_job": lives.job,
        "life_time": lives.time,
        "life_efficiency": lives.efficiency,
        "life_progress": lives.progress,
    }


def _outcome(job: JobRecord, result: Result) -> str:
    """Return the status of a job; a job with a submission after the end of the run has one of its own."""
    if outcome(job, result.end_time) == NEVER_SUBMITTED:
        return NEVER_SUBMITTED
    return str(job.status)


def _job_columns(result: Result) -> dict[str, NDArray[Any]]:
    """Return the columns with an entry for each job."""
    jobs = result.job_records
    applications = sorted({job.application for job in jobs})
    numbers = {application: number for number, application in enumerate(applications)}
    start = _field("float64", jobs, "start_time")
    completion = _field("float64", jobs, "completion_time")
    end = np.where(np.isnan(completion), _field("float64", jobs, "end_time"), completion)
    since_start = np.where(np.isnan(end), result.end_time, end) - start
    return {
        "job_application": _column("uint32", [numbers[job.application] for job in jobs]),
        # The page shows the time in the run, which begins at 0 s; a job may have been submitted and started before.
        "job_submit": np.maximum(_field("float64", jobs, "submit_time"), 0.0),
        "job_start": np.nan_to_num(np.maximum(start, 0.0), nan=NEVER, posinf=np.inf),
        "job_end": np.nan_to_num(end, nan=NEVER, posinf=np.inf),
        "job_status": _column("uint8", [OUTCOMES.index(_outcome(job, result)) for job in jobs]),
        "job_fairness": _field("float32", jobs, "finish_time_fairness"),
        "job_asked": _field("uint32", jobs, "num_replicas"),
        "job_restart_time": _field("float32", jobs, "restart_time"),
        "job_color": _column("uint32", _colours(jobs, applications)),
        "job_restarts": _field("uint32", jobs, "num_restarts"),
        "job_failures": _field("uint32", jobs, "num_failures"),
        "job_lost": _field("float32", jobs, "lost_time"),
        "job_effective": _column("float32", _effective(jobs, since_start)),
        "job_gpu_seconds": _field("float64", jobs, "gpu_seconds"),
    }


def _effective(jobs: Sequence[JobRecord], since_start: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the effective training time of each job as a share of the time since its start [s].

    Both arrays have shape (jobs,). A job that did not start has NaN.
    """
    useful = _field("float64", jobs, "run_time")
    # The time with GPUs contains all three, which do not overlap.
    for name in ("restart_time", "checkpoint_time", "lost_time"):
        useful -= _field("float64", jobs, name)
    ratio = np.full(len(jobs), np.nan)
    np.divide(useful, since_start, out=ratio, where=(since_start != 0) & ~np.isnan(since_start))
    return ratio


def _change_columns(result: Result) -> dict[str, NDArray[Any]]:
    """Return the columns with an entry for each change."""
    job, changes = _changes(result)
    placements = list(map(attrgetter("nodes", "gpus"), changes))
    # Whether the placement differs from that of the change before, which may be of another job
    moved = _column("bool", list(map(ne, placements, [None, *placements])))
    # The first change of a job moves it, whatever the job before it held.
    is_first = np.diff(job, prepend=-1) != 0
    return {
        "change_job": _column("uint32", job),
        "change_time": _field("float64", changes, "time"),
        "change_gpus": _column("uint32", [sum(gpus) for _, gpus in placements]),
        "change_nodes": _column("uint32", [len(set(nodes)) for nodes, _ in placements]),
        "change_batch": _field("uint32", changes, "batch_size"),
        "change_accumulation": _field("uint32", changes, "accumulation_steps"),
        "change_moved": _column("uint8", moved | is_first),
    }


def losses_by_change(result: Result) -> dict[int, str]:
    """Return a description of each change at which a job lost its GPUs to an outage, by the index of the change."""
    descriptions = losses(result)
    if not descriptions:
        return {}
    _, changes = _changes(result)
    by_change = {}
    for index, change in enumerate(changes):
        # At one time, a job can lose GPUs and get others.
        if (change.job, change.time) in descriptions and not change.nodes:
            by_change[index] = descriptions[change.job, change.time]
    return by_change


def changes_by_policy(result: Result) -> list[int]:
    """Return the indices of the changes after which the policy has chosen the batch size, in order."""
    if not result.chooser_records:
        return []
    choosers = BatchChoosers(result)
    _, changes = _changes(result)
    by_policy = []
    for index, change in enumerate(changes):
        # A job without GPUs has no batch size.
        if change.nodes and choosers.at(change.job, change.time) == "policy":
            by_policy.append(index)
    return by_policy


def _changes(result: Result) -> tuple[NDArray[np.int64], list[AllocationRecord]]:
    """Return all changes in order of job and time: the indices of their jobs among the job records, and the changes."""
    index = _indices(result)
    # The sort keeps the order of time of the changes of each job.
    changes = sorted(result.allocation_records, key=lambda record: index[record.job])
    return np.array([index[record.job] for record in changes], np.int64), changes


def _indices(result: Result) -> dict[str, int]:
    """Return the index of each job among the job records."""
    return {job.job: index for index, job in enumerate(result.job_records)}


def save_columns(run: Run, num_nodes: int) -> dict[str, NDArray[Any]]:
    """Return the restart delays and the checkpoints of a run on a number of nodes.

    `change_delay`, `change_save` and `change_cycle` have an entry for each change, like `change…` in `run_columns`: the
    restart delay, the time of the first checkpoint, and the time from one checkpoint to the next [s]. `save…` have an
    entry for each checkpoint that does not follow from an interval.
    """
    job_index = _indices(run.result)
    pauses = Pauses(run, num_nodes)
    delay_of = start_delay(run)
    job_of_change, changes = _changes(run.result)
    delays = []
    first_saves = []
    cycles = []
    for number, change in zip(job_of_change.tolist(), changes, strict=True):
        application = run.result.job_records[number].application
        first, cycle, _ = pauses.rhythm(change.job, change.time, change.nodes, application)
        delays.append(delay_of(change.job, application, change.nodes, change.time))
        first_saves.append(first)
        cycles.append(cycle)
    saves = sorted((job_index[record.job], record.time) for record in run.result.checkpoint_records)
    return {
        "change_delay": _column("float32", delays),
        "change_save": _column("float64", first_saves),
        "change_cycle": _column("float64", cycles),
        "save_job": _column("uint32", [job for job, _ in saves]),
        "save_time": _column("float64", [time for _, time in saves]),
    }


def lost_columns(run: Run, cluster: Cluster) -> dict[str, NDArray[Any]]:
    """Return the training that failures undid.

    `lost…` have an entry per period: its start and end [s], the number of GPUs, and the node that failed. A job that
    failed by itself has the number of nodes as this value.
    """
    starts = []
    ends = []
    num_gpus = []
    first_failed_nodes = []
    outages = outages_by_node(run.result)
    for stay, start, end, failed_at in undone_training(run, cluster):
        starts.append(start)
        ends.append(end)
        num_gpus.append(len(stay.slots))
        nodes = {slot.node for slot in stay.slots}
        first_failed_nodes.append(min(failed_nodes(nodes, failed_at, outages), default=cluster.num_nodes))
    return {
        "lost_start": _column("float64", starts),
        "lost_end": _column("float64", ends),
        "lost_gpus": _column("uint32", num_gpus),
        "lost_node": _column("uint32", first_failed_nodes),
    }


def packed_reasons(result: Result, reasons: Sequence[ReasonRecord]) -> str:
    """Return the reasons in order of job and time, packed: time [s], kind as a number, and sentence of each."""
    index = _indices(result)
    kinds = sorted({reason.kind for reason in reasons})
    ordered = sorted(reasons, key=lambda reason: (index[reason.job], reason.time))
    columns = {
        "reason_job": _column("uint32", [index[reason.job] for reason in ordered]),
        "reason_time": _field("float64", ordered, "time"),
        "reason_kind": _column("uint32", [kinds.index(reason.kind) for reason in ordered]),
    }
    sentences = [sentence(reason, result.reason_texts) for reason in ordered]
    return packed(columns, {"jobs": [], "sentences": sentences})


def _parts(shared: SharedParts | None) -> dict[str, NDArray[Any]]:
    """Return the columns on shared GPUs, with an entry for each rectangle; {} if no jobs share GPUs."""
    if shared is None:
        return {}
    return {
        "held_place": _column("uint8", shared.place),
        "held_of": _column("uint8", shared.of),
        "held_speed": _column("float32", shared.speed),
        "held_placed": _column("float64", shared.placed),
    }


def _colours(jobs: Sequence[JobRecord], applications: Collection[str]) -> list[int]:
    """Return the colour of each job as the number 0xRRGGBB."""
    has_hue = is_coloured_by_application(applications)
    colours = []
    for number, job in enumerate(jobs):
        application = job.application if has_hue else None
        colour = job_colour(application, number)
        colours.append(int(colour.removeprefix("#"), 16))
    return colours


def _field(kind: str, records: Sequence[NamedTuple], name: str) -> NDArray[Any]:
    """Return a field of all records as a column."""
    return _column(kind, list(map(attrgetter(name), records)))


def _column(kind: str, values: Any) -> NDArray[Any]:
    return np.array(values, kind)


def _declared(metrics: Mapping[str, Metric]) -> dict[str, dict[str, str]]:
    """Return declarations of metrics as scripts of the page read them, by name."""
    parts = ("title", "unit", "better", "formula", "heading")
    declarations = {}
    for name, metric in metrics.items():
        declarations[name] = {part: getattr(metric, part) for part in parts}
    return declarations


def metrics_of_page(losses: str) -> dict[str, Any]:
    """Return the metrics as scripts of the page read them, with a word for what took GPUs."""
    return {
        "ofRuns": _declared(worded(METRICS, losses)),
        "ofJobs": _declared(worded(OF_JOBS, losses)),
        "overTime": _declared(worded(OVER_TIME, losses)),
        "losses": losses,
    }
