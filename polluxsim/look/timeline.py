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
from itertools import accumulate, product, repeat
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
"""Process of the counters and of the fork. Node n is process n + 2, and jobs are the process after the last node. No
process or thread has the number 0, which means idle. Threads have numbers after those of the nodes.
"""

COUNTERS = (("queue", "jobs"), ("active", "jobs"), ("GPUs", "in use"), ("efficiency", "weighted by GPUs"))
"""Name of each counter, and of its series. Perfetto shows both names together."""

NO_COUNTS = (0,) * len(COUNTERS)  # values of the counters of an idle cluster

RENTED_COUNTERS = (("nodes", "up"), ("price", "an hour"))  # further counters if a policy rents the nodes

FLOW = {"name": "re-allocation", "cat": "re-allocation"}  # attributes of the arrows


def events(run: Run) -> Iterator[Event]:
    """Yield all events of the timeline of a run. Times are whole microseconds on the clock of the workload.

    Tracks of GPUs: a node is a process and a GPU a thread; a shared GPU has a thread for each job. A slice with the
    name of a job lasts while the job holds the GPU at one batch size. The slice `start` or `restart` before it is the
    restart delay, and slices `checkpoint` lie inside. An arrow leads from the old GPUs of a job to the new ones. An
    outage is a mark on its node, and a slice `down` on each GPU. A fork is a mark across all tracks.

    Tracks of jobs: they also have slices for waits, marks where a job lost its GPUs to an outage, and slices `lost` for
    training that a failure undid.
    """
    cluster = cluster_of(run)
    lanes = 1
    if run.result.sharing_records:
        lanes = most_lanes(_stays(run, cluster))
    tracks = _Tracks(cluster, lanes)
    jobs = _JobTracks(run.result, *tracks.first_free)
    yield from tracks.metadata()
    yield from jobs.metadata()
    yield from _fork_mark(run)
    yield from _outages(run, tracks)
    yield from _counters(run)
    applications = {job.job: job.application for job in run.result.job_records}
    delay = start_delay(run)
    pauses = Pauses(run, cluster.num_nodes)
    num_flows = 0
    for stay in _stays(run, cluster):
        application = applications.get(stay.job, "?")
        nodes = [slot.node for slot in stay.slots]
        restart_delay = delay(stay.job, application, nodes, stay.placed)
        slices = list(_slices(stay, restart_delay, application))
        for start, end in pauses.of(stay, application):
            slices.append(_slice("checkpoint", start, end))
        lost = [_slice("lost", start, end) for start, end in pauses.lost(stay, application)]
        yield from jobs.stay(stay, [*slices, *lost])
        # A stay without lanes is alone on its GPUs.
        for slot, lane in zip(stay.slots, stay.lanes or repeat(0), strict=False):
            for event in slices:
                yield {**tracks.of(slot, lane), **event}
        # The arrow ends at the first slice on new GPUs; a later slice may begin because only the batch size changed.
        if slices and stay.came_from is not None and stay.start == stay.placed:
            num_flows += 1
            yield from _flow(num_flows, stay.came_from, stay, tracks)
    yield from jobs.losses()
    yield from jobs.ends()


def _stays(run: Run, cluster: Cluster) -> Iterator[Stay]:
    return stays(run.result.allocation_records, cluster, run.result.end_time, run.result.sharing_records)


def write_timeline(run: Run, path: Path, *, packed: bool = True) -> int:
    """Write the timeline of a run, gzipped or plain, and return its number of slices. Equal runs give equal bytes."""
    num_slices = 0
    # Write event by event, so that a long run needs no memory for the text of all its events.
    with _text(path, packed=packed) as file:
        file.write('{"displayTimeUnit":"ms","traceEvents":[\n')
        separator = ""
        for event in events(run):
            file.write(separator + json.dumps(event, separators=(",", ":"), ensure_ascii=False))
            separator = ",\n"
            if event["ph"] == "X":
                num_slices += 1
        about = {"run": run.name, "policy": policy_name(settings_of(run)), "seed": run.info.get("seed")}
        if run.origin is not None:
            about["second 0"] = run.origin.time.isoformat()
        file.write(f'\n],"otherData":{json.dumps(about, ensure_ascii=False)}}}\n')
    return num_slices


@contextmanager
def _text(path: Path, *, packed: bool) -> Iterator[io.TextIOBase]:
    """Open a file for writing text, gzipped or plain."""
    with ExitStack() as stack:
        file: Any = stack.enter_context(path.open("wb"))
        if packed:
            # Without the name and the time of the file, so that equal runs give equal bytes
            file = stack.enter_context(gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0))
        yield stack.enter_context(io.TextIOWrapper(file, encoding="utf-8"))


class _Tracks:
    """The process and the threads of every GPU. A GPU has one thread for each job that it can have at once."""

    def __init__(self, cluster: Cluster, lanes: int = 1) -> None:
        self._sizes = cluster.gpus_per_node
        self._lanes = lanes
        self._first_tids = list(accumulate(self._sizes, initial=CLUSTER_PID + 1 + cluster.num_nodes))  # by node

    def of(self, slot: Slot, lane: int = 0) -> Event:
        """Return the process and the thread of a GPU and a lane."""
        tid = self._first_tids[slot.node] + slot.gpu
        # Threads of the first lane have the numbers of all GPUs in order. Those of each further lane follow them.
        return {"pid": CLUSTER_PID + 1 + slot.node, "tid": tid + lane * sum(self._sizes)}

    @property
    def first_free(self) -> tuple[int, int]:
        """Return the numbers of the first process and thread that are free."""
        last_lane = self._lanes - 1
        return CLUSTER_PID + 1 + len(self._sizes), self._first_tids[-1] + last_lane * sum(self._sizes)

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
                name = f"GPU {gpu}, job {lane + 1}" if lane else f"GPU {gpu}"
                yield _meta("thread_name", thread, name=name)
                yield _meta("thread_sort_index", thread, sort_index=gpu * self._lanes + lane)


class _JobTracks:
    """A track for every submitted job of a run: threads of one process, numbered from `first_tid`."""

    def __init__(self, result: Result, pid: int, first_tid: int) -> None:
        self._result = result
        self._jobs = submitted(result)
        self._process = {"pid": pid}
        self._tracks: dict[str, Event] = {}  # by job
        self._idle_since: dict[str, float] = {}  # end of the last stay, or the submission, by job [s]
        for number, job in enumerate(self._jobs):
            self._tracks[job.job] = {"pid": pid, "tid": first_tid + number}
            self._idle_since[job.job], _ = lifetime(result, job)

    def metadata(self) -> Iterator[Event]:
        """Yield the names of the tracks, in order of submission."""
        if self._jobs:
            yield _meta("process_name", self._process, name="jobs")
            yield _meta("process_sort_index", self._process, sort_index=self._process["pid"])
        for job, track in self._tracks.items():
            yield _meta("thread_name", track, name=job)
            yield _meta("thread_sort_index", track, sort_index=track["tid"])

    def stay(self, stay: Stay, slices: Iterable[Event]) -> Iterator[Event]:
        """Yield the wait of a job before a stay, and the slices of the stay; stays of one job come in order."""
        if stay.job not in self._tracks:
            return
        yield from self._waited(stay.job, stay.start)
        self._idle_since[stay.job] = stay.end
        for event in slices:
            yield {**self._tracks[stay.job], **event}

    def losses(self) -> Iterator[Event]:
        """Yield a mark for each loss of all GPUs because nodes went down."""
        for (job, time), text in losses(self._result).items():
            if job in self._tracks:
                yield self._mark(job, text, time)

    def ends(self) -> Iterator[Event]:
        """Yield the last waits of jobs, and marks at their submissions and ends."""
        for job in self._jobs:
            start, end = lifetime(self._result, job)
            yield from self._waited(job.job, end)
            submission = "submitted"
            if not job.is_counted:
                submission = "submitted before the run"
            yield self._mark(job.job, submission, start)
            yield self._mark(job.job, job.status.value, end)

    def _mark(self, job: str, text: str, time: float) -> Event:
        return {"ph": "i", "s": "t", "name": text, "cat": "job", "ts": _microseconds(time), **self._tracks[job]}

    def _waited(self, job: str, until: float) -> Iterator[Event]:
        """Yield the wait of a job that ends at a time [s], if it was without GPUs."""
        # Round before the subtraction, so that the slice ends exactly where the next one begins.
        since = _microseconds(self._idle_since[job])
        waited = _microseconds(until) - since
        if waited > 0:
            yield {"ph": "X", "name": "waiting", "cat": "wait", "ts": since, "dur": waited, **self._tracks[job]}


def _slices(stay: Stay, delay: float, application: str) -> Iterator[Event]:
    """Yield the slices of a stay for each of its GPUs: the rest of the restart delay [s], and the training."""
    nodes = {slot.node for slot in stay.slots}
    args = {
        "job": stay.job,
        "application": application,
        "batch size": stay.batch_size,
        "accumulation steps": stay.accumulation_steps,
        "GPUs": len(stay.slots),
        "nodes": len(nodes),
        "restarts": stay.restarts,
    }
    if stay.lanes:
        args["speed beside others"] = round(stay.speed, 4)
    start = _microseconds(stay.start)
    end = _microseconds(stay.end)
    # A batch size can change during the restart delay. So the delay can reach into this stay, or beyond it.
    ready = min(max(start, _microseconds(stay.placed + delay)), end)
    if ready > start:
        name = "restart" if stay.restarts else "start"
        yield {"ph": "X", "name": name, "cat": "restart", "ts": start, "dur": ready - start, "args": args}
    if end > ready:
        yield {"ph": "X", "name": stay.job, "cat": "job", "ts": ready, "dur": end - ready, "args": args}


def _slice(name: str, start: float, end: float) -> Event:
    """Return a slice between two times [s], without its track."""
    first = _microseconds(start)
    return {"ph": "X", "name": name, "cat": name, "ts": first, "dur": _microseconds(end) - first}


def _flow(number: int, old: Stay, new: Stay, tracks: _Tracks) -> Iterator[Event]:
    """Yield both ends of an arrow: within the last microsecond of the old slice, and at the start of the new one."""
    # An arrow belongs to a slice only if it begins inside. The end of a slice is not part of it.
    last = max(_microseconds(old.end) - 1, _microseconds(old.start))
    yield {"ph": "s", **FLOW, "id": number, **_first_track(old, tracks), "ts": last}
    yield {"ph": "f", "bp": "e", **FLOW, "id": number, **_first_track(new, tracks), "ts": _microseconds(new.start)}


def _first_track(stay: Stay, tracks: _Tracks) -> Event:
    """Return the process and the thread of the first GPU of a stay."""
    lane = 0
    if stay.lanes:
        lane = stay.lanes[0]
    return tracks.of(stay.slots[0], lane)


def _fork_mark(run: Run) -> Iterator[Event]:
    """Yield a mark for the fork of a run, with the sentence of `why`."""
    fork = fork_of(run.info)
    if fork is not None:
        track = {"pid": CLUSTER_PID, "tid": CLUSTER_PID, "ts": _microseconds(fork["time"])}
        yield {"ph": "i", "s": "g", "name": fork_sentence(run), "cat": "fork", **track}


def _outages(run: Run, tracks: _Tracks) -> Iterator[Event]:
    """Yield a mark for each outage of a node, with the sentence of `why`, and a slice for each GPU that is down."""
    end_time = run.result.end_time
    for outage in run.result.outage_records:
        start = _microseconds(min(outage.time, end_time))
        end = _microseconds(min(outage.until, end_time))
        yield {
            "ph": "i",
            "s": "p",
            "name": outage.kind,
            "cat": "outage",
            **tracks.of(Slot(outage.node, 0)),
            "ts": start,
            "args": {"what": outage_sentence(outage, end_time)},
        }
        if end > start:
            for gpu in range(outage.gpus):
                track = tracks.of(Slot(outage.node, gpu))
                yield {"ph": "X", "name": "down", "cat": "outage", **track, "ts": start, "dur": end - start}


def _counters(run: Run) -> Iterator[Event]:
    """Yield the counters of every round, and zeros when the cluster becomes idle and rounds stop."""
    rounds = run.result.round_records
    active = active_jobs(run.result)
    idle = deque(np.unique(active.times[active.at(active.times) == 0]).tolist())
    round_times = [record.time for record in rounds]
    waiting = waiting_jobs(run.result).at(round_times)
    rented = is_rented(run)
    for record, queue in zip(rounds, waiting, strict=True):
        # Perfetto draws a counter at its last value until the next one, also while no round takes place.
        while idle and idle[0] < record.time:
            yield from _counted(idle.popleft(), COUNTERS, NO_COUNTS)
        values = (int(queue), record.active_jobs, record.gpus_in_use, record.efficiency)
        yield from _counted(record.time, COUNTERS, values)
        if rented:
            yield from _counted(record.time, RENTED_COUNTERS, (record.nodes, record.hourly_cost))
    for time in idle:
        yield from _counted(time, COUNTERS, NO_COUNTS)


def _counted(time: float, names: Iterable[tuple[str, str]], values: Iterable[float]) -> Iterator[Event]:
    """Yield the values of counters at a time [s]."""
    for (name, unit), value in zip(names, values, strict=True):
        yield {"ph": "C", "name": name, "pid": CLUSTER_PID, "ts": _microseconds(time), "args": {unit: value}}


def _meta(kind: str, track: Event, **values: object) -> Event:
    return {"ph": "M", "name": kind, **track, "args": values}


def _microseconds(time: float) -> int:
    return round(time * 1e6)
