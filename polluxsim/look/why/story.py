"""Explain a whole job, or a job at one time, from its allocations and from the reasons that the policy recorded."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from itertools import pairwise, product
from math import inf, isinf, nextafter
from operator import attrgetter
from types import MappingProxyType
from typing import NamedTuple

from rich.markup import escape
from rich.table import Table

from polluxsim.common.durations import HOUR, clock
from polluxsim.common.errors import InvalidInputError
from polluxsim.hardware.placements import Gpus
from polluxsim.look.occupancy import gpus_by_node
from polluxsim.look.why.events import MOST_NODES, fork_sentence, lost, nodes_text, outages_by_node
from polluxsim.look.why.phrases import listed, number_of, percent
from polluxsim.look.why.sentences import sentence
from polluxsim.metrics.outcomes import NEVER_STARTED, outcome
from polluxsim.metrics.summary import waiting_time
from polluxsim.records.results import AllocationRecord, JobRecord, ReasonRecord, Status
from polluxsim.records.storage import Run
from polluxsim.statistics.series import ALONE, Share, Stretch, active_jobs, gpus_in_use, instants, lifetime, shares_of

GpusByNode = dict[int, int]


class Stage(NamedTuple):
    """A period in the life of a job with equal GPUs by node, or without any."""

    start: float  # [s]
    end: float  # [s]
    before: Mapping[int, int]  # GPUs by node before the stage
    gpus: Mapping[int, int]  # GPUs by node
    batch_sizes: tuple[int, ...]  # total batch sizes in order [examples]
    given_by: Mapping[str, int]  # GPUs that the job got at the start from other jobs, by job
    taken_by: Mapping[str, int]  # GPUs that other jobs got from it at the start, by job
    has_run: bool = False  # whether the job held GPUs before
    failed: Mapping[int, str] = MappingProxyType({})  # the kind of outage by node, if the job lost all GPUs to outages

    @property
    def event(self) -> str:
        """Return the event at the start of the stage, in a word."""
        before, now = sum(self.before.values()), sum(self.gpus.values())
        if not now:
            return "failed" if self.failed else "paused" if before else "waits"
        if not before:
            if self.has_run and self.start == 0:
                return "ran before"
            return "resumed" if self.has_run else "started"
        return "moved" if before == now else "grew" if now > before else "shrank"


class Moment(NamedTuple):
    """The cluster at one time."""

    holders: Mapping[str, int]  # GPUs that a job holds, by job
    active_jobs: int  # jobs submitted and not complete
    gpus_in_use: int  # a shared GPU counts once


def stages(run: Run, job: JobRecord) -> list[Stage]:
    """Return the stages of a job in order, from its submission to its end or the end of the run."""
    start, end = lifetime(run.result, job)
    placed: dict[str, GpusByNode] = {}
    outages = outages_by_node(run.result)
    found = [Stage(start, end, {}, {}, (), {}, {})] if start < end else []
    shared: dict[str, Share] = {}
    for time, changes, shares in instants(run.result.allocation_records, run.result.sharing_records):
        last = {name: records[-1] for name, records in changes.items()}
        if job.job in last and time < end:
            stage = _stage_at(time, end, job.job, placed, last)
            if job.job in shares or job.job in shared:
                given_by, taken_by = _exchanged(job.job, shared, shares)
                stage = stage._replace(given_by=given_by, taken_by=taken_by)
            down = {node: outages[time, node] for node in stage.before if (time, node) in outages}
            failed = {} if stage.gpus else down
            ran_before = job.start_time is not None and job.start_time < 0
            stage = stage._replace(has_run=ran_before or any(each.gpus for each in found), failed=failed)
            if found and found[-1].gpus == stage.gpus:
                found[-1] = found[-1]._replace(batch_sizes=found[-1].batch_sizes + stage.batch_sizes)
            else:
                found = [*found[:-1], *(each._replace(end=time) for each in found[-1:]), stage]
        placed |= {name: gpus_by_node(record) for name, record in last.items()}
        shared |= shares
    return [stage for stage in found if stage.end > stage.start]


def moment(run: Run, time: float) -> Moment:
    """Return the cluster at a time [s], after all events at this time."""
    held = dict[str, int]()
    for record in run.result.allocation_records:
        if record.time > time:
            break
        held[record.job] = sum(record.gpus)
    active, in_use = (int(steps(run.result).at(time)) for steps in (active_jobs, gpus_in_use))
    return Moment({job: gpus for job, gpus in held.items() if gpus}, active, in_use)


def _stage_at(
    time: float, end: float, job: str, placed: Mapping[str, GpusByNode], changes: Mapping[str, AllocationRecord]
) -> Stage:
    """Return the stage of a job from a time on [s], from the last allocations of all jobs and the changes then."""
    before, now = placed.get(job, {}), gpus_by_node(changes[job])
    others = {name: (placed.get(name, {}), gpus_by_node(record)) for name, record in changes.items() if name != job}
    return Stage(
        time,
        end,
        before,
        now,
        (changes[job].batch_size,) if now else (),
        given_by=_matched(_increase(before, now), {name: _increase(new, old) for name, (old, new) in others.items()}),
        taken_by=_matched(_increase(now, before), {name: _increase(old, new) for name, (old, new) in others.items()}),
    )


def _exchanged(job: str, before: Mapping[str, Share], now: Mapping[str, Share]) -> tuple[Counter[str], Counter[str]]:
    """Return the jobs that gave numbered GPUs to a job, and the jobs that took its GPUs."""
    had = set(before.get(job, ALONE).gpus)
    has = set(now[job].gpus) if job in now else had
    given_by, taken_by = Counter[str](), Counter[str]()
    for name in now.keys() - {job}:
        old, new = (set(shares.get(name, ALONE).gpus) for shares in (before, now))
        given_by[name] = len((has - had) & (old - new))
        taken_by[name] = len((had - has) & (new - old))
    return +given_by, +taken_by


def _increase(before: Mapping[int, int], now: Mapping[int, int]) -> GpusByNode:
    """Return the additional GPUs, by node on which there are any."""
    return {node: gpus - before.get(node, 0) for node, gpus in now.items() if gpus > before.get(node, 0)}


def _matched(wanted: GpusByNode, others: Mapping[str, GpusByNode]) -> Counter[str]:
    """Return how many of the wanted GPUs each of the other jobs can have exchanged, by nodes."""
    found = Counter[str]()
    for (node, gpus), (name, theirs) in product(wanted.items(), others.items()):
        found[name] += min(gpus, theirs.get(node, 0))
    return +found


MOST_NAMES = 4  # largest number of jobs that a sentence names

_NEVER_SUBMITTED = "never submitted: a job that it waited for did not complete"


def find_job(run: Run, name: str) -> JobRecord:
    """Return the record of a job. Raise InvalidInputError if the run has no job of this name."""
    jobs = {job.job: job for job in run.result.job_records}
    if name in jobs:
        return jobs[name]
    hint = f"it has {number_of(len(jobs), 'job')}, like {next(iter(jobs), '–')}"
    if close := get_close_matches(name, jobs, n=3, cutoff=0.5):
        hint = f"nearest are {', '.join(close)}"
    if left_out := [note for note in run.info.get("notes", ()) if note.endswith("left out")]:
        hint += f"; the workload states:  {', '.join(left_out)}"
    raise InvalidInputError(f"run {run.name} has no job {name!r}; {hint}")


def summary(run: Run, job: JobRecord) -> str:
    """Return the life of a job in a line."""
    if isinf(job.submit_time):
        return f"{job.job} ({job.application}), {_NEVER_SUBMITTED}"
    if job.submit_time > (end := run.result.end_time):
        return f"{job.job} ({job.application}), not submitted before the run ended, at {clock(end)}"
    parts = [f"{job.job} ({job.application})", f"submitted {clock(job.submit_time)}"]
    if job.start_time is not None and job.queueing_delay is not None:
        parts.append(f"started {clock(job.start_time)} after {clock(job.queueing_delay)}")
        since = "in total" if job.is_counted else "since the start of the run"
        parts.append(f"waited {clock(waiting_time(job, run.result.end_time))} {since}")
    if job.completion_time is not None and job.jct is not None:
        parts.append(f"completed {clock(job.completion_time)} after {clock(job.jct)}")
    else:
        end = run.result.end_time
        if outcome(job, end) == NEVER_STARTED:
            parts.append(NEVER_STARTED)
        parts.append(f"{job.status} at {clock(lifetime(run.result, job)[1])}")
    restarts = number_of(job.num_restarts, "restart")
    if job.num_failures:
        parts.append(f"{number_of(job.num_failures, 'failure')} that cost {clock(job.lost_time)}")
        restarts = number_of(job.num_restarts, "other restart")
    if not job.is_counted:
        parts.append("in no metric, because it was submitted before the start of the run")
    parts += [restarts, f"{job.gpu_seconds / HOUR:.2f} GPU-hours"]
    return ", ".join(parts)


def story(run: Run, reasons: Sequence[ReasonRecord], job: JobRecord) -> Table | str:
    """Return a table with a row for each stage of a job: its start, duration, event and reason.

    Return only a line for a job that was not submitted before the end of the run.
    """
    if not (all_stages := stages(run, job)):
        return escape(summary(run, job))
    table = Table(
        title=escape(summary(run, job)),
        title_justify="left",
        show_lines=True,
        caption=escape(fork_sentence(run)) or None,
        caption_justify="left",
    )
    for name in ("from", "for"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("what", max_width=34)
    table.add_column("why")
    mine, stretches = [reason for reason in reasons if reason.job == job.job], shares_of(run.result, job.job)
    for stage in all_stages:
        within = [reason for reason in mine if stage.start <= reason.time < stage.end]
        if stage is all_stages[-1]:
            within += rejections(reasons, job)
        what = "\n".join([happened(stage), *beside(stretches, stage.start, stage.end)])
        cells = (clock(stage.start), clock(stage.end - stage.start), what, _why(run, stage, within))
        table.add_row(*map(escape, cells))
    return table


def at(run: Run, reasons: Sequence[ReasonRecord], job: JobRecord, time: float) -> str:
    """Return a paragraph with the state of a job at a time [s], and the reason for it."""
    if outside := _outside(run, job, time):
        return " ".join([outside, *(sentence(reason) for reason in rejections(reasons, job) if reason.time <= time)])
    found = stages(run, job)
    # At the end of the run, the last stage is over.
    stage = next((each for each in found if each.start <= time < each.end), found[-1])
    state = f"holds {_where(stage.gpus)}" if stage.gpus else "waits without a GPU"
    sentences = [f"At {clock(time)} {job.job} {state}, since {clock(stage.start)}."]
    if stage.gpus or stage.before:
        event = happened(stage, paused="was paused and lost")
        sentences.append(f"At {clock(stage.start)} it {event}.")
    if stage.gpus:
        sentences += [f"{each}." for each in beside(shares_of(run.result, job.job), time, nextafter(time, inf))]
    recorded = [reason for reason in reasons if reason.job == job.job and stage.start <= reason.time <= time]
    if recorded:
        reason = recorded[-1]
        when = "" if reason.time == time else f"The last reason was recorded at {clock(reason.time)}: "
        sentences.append(f"{when}{sentence(reason)}")
    sentences += [_cluster(run, time), fork_sentence(run)]
    return " ".join(filter(None, sentences))


def rejections(reasons: Sequence[ReasonRecord], job: JobRecord) -> list[ReasonRecord]:
    """Return the reasons for which a job was rejected, recorded as it ended; empty if it was not rejected."""
    is_rejected = job.status is Status.REJECTED
    return [each for each in reasons if is_rejected and each.job == job.job and each.time == job.end_time]


def waits(run: Run, job: JobRecord, time: float) -> bool:
    """Return whether a job waits without a GPU at a time [s]."""
    inside = _outside(run, job, time) is None
    return inside and any(each.start <= time < each.end and not each.gpus for each in stages(run, job))


def would_have_run(time: float, nodes: int | None, gpus: int | None, place: tuple[int | None, str]) -> str:
    """Return a sentence on the changes that would have let a job run at a round [s], each by itself.

    The changes are a number of additional nodes, another number of requested GPUs, and a number of places further ahead
    in the queue, with the name of the job that would be next. None means that no change of this kind would have
    sufficed.
    """
    changes = []
    if nodes is not None:
        changes.append(f"with {number_of(nodes, 'more node')}")
    if gpus is not None:
        changes.append(f"had it asked for {number_of(gpus, 'GPU')}")
    if place[0] is not None:
        changes.append(f"{number_of(place[0], 'place')} further ahead in the queue, before {place[1]}")
    if not changes:
        return f"At {clock(time)} neither more nodes, a smaller request nor another place in the queue lets it run."
    return f"At {clock(time)} it would have run {', or '.join(changes)}."


def beside(stretches: Sequence[Stretch], start: float, end: float) -> list[str]:
    """Return phrases on the jobs that shared GPUs with a job between two times [s], and on its speeds.

    Of many changes, the phrases describe the first ones and the last one.
    """
    begun = bisect_right(stretches, start, key=attrgetter("start"))
    within = [each for each in stretches[max(begun - 1, 0) :] if each.start < end and each.others]
    phrases = [_shares(each) for each in within[:MOST_NAMES] + within[MOST_NAMES:][-1:]]
    if more := len(within) - len(phrases):
        phrases.insert(MOST_NAMES, f"then {number_of(more, 'change')} of the other jobs or the speeds")
    return phrases


def _shares(stretch: Stretch) -> str:
    """Return the jobs that share GPUs with a job, and the speed of each relative to its speed alone."""
    names_on: dict[Gpus, list[str]] = {}
    for name, (gpus, speed) in stretch.others.items():
        names_on.setdefault(gpus, []).append(f"{name} ({percent(speed)})")
    shared = [f"{_numbered(gpus)} with {listed(names)}" for gpus, names in names_on.items()]
    return f"Since {clock(stretch.start)} at {percent(stretch.speed)} of its speed alone: it shares {listed(shared)}"


def _numbered(gpus: Gpus) -> str:
    """Return GPUs by number.

    >>> _numbered(((0, 0), (0, 1), (2, 3)))
    'GPUs 0, 1 of node 0 and GPU 3 of node 2'
    """
    numbers_on: dict[int, list[str]] = {}
    for node, number in gpus:
        numbers_on.setdefault(node, []).append(str(number))
    if len(numbers_on) > MOST_NODES:
        return f"{len(gpus)} GPUs on {len(numbers_on)} nodes"
    return listed([f"GPU{'s' * (len(on) > 1)} {', '.join(on)} of node {node}" for node, on in numbers_on.items()])


def happened(stage: Stage, paused: str = "paused, had") -> str:
    """Return the event at the start of a stage, with the jobs that gave or got the GPUs.

    `paused` begins the phrase on a pause, which ends with the GPUs that the job held before.
    """
    before, now, where = sum(stage.before.values()), sum(stage.gpus.values()), _where(stage.gpus)
    what = {
        "waits": "waits",
        "paused": f"{paused} {number_of(before, 'GPU')}",
        "failed": lost(before, stage.failed),
        "started": f"started on {where}",
        "resumed": f"resumed on {where}",
        "ran before": f"runs since before the start of the run, on {where}",
        "grew": f"grew from {before} to {where}",
        "shrank": f"shrank from {before} to {where}",
        "moved": f"moved its {now} to {where}",
    }[stage.event]
    if sizes := stage.batch_sizes:
        what += f", batch size {sizes[0]}" + (f" to {sizes[-1]}" if sizes[-1] != sizes[0] else "")
    if stage.given_by:
        what += f"; from {_counted(stage.given_by)}"
    if stage.taken_by:
        what += f"; gave way to {_counted(stage.taken_by)}"
    return what


def _why(run: Run, stage: Stage, reasons: Sequence[ReasonRecord]) -> str:
    """Return the reasons within a stage, each time that the kind of the reason changes, and the last one of a wait."""
    if not reasons:
        return _before_first_round(run, stage)
    chosen = [reasons[0], *(now for before, now in pairwise(reasons) if now.kind != before.kind)]
    if chosen[-1] is not reasons[-1] and not stage.gpus:
        chosen.append(reasons[-1])
    return "\n".join([sentence(chosen[0]), *(f"At {clock(reason.time)}: {sentence(reason)}" for reason in chosen[1:])])


def _before_first_round(run: Run, stage: Stage) -> str:
    """Return why a stage has no reason: it was a wait that ended before the next round; otherwise a dash."""
    rounds = [record.time for record in run.result.round_records]
    first = bisect_left(rounds, stage.start)
    if not stage.gpus and first < len(rounds) and rounds[first] >= stage.end:
        what = "It lost them" if stage.failed else "Submitted"
        return f"{what} between two rounds: the next one was at {clock(rounds[first])}."
    return "–"


def _outside(run: Run, job: JobRecord, time: float) -> str | None:
    """Return that a job neither waits nor runs at a time [s], in a sentence; None if it does."""
    if isinf(job.submit_time):
        return f"{job.job} was {_NEVER_SUBMITTED}."
    if time < job.submit_time:
        return f"At {clock(time)} {job.job} was not submitted yet: that was at {clock(job.submit_time)}."
    return _afterwards(run, job, time)


def _afterwards(run: Run, job: JobRecord, time: float) -> str | None:
    """Return that a job or the run has ended at a time [s], in a sentence; None if not."""
    if job.completion_time is not None and time >= job.completion_time:
        return f"At {clock(time)} {job.job} was complete: it completed at {clock(job.completion_time)}."
    if job.completion_time is None and job.end_time is not None and time >= job.end_time:
        return f"At {clock(time)} {job.job} was {job.status}, since {clock(job.end_time)}."
    if lifetime(run.result, job)[0] == run.result.end_time:
        return f"{job.job} was submitted at {clock(job.submit_time)}, as the run ended."
    if time > run.result.end_time:
        return f"The run ended at {clock(run.result.end_time)}, before {clock(time)}; {job.job} was not complete."
    return None


def _cluster(run: Run, time: float) -> str:
    """Return a sentence on the GPUs that jobs hold at a time [s]."""
    now = moment(run, time)
    top = _with_most_gpus(now.holders)
    gpus, jobs = number_of(now.gpus_in_use, "GPU"), f"{len(now.holders)} of {now.active_jobs} active jobs"
    return f"At {clock(time)}, {gpus} of the cluster were held by {jobs}{f', most by {top}' if top else ''}."


def _where(gpus: Mapping[int, int]) -> str:
    """Return GPUs by node as text: their number, and the nodes."""
    count = number_of(sum(gpus.values()), "GPU")
    return f"{count} {'on' if len(gpus) > MOST_NODES else 'of'} {nodes_text(sorted(gpus))}"


def _with_most_gpus(counts: Mapping[str, int]) -> str:
    """Return the jobs with the most GPUs, and the number of GPUs of each."""
    largest = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{name} ({gpus})" for name, gpus in largest[:MOST_NAMES])


def _counted(counts: Mapping[str, int]) -> str:
    more = f" and {len(counts) - MOST_NAMES} more" if len(counts) > MOST_NAMES else ""
    return _with_most_gpus(counts) + more
