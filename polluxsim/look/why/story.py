"""Explain a whole job, or a job at one time, from its allocations and from the reasons that the policy recorded."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from itertools import pairwise
from math import inf, isinf, nextafter
from operator import attrgetter

from rich.markup import escape
from rich.table import Table

from polluxsim.common.durations import HOUR, clock
from polluxsim.common.errors import InvalidInputError
from polluxsim.common.phrases import listed, number_of, percent
from polluxsim.hardware.placements import Gpus
from polluxsim.look.descriptions import loss_noun
from polluxsim.look.why.events import MOST_NODES, fork_sentence, lost, nodes_text
from polluxsim.look.why.sentences import sentence
from polluxsim.look.why.stages import Stage, cluster_at, stages
from polluxsim.metrics.outcomes import NEVER_STARTED, outcome
from polluxsim.metrics.summary import waiting_time
from polluxsim.records.results import JobRecord, ReasonRecord, Status
from polluxsim.records.storage import Run
from polluxsim.statistics.series import Stretch, lifetime, shares_of

UNKNOWN = "–"  # in place of the reason for a stage without one

MOST_NAMES = 4  # largest number of jobs that a sentence names

_NEVER_SUBMITTED = "never submitted: a job that it waited for did not complete"


def find_job(run: Run, name: str) -> JobRecord:
    """Return the record of a job. Raise InvalidInputError if the run has no job of this name."""
    jobs = {job.job: job for job in run.result.job_records}
    if name in jobs:
        return jobs[name]
    similar = get_close_matches(name, jobs, n=3, cutoff=0.5)
    if similar:
        hint = f"nearest are {', '.join(similar)}"
    else:
        hint = f"it has {number_of(len(jobs), 'job')}, like {next(iter(jobs), '–')}"
    # The job may be in the log, and not in the run.
    left_out = [note for note in run.info.get("notes", ()) if note.endswith("left out")]
    if left_out:
        hint += f"; the workload states:  {', '.join(left_out)}"
    raise InvalidInputError(f"run {run.name} has no job {name!r}; {hint}")


def summary(run: Run, job: JobRecord) -> str:
    """Return the life of a job in a line."""
    end_time = run.result.end_time
    if isinf(job.submit_time):
        return f"{job.job} ({job.application}), {_NEVER_SUBMITTED}"
    if job.submit_time > end_time:
        return f"{job.job} ({job.application}), not submitted before the run ended, at {run.clock(end_time)}"
    phrases = [f"{job.job} ({job.application})", f"submitted {run.clock(job.submit_time)}"]
    if job.start_time is not None and job.queueing_delay is not None:
        phrases.append(f"started {run.clock(job.start_time)} after {clock(job.queueing_delay)}")
        since = "in total" if job.is_counted else "since the start of the run"
        phrases.append(f"waited {clock(waiting_time(job, end_time))} {since}")
    if job.completion_time is not None and job.jct is not None:
        phrases.append(f"completed {run.clock(job.completion_time)} after {clock(job.jct)}")
    else:
        if outcome(job, end_time) == NEVER_STARTED:
            phrases.append(NEVER_STARTED)
        _, left_at = lifetime(run.result, job)
        phrases.append(f"{job.status} at {run.clock(left_at)}")
    restarts = number_of(job.num_restarts, "restart")
    if job.num_failures:
        phrases.append(f"{number_of(job.num_failures, loss_noun([run]))} that cost {clock(job.lost_time)}")
        restarts = number_of(job.num_restarts, "other restart")
    if not job.is_counted:
        phrases.append("in no metric, because it was submitted before the start of the run")
    phrases += [restarts, f"{job.gpu_seconds / HOUR:.2f} GPU-hours"]
    return ", ".join(phrases)


def story(run: Run, reasons: Sequence[ReasonRecord], job: JobRecord) -> Table | str:
    """Return a table with a row for each stage of a job: its start, duration, event and reason.

    Return only a line for a job that was not submitted before the end of the run.
    """
    job_stages = stages(run, job)
    if not job_stages:
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
    job_reasons = [reason for reason in reasons if reason.job == job.job]
    stretches = shares_of(run.result, job.job)
    for stage in job_stages:
        stage_reasons = [reason for reason in job_reasons if stage.start <= reason.time < stage.end]
        if stage is job_stages[-1]:
            # A rejection is recorded at the end of the last stage, which the condition above leaves out.
            stage_reasons += rejections(reasons, job)
        what = "\n".join([describe_event(stage), *sharing_phrases(stretches, stage.start, stage.end)])
        table.add_row(
            escape(_start(run, stage)),
            escape(clock(stage.end - stage.start)),
            escape(what),
            escape(_why(run, stage, stage_reasons)),
        )
    return table


def at(run: Run, reasons: Sequence[ReasonRecord], job: JobRecord, time: float) -> str:
    """Return a paragraph with the state of a job at a time [s], and the reason for it."""
    texts = run.result.reason_texts
    absence = _absence(run, job, time)
    if absence is not None:
        sentences = [absence]
        for reason in rejections(reasons, job):
            if reason.time <= time:
                sentences.append(sentence(reason, texts))
        return " ".join(sentences)
    stage = _stage_at(run, job, time)
    state = f"holds {_where(stage.gpus)}" if stage.gpus else "waits without a GPU"
    sentences = [f"At {run.clock(time)} {job.job} {state}, since {run.clock(stage.start)}."]
    if stage.gpus or stage.before:
        event = describe_event(stage, paused="was paused and lost")
        sentences.append(f"At {run.clock(stage.start)} it {event}.")
    if stage.gpus:
        # The end of a period is not part of it. So the shortest period that contains `time` ends just after it.
        phrases = sharing_phrases(shares_of(run.result, job.job), time, nextafter(time, inf))
        sentences += [f"{phrase}." for phrase in phrases]
    # An earlier reason explains another stage, which has ended.
    stage_reasons = [reason for reason in reasons if reason.job == job.job and stage.start <= reason.time <= time]
    if stage_reasons:
        last_reason = stage_reasons[-1]
        text = sentence(last_reason, texts)
        if last_reason.time != time:
            text = f"The last reason was recorded at {run.clock(last_reason.time)}: {text}"
        sentences.append(text)
    sentences.append(_cluster(run, time))
    fork = fork_sentence(run)
    if fork:
        sentences.append(fork)
    return " ".join(sentences)


def rejections(reasons: Sequence[ReasonRecord], job: JobRecord) -> list[ReasonRecord]:
    """Return the reasons for which a job was rejected, recorded as it ended; empty if it was not rejected."""
    if job.status is not Status.REJECTED:
        return []
    return [reason for reason in reasons if reason.job == job.job and reason.time == job.end_time]


def waits(run: Run, job: JobRecord, time: float) -> bool:
    """Return whether a job waits without a GPU at a time [s]."""
    if _absence(run, job, time) is not None:
        return False
    # At the end of the run, no stage contains the time, and no job waits any more.
    return any(stage.start <= time < stage.end and not stage.gpus for stage in stages(run, job))


def _stage_at(run: Run, job: JobRecord, time: float) -> Stage:
    """Return the stage of a job that contains a time [s], or its last one at the end of the run."""
    job_stages = stages(run, job)
    for stage in job_stages:
        if stage.start <= time < stage.end:
            return stage
    return job_stages[-1]


def would_have_run(time: str, nodes: int | None, gpus: int | None, place: tuple[int | None, str]) -> str:
    """Return a sentence on the changes that would have let a job run at a round, each by itself.

    The changes are a number of additional nodes, another number of requested GPUs, and a number of places further ahead
    in the queue, with the name of the job that would be next. None means that no change of this kind would have
    sufficed. `time` is the text of the time of the round.
    """
    changes = []
    if nodes is not None:
        changes.append(f"with {number_of(nodes, 'more node')}")
    if gpus is not None:
        changes.append(f"had it asked for {number_of(gpus, 'GPU')}")
    places_ahead, next_job = place
    if places_ahead is not None:
        changes.append(f"{number_of(places_ahead, 'place')} further ahead in the queue, before {next_job}")
    if not changes:
        return f"At {time} neither more nodes, a smaller request nor another place in the queue lets it run."
    return f"At {time} it would have run {', or '.join(changes)}."


def sharing_phrases(stretches: Sequence[Stretch], start: float, end: float) -> list[str]:
    """Return phrases on the jobs that shared GPUs with a job between two times [s], and on its speeds.

    Of many changes, the phrases describe the first ones and the last one.
    """
    # The stretch that contains `start` began at `start` or before.
    first = max(bisect_right(stretches, start, key=attrgetter("start")) - 1, 0)
    with_others = []
    for stretch in stretches[first:]:
        if stretch.start < end and stretch.others:
            with_others.append(stretch)
    phrases = list(map(_shares, with_others[:MOST_NAMES]))
    if len(with_others) > MOST_NAMES:
        num_left_out = len(with_others) - MOST_NAMES - 1
        if num_left_out:
            phrases.append(f"then {number_of(num_left_out, 'change')} of the other jobs or the speeds")
        phrases.append(_shares(with_others[-1]))
    return phrases


def _shares(stretch: Stretch) -> str:
    """Return the jobs that share GPUs with a job, and the speed of each relative to its speed alone."""
    names_on: dict[Gpus, list[str]] = {}
    for name, (gpus, speed) in stretch.others.items():
        names_on.setdefault(gpus, []).append(f"{name} ({percent(speed)})")
    # Jobs on the same GPUs are one phrase, because most jobs share all their GPUs with the same jobs.
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
    phrases = []
    for node, numbers in numbers_on.items():
        noun = "GPU" if len(numbers) == 1 else "GPUs"
        phrases.append(f"{noun} {', '.join(numbers)} of node {node}")
    return listed(phrases)


def describe_event(stage: Stage, paused: str = "paused, had") -> str:
    """Return the event at the start of a stage, with the jobs that gave or got the GPUs.

    `paused` begins the phrase on a pause, which ends with the GPUs that the job held before.
    """
    before = sum(stage.before.values())
    now = sum(stage.gpus.values())
    where = _where(stage.gpus)
    phrases = {
        "waits": "waits",
        "paused": f"{paused} {number_of(before, 'GPU')}",
        "failed": lost(before, stage.failed),
        "started": f"started on {where}",
        "resumed": f"resumed on {where}",
        "ran before": f"runs since before the start of the run, on {where}",
        "grew": f"grew from {before} to {where}",
        "shrank": f"shrank from {before} to {where}",
        "moved": f"moved its {now} to {where}",
    }
    text = phrases[stage.event]
    if stage.batch_sizes:
        first = stage.batch_sizes[0]
        last = stage.batch_sizes[-1]
        text += f", batch size {first}"
        if last != first:
            text += f" to {last}"
        if "policy" in stage.chosen_by:
            text += f", chosen by the {' and the '.join(stage.chosen_by)}"
    if stage.given_by:
        text += f"; from {_counted(stage.given_by)}"
    if stage.taken_by:
        text += f"; gave way to {_counted(stage.taken_by)}"
    return text


def _why(run: Run, stage: Stage, reasons: Sequence[ReasonRecord]) -> str:
    """Return the reasons within a stage, each time that the kind of the reason changes, and the last one of a wait."""
    if not reasons:
        return before_first_round(run, stage)
    texts = run.result.reason_texts
    lines = [sentence(reasons[0], texts)]
    # A policy can record a reason in every round. While its kind stays the same, only its numbers differ.
    for before, reason in pairwise(reasons):
        ends_wait = reason is reasons[-1] and not stage.gpus
        if reason.kind != before.kind or ends_wait:
            lines.append(f"At {run.clock(reason.time)}: {sentence(reason, texts)}")
    return "\n".join(lines)


def _start(run: Run, stage: Stage) -> str:
    """Return the start of a stage, with its date in a second line if the run has dates."""
    if run.origin is None:
        return clock(stage.start)
    return f"{clock(stage.start)}\n{run.origin.text(stage.start)}"


def before_first_round(run: Run, stage: Stage) -> str:
    """Return why a stage has no reason: it was a wait that ended before the next round; otherwise a dash."""
    rounds = [record.time for record in run.result.round_records]
    first = bisect_left(rounds, stage.start)
    # Policies give reasons at rounds. A stage with GPUs begins at a round, and a policy may record no reason for it.
    if not stage.gpus and first < len(rounds) and rounds[first] >= stage.end:
        event = "It lost them" if stage.failed else "Submitted"
        return f"{event} between two rounds: the next one was at {run.clock(rounds[first])}."
    return UNKNOWN


def _absence(run: Run, job: JobRecord, time: float) -> str | None:
    """Return that a job neither waits nor runs at a time [s], in a sentence; None if it does."""
    if isinf(job.submit_time):
        return f"{job.job} was {_NEVER_SUBMITTED}."
    if time < job.submit_time:
        return f"At {run.clock(time)} {job.job} was not submitted yet: that was at {run.clock(job.submit_time)}."
    return _afterwards(run, job, time)


def _afterwards(run: Run, job: JobRecord, time: float) -> str | None:
    """Return that a job or the run has ended at a time [s], in a sentence; None if not."""
    if job.completion_time is not None and time >= job.completion_time:
        return f"At {run.clock(time)} {job.job} was complete: it completed at {run.clock(job.completion_time)}."
    if job.completion_time is None and job.end_time is not None and time >= job.end_time:
        return f"At {run.clock(time)} {job.job} was {job.status}, since {run.clock(job.end_time)}."
    start, _ = lifetime(run.result, job)
    if start == run.result.end_time:
        return f"{job.job} was submitted at {run.clock(job.submit_time)}, as the run ended."
    if time > run.result.end_time:
        return (
            f"The run ended at {run.clock(run.result.end_time)}, before {run.clock(time)}; {job.job} was not complete."
        )
    return None


def _cluster(run: Run, time: float) -> str:
    """Return a sentence on the GPUs that jobs hold at a time [s]."""
    state = cluster_at(run, time)
    gpus = number_of(state.gpus_in_use, "GPU")
    text = f"At {run.clock(time)}, {gpus} of the cluster were held by "
    text += f"{len(state.gpus_of)} of {state.active_jobs} active jobs"
    if state.gpus_of:
        text += f", most by {_with_most_gpus(state.gpus_of)}"
    return f"{text}."


def _where(gpus: Mapping[int, int]) -> str:
    """Return GPUs by node as text: their number, and the nodes."""
    count = number_of(sum(gpus.values()), "GPU")
    # "of node 3", but "on 12 nodes"
    preposition = "on" if len(gpus) > MOST_NODES else "of"
    return f"{count} {preposition} {nodes_text(sorted(gpus))}"


def _with_most_gpus(counts: Mapping[str, int]) -> str:
    """Return the jobs with the most GPUs, and the number of GPUs of each."""
    # By name among equal numbers, so that equal runs have equal texts.
    largest = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{name} ({gpus})" for name, gpus in largest[:MOST_NAMES])


def _counted(counts: Mapping[str, int]) -> str:
    """Return the jobs with the most GPUs as `_with_most_gpus`, and the number of other jobs."""
    text = _with_most_gpus(counts)
    if len(counts) > MOST_NAMES:
        text += f" and {len(counts) - MOST_NAMES} more"
    return text
