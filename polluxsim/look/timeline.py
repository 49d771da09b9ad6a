"""A run as a timeline in Chrome's trace event format, which Perfetto and chrome://tracing open.

Source: "Trace Event Format" (Chromium project): complete events X, instants i, counters C, flows s and f, metadata M.
"""

from __future__ import annotations

import gzip
import io
import json
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import product, repeat
from pathlib import Path
from typing import Any

import numpy as np

from polluxsim.hardware.clusters import Cluster
from polluxsim.look.occupancy import Slot, Stay, most_lanes, stays
from polluxsim.look.run_facts import Pauses, cluster_of, is_rented, start_delay
from polluxsim.look.why.events import fork_sentence, losses, outage_sentence
from polluxsim.records.folders import policy_name
from polluxsim.records.results import Result
from polluxsim.records.storage import Run
from polluxsim.statistics.forks import fork_of
from polluxsim.statistics.groups import settings_of
from polluxsim.statistics.series import active_jobs, lifetime, submitted, waiting_jobs

Event = dict[str, Any]

CLUSTER_PID = 1
"""Process of the counters; node n is process n + 2. Processes and threads are numbered from 1, since 0 means idle."""

COUNTERS = (("queue", "jobs"), ("active", "jobs"), ("GPUs", "in use"), ("efficiency", "weighted by GPUs"))
"""Names of the counters and of their one series; Perfetto shows them together."""

OF_RENTED = (("nodes", "up"), ("price", "an hour"))  # those of clusters whose nodes are rented as a policy needs them

FLOW = {"name": "re-allocation", "cat": "re-allocation"}


def events(run: Run) -> Iterator[Event]:
    """Yield all events of a run's timeline. Times are whole microseconds since the start of the workload.

    A node is a process and a GPU a thread. A slice with the name of the job lasts as long as the job holds the GPU at
    one batch size. The restart delay after a change of GPUs is a separate slice before the job's slice, `start` or
    `restart`. Checkpoints are slices inside. A GPU that jobs share has a track for each job. An arrow leads from the
    old GPUs of a job to the new ones. An outage is a mark, and a slice on each GPU of the node. A fork is a mark across
    all tracks. Each job has a track with its waits. A mark on it shows the loss of its GPUs to a node that went down. A
    slice `lost` shows the training that a failure undid.
    """
    cluster = cluster_of(run)
    tracks = _Tracks(cluster, most_lanes(_stays(run, cluster)) if run.result.sharing_records else 1)
    jobs = _JobTracks(run.result, *tracks.next)
    yield from tracks.metadata()
    yield from jobs.metadata()
    yield from _outages(run, tracks)
    yield from _counters(run)
    applications = {job.job: job.application for job in run.result.job_records}
    delay = start_delay(run)
    pauses, flows = Pauses(run, cluster.num_nodes), 0
    for stay in _stays(run, cluster):
        application = applications.get(stay.job, "?")
        nodes = [slot.node for slot in stay.slots]
        slices = list(_slices(stay, delay(stay.job, application, nodes, stay.placed), application))
        slices += [_slice("checkpoint", *times) for times in pauses.of(stay, application)]
        lost = [_slice("lost", *times) for times in pauses.lost(stay, application)]
        yield from jobs.stay(stay, [*slices, *lost])
        for slot, lane in zip(stay.slots, stay.lanes or repeat(0), strict=False):
            for each in slices:
                yield {**tracks.of(slot, lane), **each}
        # The arrow ends at the first slice on new GPUs; a later slice may begin because only the batch size changed.
        if slices and stay.came_from is not None and stay.start == stay.placed:
            flows += 1
            yield from _flow(flows, stay.came_from, stay, tracks)
    yield from jobs.losses()
    yield from jobs.ends()


def _stays(run: Run, cluster: Cluster) -> Iterator[Stay]:
    return stays(run.result.allocation_records, cluster, run.result.end_time, run.result.sharing_records)


def write_timeline(run: Run, path: Path, *, packed: bool = True) -> int:
    """Write a run's timeline, gzipped or plain, and return its number of slices; the same run gives the same bytes."""
    slices = 0
    with _text(path, packed=packed) as file:
        file.write('{"displayTimeUnit":"ms","traceEvents":[\n')
        separator = ""
        for event in events(run):
            file.write(separator + json.dumps(event, separators=(",", ":"), ensure_ascii=False))
            separator = ",\n"
            slices += event["ph"] == "X"
        told = {"run": run.name, "policy": policy_name(settings_of(run)), "seed": run.info.get("seed")}
        file.write(f'\n],"otherData":{json.dumps(told, ensure_ascii=False)}}}\n')
    return slices


@contextmanager
def _text(path: Path, *, packed: bool) -> Iterator[io.TextIOBase]:
    with ExitStack() as stack:
        file: Any = stack.enter_context(path.open("wb"))
        if packed:  # neither the time nor the file's name may be in the bytes
            file = stack.enter_context(gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0))
        yield stack.enter_context(io.TextIOWrapper(file, encoding="utf-8"))


class _Tracks:
    """The process and the threads of every GPU. A GPU has one thread for each job that it can have at once."""

    def __init__(self, cluster: Cluster, lanes: int = 1) -> None:
        self._sizes, self._lanes = cluster.gpus_per_node, lanes
        first = CLUSTER_PID + 1 + cluster.num_nodes
        self._first_tids = [first]
        for gpus in self._sizes:
            self._first_tids.append(self._first_tids[-1] + gpus)

    def of(self, slot: Slot, lane: int = 0) -> Event:
        row = self._first_tids[slot.node] + slot.gpu
        return {"pid": CLUSTER_PID + 1 + slot.node, "tid": row + lane * sum(self._sizes)}

    @property
    def next(self) -> tuple[int, int]:
        """Return the numbers of the first process and thread that are free."""
        return CLUSTER_PID + 1 + len(self._sizes), self._first_tids[-1] + (self._lanes - 1) * sum(self._sizes)

    def metadata(self) -> Iterator[Event]:
        """Yield the names of all tracks, in their order."""
        yield _meta("process_name", {"pid": CLUSTER_PID}, name="cluster")
        yield _meta("process_sort_index", {"pid": CLUSTER_PID}, sort_index=0)
        for node, gpus in enumerate(self._sizes):
            process = {"pid": CLUSTER_PID + 1 + node}
            yield _meta("process_name", process, name=f"node {node}")
            yield _meta("process_sort_index", process, sort_index=node + 1)
            for gpu, lane in product(range(gpus), range(self._lanes)):
                thread = self.of(Slot(node, gpu), lane)
                yield _meta("thread_name", thread, name=f"GPU {gpu}, beside" if lane else f"GPU {gpu}")
                yield _meta("thread_sort_index", thread, sort_index=gpu * self._lanes + lane)


class _JobTracks:
    """A track for every submitted job of a run: threads of one process, numbered from `first_tid`."""

    def __init__(self, result: Result, pid: int, first_tid: int) -> None:
        self._result, self._jobs = result, submitted(result)
        self._tracks = {job.job: {"pid": pid, "tid": first_tid + number} for number, job in enumerate(self._jobs)}
        self._idle_since = {job.job: job.submit_time for job in self._jobs}

    def metadata(self) -> Iterator[Event]:
        """Yield the names of the tracks, in order of submission."""
        for number, (job, track) in enumerate(self._tracks.items()):
            if not number:
                yield _meta("process_name", {"pid": track["pid"]}, name="jobs")
                yield _meta("process_sort_index", {"pid": track["pid"]}, sort_index=track["pid"])
            yield _meta("thread_name", track, name=job)
            yield _meta("thread_sort_index", track, sort_index=track["tid"])

    def stay(self, stay: Stay, slices: Iterable[Event]) -> Iterator[Event]:
        """Yield the wait of a job before a stay, and the slices of the stay; stays of one job come in order."""
        if (track := self._tracks.get(stay.job)) is None:
            return
        yield from self._waited(stay.job, stay.start)
        self._idle_since[stay.job] = stay.end
        for each in slices:
            yield {**track, **each}

    def losses(self) -> Iterator[Event]:
        """Yield a mark for each loss of all GPUs because nodes went down."""
        for (job, time), text in losses(self._result).items():
            if job in self._tracks:
                yield {"ph": "i", "s": "t", "name": text, "cat": "job", "ts": _microseconds(time), **self._tracks[job]}

    def ends(self) -> Iterator[Event]:
        """Yield the last waits of jobs, and marks at their submissions and ends."""
        for job in self._jobs:
            start, end = lifetime(self._result, job)
            yield from self._waited(job.job, end)
            for name, time in (("submitted", start), (str(job.status.value), end)):
                mark = {"ph": "i", "s": "t", "name": name, "cat": "job", "ts": _microseconds(time)}
                yield {**mark, **self._tracks[job.job]}

    def _waited(self, job: str, until: float) -> Iterator[Event]:
        since = _microseconds(self._idle_since[job])
        if (waited := _microseconds(until) - since) > 0:
            yield {"ph": "X", "name": "waiting", "cat": "wait", "ts": since, "dur": waited, **self._tracks[job]}


def _slices(stay: Stay, delay: float, application: str) -> Iterator[Event]:
    """Yield the slices of a stay, to be put on each of its GPUs: the rest of the restart delay, and the work."""
    args = {
        "job": stay.job,
        "application": application,
        "batch size": stay.batch_size,
        "accumulation steps": stay.accumulation_steps,
        "GPUs": len(stay.slots),
        "nodes": len({slot.node for slot in stay.slots}),
        "restarts": stay.restarts,
    }
    if stay.lanes:
        args["speed beside others"] = round(stay.speed, 4)
    start, ready, end = (_microseconds(time) for time in (stay.start, stay.placed + delay, stay.end))
    ready = min(max(start, ready), end)
    if ready > start:
        name = "restart" if stay.restarts else "start"
        yield {"ph": "X", "name": name, "cat": "restart", "ts": start, "dur": ready - start, "args": args}
    if end > ready:
        yield {"ph": "X", "name": stay.job, "cat": "job", "ts": ready, "dur": end - ready, "args": args}


def _slice(name: str, start: float, end: float) -> Event:
    first = _microseconds(start)
    return {"ph": "X", "name": name, "cat": name, "ts": first, "dur": _microseconds(end) - first}


def _flow(number: int, old: Stay, new: Stay, tracks: _Tracks) -> Iterator[Event]:
    """Yield both ends of an arrow: within the last microsecond of the old slice, and at the start of the new one."""
    last = max(_microseconds(old.end) - 1, _microseconds(old.start))
    start, end = (tracks.of(stay.slots[0], *stay.lanes[:1]) for stay in (old, new))
    yield {"ph": "s", **FLOW, "id": number, **start, "ts": last}
    yield {"ph": "f", "bp": "e", **FLOW, "id": number, **end, "ts": _microseconds(new.start)}


def _outages(run: Run, tracks: _Tracks) -> Iterator[Event]:
    """Yield a mark for each outage of a node and for the fork, and a slice for each GPU of a node that is down.

    The sentences are those of `why`.
    """
    if (fork := fork_of(run.info)) is not None:
        track = {"pid": CLUSTER_PID, "tid": 0, "ts": _microseconds(fork["time"])}
        yield {"ph": "i", "s": "g", "name": fork_sentence(run), "cat": "fork", **track}
    for outage in run.result.outage_records:
        start, end = (_microseconds(min(time, run.result.end_time)) for time in (outage.time, outage.until))
        yield {
            "ph": "i",
            "s": "p",
            "name": outage.kind,
            "cat": "outage",
            **tracks.of(Slot(outage.node, 0)),
            "ts": start,
            "args": {"what": outage_sentence(outage, run.result.end_time)},
        }
        if end > start:
            for gpu in range(outage.gpus):
                track = tracks.of(Slot(outage.node, gpu))
                yield {"ph": "X", "name": "down", "cat": "outage", **track, "ts": start, "dur": end - start}


def _counters(run: Run) -> Iterator[Event]:
    """Yield the counters of every round, and zeros when the cluster becomes idle and has no rounds until the next job.

    The queue: jobs that are submitted, not complete and without a GPU.
    """
    active, rounds = active_jobs(run.result), run.result.round_records
    idle = deque(np.unique(active.times[active.at(active.times) == 0]).tolist())
    names = (*COUNTERS, *(OF_RENTED if is_rented(run) else ()))
    for record, queue in zip(rounds, waiting_jobs(run.result).at([record.time for record in rounds]), strict=True):
        while idle and idle[0] < record.time:
            yield from _counted(idle.popleft(), COUNTERS, repeat(0))
        values = (
            int(queue),
            record.active_jobs,
            record.gpus_in_use,
            record.efficiency,
            record.nodes,
            record.hourly_cost,
        )
        yield from _counted(record.time, names, values)
    for time in idle:
        yield from _counted(time, COUNTERS, repeat(0))


def _counted(time: float, names: Iterable[tuple[str, str]], values: Iterable[float]) -> Iterator[Event]:
    for (name, unit), value in zip(names, values, strict=False):
        yield {"ph": "C", "name": name, "pid": CLUSTER_PID, "ts": _microseconds(time), "args": {unit: value}}


def _meta(kind: str, track: Event, **values: object) -> Event:
    return {"ph": "M", "name": kind, **track, "args": values}


def _microseconds(time: float) -> int:
    return round(time * 1e6)
