"""A track for every job beside those of the GPUs: when it was submitted, waited, trained and ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from polluxsim.look.stays import Stay
    from polluxsim.records import Result

    Event = dict[str, Any]


class JobTracks:
    """The jobs that a run came to as threads of one process.

    Parameters
    ----------
    result
        The run.
    pid, first_tid
        Number of the process, and of its first thread.
    """

    def __init__(self, result: Result, pid: int, first_tid: int) -> None:
        self._end = result.end_time
        self._jobs = [job for job in result.job_records if job.submit_time <= self._end]
        self._tracks = {job.job: {"pid": pid, "tid": first_tid + number} for number, job in enumerate(self._jobs)}
        self._idle_since = {job.job: job.submit_time for job in self._jobs}

    def metadata(self) -> Iterator[Event]:
        """Yield the names of the tracks, in order of submission."""
        for number, (job, track) in enumerate(self._tracks.items()):
            if not number:
                yield meta("process_name", {"pid": track["pid"]}, name="jobs")
                yield meta("process_sort_index", {"pid": track["pid"]}, sort_index=track["pid"])
            yield meta("thread_name", track, name=job)
            yield meta("thread_sort_index", track, sort_index=track["tid"])

    def stay(self, stay: Stay, slices: Iterable[Event]) -> Iterator[Event]:
        """Yield how a job waited before a stay, and the slices of that; stays of one job come in order."""
        if (track := self._tracks.get(stay.job)) is None:
            return
        yield from self._waited(stay.job, stay.start)
        self._idle_since[stay.job] = stay.end
        for each in slices:
            yield {**track, **each}

    def ends(self) -> Iterator[Event]:
        """Yield how jobs waited at last, and marks of when they were submitted and how they ended."""
        for job in self._jobs:
            end = self._end if job.left_at is None else job.left_at
            yield from self._waited(job.job, end)
            for name, time in (("submitted", job.submit_time), (str(job.status.value), end)):
                mark = {"ph": "i", "s": "t", "name": name, "cat": "job", "ts": microseconds(time)}
                yield {**mark, **self._tracks[job.job]}

    def _waited(self, job: str, until: float) -> Iterator[Event]:
        since = microseconds(self._idle_since[job])
        if (waited := microseconds(until) - since) > 0:
            yield {"ph": "X", "name": "waiting", "cat": "wait", "ts": since, "dur": waited, **self._tracks[job]}


def meta(kind: str, track: Event, **values: object) -> Event:
    """Return an event that names a track, or gives it its place."""
    return {"ph": "M", "name": kind, **track, "args": values}


def microseconds(time: float) -> int:
    """Return a time in whole microseconds, as the format has them."""
    return round(time * 1e6)
