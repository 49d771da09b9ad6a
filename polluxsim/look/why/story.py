"""Explain a whole job, or a job at one time, from its allocations and from the reasons that the policy recorded."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
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
from polluxsim.metrics.summary import waiting_time
from polluxsim.records.results import AllocationRecord, JobRecord, ReasonRecord
from polluxsim.records.storage import Run
from polluxsim.statistics.series import ALONE, Share, Stretch, active_jobs, gpus_in_use, instants, lifetime, shares_of

GpusByNode = dict[int, int]


class Stage(NamedTuple):
    """A period in a job's life [s] with equal GPUs by node, or without any."""

    start: float
    end: float
    before: Mapping[int, int]
    gpus: Mapping[int, int]
    batch_sizes: tuple[int, ...]  # total batch sizes in order [examples]
    given_by: Mapping[str, int]  # GPUs that the job got at the start from other jobs, by job
    taken_by: Mapping[str, int]  # GPUs that other jobs got from it at the start, by job
    has_run: bool = False  # whether the job held GPUs before
    failed: Mapping[int, str] = MappingProxyType({})  # the kind of outage by node, if the job lost all GPUs to outages

    @property
    def what(self) -> str:
        """Return what happened at the start of the stage, in a word."""
        had, has = sum(self.before.values()), sum(self.gpus.values())
        if not has:
            return "failed" if self.failed else "paused" if had else "waits"
        if not had:
            return "resumed" if self.has_run else "started"
        return "moved" if had == has else "grew" if has > had else "shrank"


class Moment(NamedTuple):
    """The cluster at one time: GPUs that each job holds, and the number of GPUs that any job holds."""

    holders: Mapping[str, int]
    active_jobs: int
    gpus_in_use: int


def stages(run: Run, job: JobRecord) -> list[Stage]:
    """Return the stages of a job in order, from its submission to its end or the end of the run."""
    _, end = lifetime(run.result, job)
    placed: dict[str, GpusByNode] = {}
    fell = outages_by_node(run.result)
    found = [Stage(job.submit_time, end, {}, {}, (), {}, {})] if job.submit_time < end else []
    shared: dict[str, Share] = {}
    for time, changes, shares in instants(run.result.allocation_records, run.result.sharing_records):
        last = {name: records[-1] for name, records in changes.items()}
        if job.job in last and time < end:
            stage = _stage_at(time, end, job.job, placed, last)
            if job.job in shares or job.job in shared:
                given_by, taken_by = _exchanged(job.job, shared, shares)
                stage = stage._replace(given_by=given_by, taken_by=taken_by)
            failed = {} if stage.gpus else {node: fell[time, node] for node in stage.before if (time, node) in fell}
            stage = stage._replace(has_run=any(each.gpus for each in found), failed=failed)
            if found and found[-1].gpus == stage.gpus:
                found[-1] = found[-1]._replace(batch_sizes=found[-1].batch_sizes + stage.batch_sizes)
            else:
                found = [*found[:-1], *(each._replace(end=time) for each in found[-1:]), stage]
        placed |= {name: gpus_by_node(record) for name, record in last.items()}
        shared |= shares
    return [stage for stage in found if stage.end > stage.start]


def moment(run: Run, time: float) -> Moment:
    """Return the jobs that hold GPUs just after an event at a time [s]."""
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
    before, now = placed.get(job, {}), gpus_by_node(changes[job])
    others = {name: (placed.get(name, {}), gpus_by_node(record)) for name, record in changes.items() if name != job}
    return Stage(
        time,
        end,
        before,
        now,
        (changes[job].batch_size,) if now else (),
        given_by=_matched(_risen(before, now), {name: _risen(new, old) for name, (old, new) in others.items()}),
        taken_by=_matched(_risen(now, before), {name: _risen(old, new) for name, (old, new) in others.items()}),
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


def _risen(before: Mapping[int, int], now: Mapping[int, int]) -> GpusByNode:
    return {node: gpus - before.get(node, 0) for node, gpus in now.items() if gpus > before.get(node, 0)}


def _matched(wanted: GpusByNode, others: Mapping[str, GpusByNode]) -> Counter[str]:
    """Return, for each of the other jobs, its number of GPUs on the same nodes, at most as many as `wanted`."""
    found = Counter[str]()
    for (node, gpus), (name, theirs) in product(wanted.items(), others.items()):
        found[name] += min(gpus, theirs.get(node, 0))
    return +found


def largest(counts: Mapping[str, int], most: int) -> Iterable[tuple[str, int]]:
    """Return the largest counts, by name at a tie."""
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:most]


MOST_NAMES = 4

_NEVER_SUBMITTED = "never submitted: a job that it waited for did not complete"


def find_job(run: Run, name: str) -> JobRecord:
    """Return a job's record."""
    jobs = {job.job: job for job in run.result.job_records}
    if name in jobs:
        return jobs[name]
    hint = f"it has {number_of(len(jobs), 'job')}, like {next(iter(jobs), '–')}"
    if close := get_close_matches(name, jobs, n=3, cutoff=0.5):
        hint = f"nearest are {', '.join(close)}"
    raise InvalidInputError(f"run {run.name} has no job {name!r}; {hint}")


def summary(run: Run, job: JobRecord) -> str:
    """Return a job's life in a line."""
    if isinf(job.submit_time):
        return f"{job.job} ({job.application}), {_NEVER_SUBMITTED}"
    said = [f"{job.job} ({job.application})", f"submitted {clock(job.submit_time)}"]
    if job.start_time is not None and job.queueing_delay is not None:
        said.append(f"started {clock(job.start_time)} after {clock(job.queueing_delay)}")
        said.append(f"waited {clock(waiting_time(job, run.result.end_time))} in total")
    if job.completion_time is not None and job.jct is not None:
        said.append(f"completed {clock(job.completion_time)} after {clock(job.jct)}")
    else:
        said.append(f"{job.status} at {clock(lifetime(run.result, job)[1])}")
    if job.num_failures:
        said.append(f"{number_of(job.num_failures, 'failure')} that cost {clock(job.lost_time)}")
    said += [number_of(job.num_restarts, "restart"), f"{job.gpu_seconds / HOUR:.2f} GPU-hours"]
    return ", ".join(said)


def story(run: Run, reasons: Sequence[ReasonRecord], job: JobRecord) -> Table | str:
    """Return a table with a row for each stage of a job: its start, duration, event and reason.

    Of a job that was never submitted, or only as the run ended, it is a line.
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
        what = "\n".join([happened(stage), *beside(stretches, stage.start, stage.end)])
        cells = (clock(stage.start), clock(stage.end - stage.start), what, _why(run, stage, within))
        table.add_row(*map(escape, cells))
    return table


def at(run: Run, reasons: Sequence[ReasonRecord], job: JobRecord, time: float) -> str:
    """Return a paragraph with the state of a job at a time [s], and the reason for it."""
    if outside := _outside(run, job, time):
        return outside
    found = stages(run, job)
    stage = next((each for each in found if each.start <= time < each.end), found[-1])  # at the run's very end the last
    said = [f"At {clock(time)} {job.job} {_stands(stage)}."]
    if stage.gpus or stage.before:
        said.append(f"At {clock(stage.start)} it {happened(stage).replace('paused, had', 'was paused and lost', 1)}.")
    if stage.gpus:
        said += [f"{each}." for each in beside(shares_of(run.result, job.job), time, nextafter(time, inf))]
    mine = [reason for reason in reasons if reason.job == job.job and reason.time >= stage.start]
    known = bisect_right(mine, time, key=attrgetter("time"))
    if known:
        reason = mine[known - 1]
        when = "" if reason.time == time else f"The last reason was recorded at {clock(reason.time)}: "
        said.append(f"{when}{sentence(reason)}")
    said += [_cluster(run, time), fork_sentence(run)]
    return " ".join(filter(None, said))


def waits(run: Run, job: JobRecord, time: float) -> bool:
    """Return whether a job waits without a GPU at a time [s]."""
    inside = _outside(run, job, time) is None
    return inside and any(each.start <= time < each.end and not each.gpus for each in stages(run, job))


def would_have_run(time: float, nodes: int | None, gpus: int | None, place: tuple[int | None, str]) -> str:
    """Return a sentence on the changes that would have let a job run at a round [s], each by itself.

    The changes are a number of additional nodes, another number of requested GPUs, and a number of places further ahead
    with the name of the job behind. None means that no change of this kind would have sufficed.
    """
    said = []
    if nodes is not None:
        said.append(f"with {number_of(nodes, 'more node')}")
    if gpus is not None:
        said.append(f"had it asked for {number_of(gpus, 'GPU')}")
    if place[0] is not None:
        said.append(f"{number_of(place[0], 'place')} further ahead in the queue, before {place[1]}")
    if not said:
        return f"At {clock(time)} neither more nodes, a smaller request nor another place in the queue lets it run."
    return f"At {clock(time)} it would have run {', or '.join(said)}."


def beside(stretches: Sequence[Stretch], start: float, end: float) -> list[str]:
    """Return the jobs that shared GPUs with a job between two times, and its speeds. Long lists are cut."""
    known = bisect_right(stretches, start, key=attrgetter("start"))
    within = [each for each in stretches[max(known - 1, 0) :] if each.start < end and each.others]
    said = [_shares(each) for each in within[:MOST_NAMES] + within[MOST_NAMES:][-1:]]
    if len(within) > len(said):
        said.insert(MOST_NAMES, f"then {number_of(len(within) - len(said), 'change')} of the other jobs or the speeds")
    return said


def _shares(stretch: Stretch) -> str:
    on: dict[Gpus, list[str]] = {}
    for name, (gpus, speed) in stretch.others.items():
        on.setdefault(gpus, []).append(f"{name} ({percent(speed)})")
    shared = [f"{_numbered(gpus)} with {listed(names)}" for gpus, names in on.items()]
    return f"Since {clock(stretch.start)} at {percent(stretch.speed)} of its speed alone: it shares {listed(shared)}"


def _numbered(gpus: Gpus) -> str:
    """Return GPUs by number.

    >>> _numbered(((0, 0), (0, 1), (2, 3)))
    'GPUs 0, 1 of node 0 and GPU 3 of node 2'
    """
    on: dict[int, list[str]] = {}
    for node, number in gpus:
        on.setdefault(node, []).append(str(number))
    if len(on) > MOST_NODES:
        return f"{len(gpus)} GPUs on {len(on)} nodes"
    return listed([f"GPU{'s' * (len(there) > 1)} {', '.join(there)} of node {node}" for node, there in on.items()])


def happened(stage: Stage) -> str:
    """Return the event at the start of a stage, with the jobs that gave or got the GPUs."""
    before, now, where = sum(stage.before.values()), sum(stage.gpus.values()), _where(stage.gpus)
    what = {
        "waits": "waits",
        "paused": f"paused, had {number_of(before, 'GPU')}",
        "failed": lost(before, stage.failed),
        "started": f"started on {where}",
        "resumed": f"resumed on {where}",
        "grew": f"grew from {before} to {where}",
        "shrank": f"shrank from {before} to {where}",
        "moved": f"moved its {now} to {where}",
    }[stage.what]
    if sizes := stage.batch_sizes:
        what += f", batch size {sizes[0]}" + (f" to {sizes[-1]}" if sizes[-1] != sizes[0] else "")
    if stage.given_by:
        what += f"; from {_counted(stage.given_by)}"
    if stage.taken_by:
        what += f"; gave way to {_counted(stage.taken_by)}"
    return what


def _why(run: Run, stage: Stage, reasons: Sequence[ReasonRecord]) -> str:
    if not reasons:
        return _before_first_round(run, stage)
    told = [reasons[0], *(now for before, now in pairwise(reasons) if now.kind != before.kind)]
    if told[-1] is not reasons[-1] and not stage.gpus:
        told.append(reasons[-1])
    return "\n".join([sentence(told[0]), *(f"At {clock(reason.time)}: {sentence(reason)}" for reason in told[1:])])


def _before_first_round(run: Run, stage: Stage) -> str:
    rounds = [record.time for record in run.result.round_records]
    first = bisect_left(rounds, stage.start)
    if not stage.gpus and first < len(rounds) and rounds[first] >= stage.end:
        what = "It lost them" if stage.failed else "Submitted"
        return f"{what} between two rounds: the next one was at {clock(rounds[first])}."
    return "–"


def _outside(run: Run, job: JobRecord, time: float) -> str | None:
    if isinf(job.submit_time):
        return f"{job.job} was {_NEVER_SUBMITTED}."
    if time < job.submit_time:
        return f"At {clock(time)} {job.job} was not submitted yet: that was at {clock(job.submit_time)}."
    return _afterwards(run, job, time)


def _afterwards(run: Run, job: JobRecord, time: float) -> str | None:
    if job.completion_time is not None and time >= job.completion_time:
        return f"At {clock(time)} {job.job} was complete: it completed at {clock(job.completion_time)}."
    if job.completion_time is None and job.end_time is not None and time >= job.end_time:
        return f"At {clock(time)} {job.job} was {job.status}, since {clock(job.end_time)}."
    if job.submit_time == run.result.end_time:
        return f"{job.job} was submitted at {clock(job.submit_time)}, as the run ended."
    if time > run.result.end_time:
        return f"The run ended at {clock(run.result.end_time)}, before {clock(time)}; {job.job} was not complete."
    return None


def _stands(stage: Stage) -> str:
    since = f"since {clock(stage.start)}"
    return f"holds {_where(stage.gpus)}, {since}" if stage.gpus else f"waits without a GPU, {since}"


def _cluster(run: Run, time: float) -> str:
    now = moment(run, time)
    top = ", ".join(f"{name} ({gpus})" for name, gpus in largest(now.holders, MOST_NAMES))
    gpus, jobs = number_of(now.gpus_in_use, "GPU"), f"{len(now.holders)} of {now.active_jobs} active jobs"
    return f"At {clock(time)}, {gpus} of the cluster were held by {jobs}{f', most by {top}' if top else ''}."


def _where(gpus: Mapping[int, int]) -> str:
    count = number_of(sum(gpus.values()), "GPU")
    return f"{count} {'on' if len(gpus) > MOST_NODES else 'of'} {nodes_text(sorted(gpus))}"


def _counted(counts: Mapping[str, int]) -> str:
    named = ", ".join(f"{name} ({gpus})" for name, gpus in largest(counts, MOST_NAMES))
    return named + (f" and {len(counts) - MOST_NAMES} more" if len(counts) > MOST_NAMES else "")
