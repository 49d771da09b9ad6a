"""The interactive report of finished runs, in one HTML file that needs no other file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from polluxsim.common.durations import clock
from polluxsim.common.errors import InvalidInputError
from polluxsim.common.files import atomic_write
from polluxsim.common.phrases import count_range, listed
from polluxsim.common.progress_line import progress_line
from polluxsim.look import descriptions
from polluxsim.look.best_possible import bound_sentences, stored_bounds
from polluxsim.look.colours import application_colour, is_coloured_by_application, looks, on_page
from polluxsim.look.empty_states import empty_states
from polluxsim.look.job_progress import NO_LIVES, Lives, own_profiles
from polluxsim.look.occupancy import occupancy
from polluxsim.look.regret import HINDSIGHT, costliest_rounds, on_chance, summary_of
from polluxsim.look.report.charts import ReportRun, are_rigid, charts, panels
from polluxsim.look.report.payload import (
    OUTCOMES,
    changes_by_policy,
    losses_by_change,
    lost_columns,
    metrics_of_page,
    packed,
    packed_reasons,
    run_columns,
    save_columns,
)
from polluxsim.look.run_facts import cluster_of, is_rented, steady_gpus
from polluxsim.look.why.events import fork_sentence, outage_sentence
from polluxsim.metrics.declared import values_in
from polluxsim.metrics.summary import Summary, of_run, summarise
from polluxsim.records.folders import policy_name, run_folders
from polluxsim.records.regret_files import stored_regrets
from polluxsim.records.results import ReasonRecord
from polluxsim.records.storage import Run, read_reasons, read_run
from polluxsim.records.tables import nothing_collected
from polluxsim.statistics.forks import FROM_FORK, fork_of, fork_times, parts_from_fork
from polluxsim.statistics.groups import baseline_first, grouped, settings_of
from polluxsim.statistics.job_values import fairness
from polluxsim.statistics.metric_lines import (
    MetricLine,
    baseline_note,
    difference,
    first_of_same_jobs,
    metric_lines,
)
from polluxsim.statistics.series import is_adaptive

if TYPE_CHECKING:
    from polluxsim.statistics.windows import SubmissionWindow

SCRIPTS = (
    "data", "format", "curves", "chart", "timeline", "map", "cluster", "groups", "table", "jobs", "job", "saving",
    "page",
)  # fmt: skip
"""Names of the scripts of the page. A script needs only scripts before it."""

MOST_NAMED = 3  # if there are more policies than this, the headline gives their number instead of their names


class ReportSubject(NamedTuple):
    """A run with jobs, as a report shows it."""

    run: Run
    lives: Lives = NO_LIVES  # efficiency and progress of the jobs over time
    lives_note: str = ""  # sentence on the source of the lives, or on why they are missing
    reasons: Sequence[ReasonRecord] = ()  # of the policy


TILES = ("avg_jct", "p99_jct", "avg_queueing_delay", "avg_waiting_time", "makespan", "utilisation", "restarts")
"""Metrics at the top of the page."""


SIZE_CARDS = (
    ("wait", "Waiting time by size", "mean of the time in total, by the GPUs that jobs ask for"),
    ("slowdown", "Slowdown by size", "median of JCT over the time with GPUs, by the GPUs that jobs ask for"),
)
"""Name, title and note of the figures by size, for rigid jobs."""


class MetricCell(NamedTuple):
    """A value as text, its change from the baseline, and whether the change is better or worse (`verdict`)."""

    text: str
    difference: str
    verdict: str


def report(subjects: Sequence[ReportSubject], window: SubmissionWindow | None = None) -> str:
    """Return the report of runs as the text of an HTML file that needs no other file and no network.

    The baseline of a run is the first run with the same jobs. With a window, the metrics are over its jobs, and the
    figures show the whole runs. Raise ValueError without runs, or if a run has no jobs.
    """
    if not subjects:
        raise ValueError("there are no runs; give at least one")
    runs = [subject.run for subject in subjects]
    report_runs = _report_runs(runs)
    bases = first_of_same_jobs([run.result for run in runs])
    metrics = [(line, _cells(line, bases)) for line in _lines(runs, window)]
    tiles = [(line, cells) for line, cells in metrics if line.field in TILES]
    forks = _forks(runs, report_runs)
    payloads, reasons = _tables(subjects, report_runs)
    cards: list[dict[str, str]] = []
    applications: set[str] = set()
    for run, report_run in zip(runs, report_runs, strict=True):
        cards.append(_card(run, report_run))
        applications.update(job.application for job in run.result.job_records)
    notes_on_window: list[str] = []
    parts_from_forks: list[ForkPart] = []
    pooled: Markup | None = None
    bounds: list[str] = []
    regrets: list[RegretPart] = []
    if window is None:
        # These tables are over all jobs, whose values would contradict those of the jobs in a window.
        parts_from_forks = _from_forks(runs)
        pooled = _pooled(runs)
        bounds = _bounds(runs, report_runs)
        regrets = _regrets(runs, report_runs)
    else:
        notes_on_window = [*window.sentences(runs), "figures show the whole runs"]
    rules = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return rules.from_string(_asset("page.html")).render(
        title=_title(runs),
        what=_what(runs, report_runs),
        window=notes_on_window,
        empty=empty_states(runs, [report_run.label for report_run in report_runs]),
        forks=forks,
        bounds=bounds,
        regrets=regrets,
        parts=parts_from_forks,
        pooled=pooled,
        cards=cards,
        tiles=tiles,
        lines=metrics,
        baseline=baseline_note([report_run.label for report_run in report_runs], bases),
        versus=_first_compared(bases),
        panels=panels(report_runs),
        metrics=metrics_of_page(descriptions.loss_noun(runs)),
        has_applications=len(applications) > 1,
        sizes=SIZE_CARDS if are_rigid(report_runs) else (),
        has_rho=any(len(fairness(run.result)) for run in runs),
        style=Markup(_asset("report.css")),
        scripts=[Markup(_asset(f"{name}.js")) for name in SCRIPTS],
        charts=Markup(packed(*charts(report_runs, forks))),
        payloads=payloads,
        reasons=reasons,
        version=runs[0].info.get("versions", {}).get("polluxsim", ""),
        commit=(runs[0].info.get("git_commit") or "")[:12],
    )


def _forks(runs: Sequence[Run], report_runs: Sequence[ReportRun]) -> list[dict[str, Any]]:
    """Return the forks of runs, as `_fork` describes each of them."""
    forks = []
    for run, report_run in zip(runs, report_runs, strict=True):
        fork = _fork(run, report_run.label)
        if fork is not None:
            forks.append(fork)
    return forks


def _tables(subjects: Sequence[ReportSubject], report_runs: Sequence[ReportRun]) -> tuple[list[Markup], list[Markup]]:
    """Return the packed tables and the packed reasons of each run."""
    payloads = []
    reasons = []
    for subject, report_run in zip(subjects, report_runs, strict=True):
        payloads.append(Markup(_payload(subject, report_run)))
        # The page has one element of reasons for each run, also for a run without reasons.
        packed_texts = ""
        if subject.reasons:
            packed_texts = packed_reasons(subject.run.result, subject.reasons)
        reasons.append(Markup(packed_texts))
    return payloads, reasons


def _first_compared(bases: Sequence[int]) -> int:
    """Return the index of the first run that is compared with the first run, or of the second run if none is."""
    for run, base in enumerate(bases):
        if run > 0 and base == 0:
            return run
    return min(1, len(bases) - 1)


def _lines(runs: Sequence[Run], window: SubmissionWindow | None) -> list[MetricLine]:
    """Return the metrics of runs, or those of their jobs in a window."""
    gpus = list(map(steady_gpus, runs))
    losses = descriptions.loss_noun(runs)
    if window is None:
        user_values = [values_in(run.info) for run in runs]
        return metric_lines(list(map(_summary, runs)), gpus, user_values, losses=losses)
    from polluxsim.statistics.windows import is_in_window  # noqa: PLC0415  (it loads pandas, which is slow)

    return metric_lines([_summary(window.of(run)) for run in runs], gpus, is_shown=is_in_window, losses=losses)


def _report_runs(runs: Sequence[Run]) -> list[ReportRun]:
    """Return the runs with their labels, the GPUs that jobs held, and the looks of their lines."""
    labels = descriptions.labels(runs)
    line_looks = looks([policy_name(settings_of(run)) for run in runs])
    report_runs = []
    for label, run, look in zip(labels, runs, line_looks, strict=True):
        held = occupancy(run.result, cluster_of(run))
        report_runs.append(ReportRun(label, run.result, held, look, is_rented(run)))
    return report_runs


def _summary(run: Run) -> Summary:
    """Return the metrics of a run. Raise ValueError if it has no jobs."""
    summary = summarise(run.result)
    if summary is None:
        raise ValueError(f"run {run.name!r} has no jobs; give runs with jobs")
    return summary


def _cells(line: MetricLine, bases: Sequence[int]) -> list[MetricCell]:
    """Return the values of a metric, each with its change from the run of `bases`."""
    cells = []
    for run, text in enumerate(line.texts):
        change, verdict = difference(line, run, bases[run])
        cells.append(MetricCell(text, change, verdict))
    return cells


def _pooled(runs: Sequence[Run]) -> Markup | None:
    """Return the table of settings, pooled over seeds and workloads; None if each setting has one run."""
    if all(len(group.runs) == 1 for group in grouped(runs)):
        return None
    from polluxsim.look.settings_tables import as_html  # noqa: PLC0415
    from polluxsim.statistics.comparisons import settings_table  # noqa: PLC0415
    from polluxsim.statistics.frames import frame_of  # noqa: PLC0415  (pandas is slow to load)

    return Markup(as_html(settings_table(frame_of(runs))))


def _bounds(runs: Sequence[Run], report_runs: Sequence[ReportRun]) -> list[str]:
    """Return sentences on the best possible values of metrics that the folders of runs store."""
    sentences: list[str] = []
    for bound, report_run in zip(stored_bounds(runs), report_runs, strict=True):
        if bound is not None:
            sentences += bound_sentences(report_run.label, bound)
    return sentences


class RegretPart(NamedTuple):
    """The costliest decisions of a run, compared with those of another policy."""

    title: str
    sentences: Sequence[str]
    rounds: Sequence[Sequence[str]]  # sentences on each round; the first one states its regret


def _regrets(runs: Sequence[Run], report_runs: Sequence[ReportRun]) -> list[RegretPart]:
    """Return the costliest decisions of the runs whose folders store regrets."""
    regret_parts = []
    for run, report_run in zip(runs, report_runs, strict=True):
        for regrets in stored_regrets(run.folder, run.info):
            title = f"{report_run.label}: costliest decisions, compared with those of {regrets.other_policy}"
            sentences = list(filter(None, (summary_of(regrets), HINDSIGHT, on_chance(regrets))))
            regret_parts.append(RegretPart(title, sentences, costliest_rounds(regrets, run.clock)))
    return regret_parts


class ForkPart(NamedTuple):
    """The metrics of runs from a fork on, as texts."""

    time: str  # of the fork
    labels: Sequence[str]  # of the runs
    num_jobs: str  # number of jobs that are not complete at the fork
    baseline: str  # note on the baselines
    lines: Sequence[tuple[MetricLine, Sequence[MetricCell]]]


def _from_forks(runs: Sequence[Run]) -> list[ForkPart]:
    """Return, from each fork on, the metrics of the fork and of the runs without the fork."""
    fork_parts = []
    for time in fork_times(runs):
        runs_from_fork = parts_from_fork(runs, time)
        labels = descriptions.labels(runs_from_fork)
        bases = first_of_same_jobs([run.result for run in runs_from_fork])
        # If every run is its own baseline, the fork has nothing to be compared with.
        if bases == list(range(len(bases))):
            continue
        lines = []
        losses = descriptions.loss_noun(runs_from_fork)
        for line in metric_lines(list(map(_summary, runs_from_fork)), losses=losses):
            if line.field.partition(".")[0] in FROM_FORK:
                lines.append((line, _cells(line, bases)))
        counts = count_range([len(of_run(run.result)) for run in runs_from_fork])
        fork_parts.append(ForkPart(clock(time), labels, counts, baseline_note(labels, bases), lines))
    return fork_parts


def _title(runs: Sequence[Run]) -> str:
    """Return the headline of the page: the policies, and the number of jobs."""
    policies = list(dict.fromkeys(_policy_in_words(run) for run in runs))
    if len(policies) > MOST_NAMED:
        names = f"{len(policies)} policies"
    elif len(policies) > 1:
        names = f"{listed(policies[1:])} against {policies[0]}"
    elif len(runs) > 1:
        names = f"{policies[0]}, {len(runs)} runs"
    else:
        names = policies[0]
    counts = [len(of_run(run.result)) for run in runs]
    jobs = "job" if set(counts) == {1} else "jobs"
    return f"{names} on {count_range(counts)} {jobs}"


def _policy_in_words(run: Run) -> str:
    """Return the policy of a run, and the time of its fork."""
    fork = fork_of(run.info)
    name = policy_name(settings_of(run))
    if fork is None:
        return name
    return f"{name} from {clock(fork['time'])}"


def _what(runs: Sequence[Run], report_runs: Sequence[ReportRun]) -> str:
    """Return the clusters, workloads, seeds and engines of the runs in words. Equal parts are named once."""
    clusters = []
    for report_run in report_runs:
        clusters.append(descriptions.cluster_words(report_run.held.gpus_per_node, _types(report_run)))
    workloads = [descriptions.workload_words(run.info) for run in runs]
    seeds = list(dict.fromkeys(str(run.info.get("seed", "–")) for run in runs))
    seed_noun = "seed" if len(seeds) == 1 else "seeds"
    engines = [descriptions.engine_words(run.info) for run in runs]
    from_before = list(descriptions.from_before(run.result.before_run for run in runs))
    origins = []
    for run in runs:
        if run.origin is not None:
            origins.append(f"0:00:00 is {run.origin.text(0.0)} in {run.origin.zone_name}")
    outages = []
    if any(descriptions.outage_words(run.info) for run in runs):
        outages = [descriptions.outage_words(run.info) or "no outages" for run in runs]
    parts = [clusters, outages, workloads, [f"{seed_noun} {', '.join(seeds)}"], engines, from_before, origins]
    if any(run.info.get("notes") for run in runs):
        notes = []
        for run in runs:
            # If runs differ, a run without notes needs words too.
            notes.append(", ".join(run.info.get("notes", ())) or "no jobs of the workload left out")
        parts.append(notes)
    phrases = [" or ".join(dict.fromkeys(part)) for part in parts if part]
    return " · ".join(phrases)


def _types(report_run: ReportRun) -> list[str]:
    """Return the name of the GPU type of each node."""
    return [gpu.name for gpu in report_run.held.node_types]


def _card(run: Run, report_run: ReportRun) -> dict[str, str]:
    """Return the name, the label and the colour of a run, and the content of its run.json."""
    info = json.dumps(run.info, indent=2, sort_keys=True, ensure_ascii=False)
    return {"name": run.name, "label": report_run.label, "color": on_page(report_run.look.color), "info": info}


def _payload(subject: ReportSubject, report_run: ReportRun) -> str:
    """Return the tables of a run, packed."""
    result = report_run.result
    jobs = result.job_records
    applications = sorted({job.application for job in jobs})
    legend = []
    if is_coloured_by_application(applications):
        legend = [[name, application_colour(name)] for name in applications]
    head = {
        "label": report_run.label,
        "start": result.start_time,
        "end": result.end_time,
        "jobs": [job.job for job in jobs],
        "users": _names([job.user for job in jobs]),
        "queues": _names([job.queue for job in jobs]),
        "applications": applications,
        "legend": legend,
        "statuses": OUTCOMES,
        "gpusPerNode": list(report_run.held.gpus_per_node),
        "nodeTypes": _types(report_run),
        "isRented": report_run.rented,
        "nodePrice": settings_of(subject.run).get("cluster.node_price", 0.0),
        "isAdaptive": is_adaptive(result),
        "livesNote": subject.lives_note,
        "losses": losses_by_change(result),
        "changesByPolicy": changes_by_policy(result),
        "downs": [outage_sentence(outage, result.end_time) for outage in result.outage_records],
        "fork": _fork(subject.run, report_run.label),
    }
    columns = run_columns(result, report_run.held, subject.lives)
    columns |= save_columns(subject.run, len(report_run.held.gpus_per_node))
    columns |= lost_columns(subject.run, cluster_of(subject.run))
    return packed(columns, head)


def _fork(run: Run, label: str) -> dict[str, Any] | None:
    """Return the time, the label and the sentence of a run's fork; None if the run is not a fork with changes."""
    fork = fork_of(run.info)
    if fork is None:
        return None
    return {"time": float(fork["time"]), "label": label, "text": fork_sentence(run)}


def _names(names: Sequence[str | None]) -> list[str]:
    """Return the names, "" for jobs without one. The list is empty if no job has one."""
    if not any(names):
        return []
    return [name or "" for name in names]


def _asset(name: str) -> str:
    return (files("polluxsim.look.report") / "assets" / name).read_text(encoding="utf-8")


SUFFIXES = (".html", ".htm")  # ends of the names of reports


@nothing_collected()
def write_report(
    folders: Sequence[Path], output: Path, baseline: str | None = None, window: SubmissionWindow | None = None
) -> None:
    """Write the report of finished runs in folders of runs or sweeps, whole or not at all.

    The folder of the HTML file is created if necessary. `baseline` names the run that comes first, by its folder or by
    a setting KEY=VALUE, and `window` is that of the metrics. Raise InvalidInputError if no run has this name, a run has
    no jobs or none in the window, or `output` is no name of an HTML file.
    """
    check_output(output)
    run_paths = run_folders(folders)
    # By the identity of the run, because equal runs in two folders are two subjects.
    subjects: dict[int, ReportSubject] = {}
    with progress_line("reading runs", len(run_paths)) as show_progress:
        for folder in run_paths:
            run = read_run(folder)
            subjects[id(run)] = subject_of(run, read_reasons(folder) or ())
            show_progress(len(subjects), len(run_paths), "")
    ordered = baseline_first([subject.run for subject in subjects.values()], baseline)
    write_subjects([subjects[id(run)] for run in ordered], output, window)
    runs = "run" if len(subjects) == 1 else "runs"
    print(f"wrote {output}: {len(subjects)} {runs}, {output.stat().st_size / 1e6:.1f} MB")


def check_output(output: Path) -> None:
    """Raise InvalidInputError if a report cannot be written under this name."""
    if output.suffix not in SUFFIXES:
        raise InvalidInputError(f"{output}: the name of a report must end in {' or '.join(SUFFIXES)}")
    if output.is_dir():
        raise InvalidInputError(f"{output} is a folder; give the name of a file")


def write_subjects(subjects: Sequence[ReportSubject], output: Path, window: SubmissionWindow | None = None) -> None:
    """Write the report of runs to a file in one step. Raise InvalidInputError if `output` is not an HTML file."""
    check_output(output)
    text = report(subjects, window)
    output.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(output) as temporary:
        temporary.write_text(text, encoding="utf-8")


def subject_of(run: Run, reasons: Sequence[ReasonRecord]) -> ReportSubject:
    """Return a run with the lives of its jobs and the reasons. Raise InvalidInputError if no metric counts a job."""
    run.must_have_metrics()
    return ReportSubject(run, *_lives(run), reasons)


def _lives(run: Run) -> tuple[Lives, str]:
    """Return the lives of the jobs of a run and a sentence on their source, or no lives and the reason."""
    try:
        profiles = own_profiles(run)
    except InvalidInputError as error:
        return NO_LIVES, f"Efficiency and progress are not shown: {error}."
    note = f"Efficiency and progress are worked out from the recorded GPUs and batch sizes by {profiles.where}"
    if settings_of(run).get("engine.whole_seconds"):
        note += "; it counts whole seconds, so that they are a little off"
    return profiles.lives, f"{note}."
