"""Commands that simulate a finished run again: `whatif`, `when` and `why`."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Any

from polluxsim.cli.options import take, take_forms, take_output, take_run
from polluxsim.common.durations import clock, length
from polluxsim.common.errors import InvalidConfigError
from polluxsim.records.results import JobRecord, ReasonRecord
from polluxsim.records.storage import Run
from polluxsim.run.configurations import NUM_NODES, RELATIVE, import_from_here

if TYPE_CHECKING:
    import pandas as pd

    from polluxsim.run.forecasts import Check
    from polluxsim.run.resampling import Arrivals

GROUPS = ("policy", "cluster")  # configuration groups that a fork can change

OTHERWISE = "otherwise"  # folder of the run with the changes, inside the folder of a what-if

TIMES_OF_CALIBRATION = 8  # default number of times of `when --calibrate`


def add_whatif(parser: ArgumentParser) -> None:
    parser.description = (
        "Fork a finished run at a time, and compare the run with the fork. From that time on, the fork has the changes "
        "that you name. 'polluxsim log whatif' replays the log of a cluster."
    )
    parser.epilog = "Example: polluxsim whatif RUN --at 3h policy=pollux"
    take_run(parser)
    parser.add_argument("names", nargs="*", metavar="KEY=VALUE",
                        help="changed settings, like policy=tiresias, policy.p=-10, cluster.num_nodes=20, or "
                        "cluster.num_nodes=+2 for two nodes more",
                        )  # fmt: skip
    take(parser, "at", required=True, note="the time of the fork")
    take(parser, "drop-node", default=[])
    take(parser, "without", default=[])
    take(parser, "add")
    take(parser, "seeds", default=1, note="each makes a fork of each kind with other random draws")
    take_output(parser, "folder for the runs (default: RUN-at-TIME, RUN-at-TIME-2 for other changes, ...)")
    take(parser, "allow-classes", default=[])
    parser.set_defaults(action=_whatif)


def _whatif(options: Namespace) -> None:
    from polluxsim.look.console import console
    from polluxsim.look.descriptions import labels, print_from_before, without_effect
    from polluxsim.look.settings_tables import comparison_text
    from polluxsim.look.side_by_side import SideBySide
    from polluxsim.look.why.events import fork_sentence
    from polluxsim.metrics.summary import summarise
    from polluxsim.run.moment import Moment, WhatIfRequest
    from polluxsim.statistics.comparisons import compared, compared_from_forks
    from polluxsim.workloads.workload import read_workload

    if not (options.names or options.drop_node or options.without or options.add):
        what = f"no change is given for {options.run}"
        raise InvalidConfigError(f"{what}; give one with KEY=VALUE, --drop-node, --without or --add")
    started = time()
    run = _run_to_repeat(options)
    _check_classes(run)
    if options.names:
        import_from_here()  # a class that the user names, as for `polluxsim run`
    moment = Moment(run, options.at)
    added = () if options.add is None else read_workload(options.add).jobs
    entries = _entries(options.names, moment.config.cluster.get("num_nodes"))
    request = WhatIfRequest(entries, drop_nodes=options.drop_node, without=options.without, added=added)
    name = f"{options.run.resolve().name}-at-{length(moment.time)}".replace(" ", "")
    folder = options.output
    changed, unchanged = [], []
    for index in range(options.seeds):
        seed = moment.config.seed + index if index else None
        ending = f"-seed{seed}" if index else ""
        fork = moment.fork_with(replace(request, seed=seed))
        if folder is None:
            folder = _free(options.run.with_name(name), fork)
        changed.append(_written(fork, folder / f"{OTHERWISE}{ending}", started))
        unchanged.append(_written(moment.fork_with(WhatIfRequest(seed=seed)), folder / f"as-it-was{ending}", started))
    shown = [unchanged[0], changed[0]]
    summaries = dict(zip(labels(shown), (summarise(run.result) for run in shown), strict=True))
    with_metrics = {name: summary for name, summary in summaries.items() if summary is not None}
    if with_metrics:
        console().print(SideBySide(with_metrics))
    else:
        print("no metric has a value, because all jobs are from before the start of the run")
    print_from_before([unchanged[0]])
    print(fork_sentence(changed[0]))
    print()
    print(comparison_text(compared([*unchanged, *changed]), compared_from_forks([*unchanged, *changed])))
    for sentence in without_effect([(changed[0].name, changed[0].info)]):
        print(sentence)
    print(f"wrote {folder}")


def _free(folder: Path, fork: Run) -> Path:
    """Return the first folder among NAME, NAME-2, NAME-3, … that does not contain a what-if with other changes."""
    from itertools import count

    from polluxsim.run.claim import numbered, recorded_settings, settings_in

    candidates = (numbered(folder, number) for number in count(1))
    settings = recorded_settings(fork.info)
    return next(path for path in candidates if settings_in(path / OTHERWISE) in (None, settings))


def _written(run: Run, folder: Path, since: float) -> Run:
    """Write a fork as a run, and return it with the name of its folder. The command began at `since` [s since 1970]."""
    from polluxsim.records.storage import write_run
    from polluxsim.run.claim import claimed, recorded_settings

    with claimed(folder, lambda: recorded_settings(run.info), since) as path:
        write_run(path, run.result, run.info)
    return replace(run, name=folder.name)


def _single_settings(overrides: list[str]) -> Iterator[str]:
    """Yield overrides, with an override for each setting of a policy with settings in brackets."""
    from polluxsim.run.configurations import policy_text

    for override in overrides:
        key, _, value = override.partition("=")
        yield from policy_text(value).overrides if key == "policy" else [override]


def _entries(overrides: list[str], num_nodes: int | None) -> dict[str, tuple[str | None, dict[str, Any]]]:
    """Return the entries and the settings that overrides choose, by group.

    `num_nodes` is the number of nodes of the run, if a setting states it.
    """
    import yaml

    names: dict[str, str] = {}
    settings: dict[str, dict[str, Any]] = {}
    for override in _single_settings(overrides):
        key, equals, value = override.partition("=")
        group, _, name = key.partition(".")
        if group not in GROUPS or not equals:
            known = "policy=…, policy.NAME=…, cluster=… or cluster.NAME=…"
            raise InvalidConfigError(f"{override!r} cannot be changed in the middle of a run; use {known}")
        if name:
            try:
                settings.setdefault(group, {})[name] = yaml.safe_load(_absolute(key, value, num_nodes))
            except yaml.YAMLError as error:
                problem = getattr(error, "problem", None) or error
                raise InvalidConfigError(f"{override}: the value is not YAML ({problem}); quote it") from None
        else:
            names[group] = value
    return {group: (names.get(group), settings.get(group, {})) for group in dict.fromkeys([*names, *settings])}


def _absolute(key: str, value: str, num_nodes: int | None) -> str:
    """Return the value of a setting. A number of nodes with a sign is relative to the nodes of the run.

    Raise InvalidConfigError if another setting is relative, or the number of nodes of the run is no setting.
    """
    if key != NUM_NODES and RELATIVE.fullmatch(value):
        what = f"only {NUM_NODES} can be relative, like +2"
        raise InvalidConfigError(f"{key}={value}: {what}; write {key}={value.removeprefix('+')}")
    if key != NUM_NODES or not value.startswith(("+", "-")):
        return value
    if not value[1:].isdecimal():
        raise InvalidConfigError(f"{key}={value}: must be a whole number, or a difference of nodes like +2 or -2")
    if num_nodes is None:
        what = "the nodes of the run are in groups or in a file, so that it has no such setting"
        raise InvalidConfigError(f"{key}={value}: {what}; change cluster.groups or cluster.path")
    if (nodes := num_nodes + int(value)) < 1:
        nodes_of_run = "1 node, which" if num_nodes == 1 else f"{num_nodes} nodes, of which at least 1"
        what = f"the run has {nodes_of_run} must stay"
        raise InvalidConfigError(f"{key}={value}: {what}; write a smaller difference")
    return str(nodes)


def add_when(parser: ArgumentParser) -> None:
    parser.description = (
        "Forecast when waiting and running jobs start and complete. The forecast is a median and an 80 % interval over "
        "futures in which everything that was unknown at the time is drawn again. Durations of jobs without a profile "
        "are drawn from the jobs that completed before. Failures are drawn from their rates. The work of a job with a "
        "profile is known."
    )
    parser.epilog = "Example: polluxsim when RUN --at 3h"
    take_run(parser)
    parser.add_argument("jobs", nargs="*", metavar="JOB", help="names of jobs (default: all waiting and running jobs)")
    what = parser.add_mutually_exclusive_group(required=True)
    take(what, "at", note="the time of the forecast")
    take(what, "calibrate")
    take(parser, "times", note=f"(default: {TIMES_OF_CALIBRATION})")
    take(parser, "arrivals", default="recent")
    take(parser, "forks", default=29)
    take_forms(parser, "csv", "json")
    take(parser, "allow-classes", default=[])
    parser.set_defaults(action=_when)


def _when(options: Namespace) -> None:
    if options.times and not options.calibrate:
        raise InvalidConfigError("--times cannot be used without --calibrate; add --calibrate, or leave out --times")
    run = _run_to_repeat(options)
    _check_classes(run)
    if options.calibrate:
        _calibrate(run, options, options.times or TIMES_OF_CALIBRATION)
    else:
        _print_forecast(_forecast(run, options), options.form)


def _arrivals(name: str) -> Arrivals:
    """Return the arrivals that a forecast assumes: none, recent ones, or the jobs of the workload file `name`."""
    from polluxsim.run.resampling import NONE, RECENT, Arrivals
    from polluxsim.workloads.workload import read_workload

    return Arrivals(name) if name in (NONE, RECENT) else Arrivals(name, read_workload(Path(name)).jobs)


def _forecast(run: Run, options: Namespace) -> pd.DataFrame:
    """Return the forecasts of jobs at the time of `--at`, and show the progress."""
    from polluxsim.common.progress_line import progress_line
    from polluxsim.run.forecasts import forecast, forecast_frame
    from polluxsim.run.moment import Moment
    from polluxsim.run.workers import num_cores

    arrivals, moment, forks = _arrivals(options.arrivals), Moment(run, options.at), options.forks
    with progress_line("futures", forks) as show:
        found = forecast(moment, options.jobs or None, forks, lambda n: show(n, forks, ""), num_cores(), arrivals)
    frame = forecast_frame(found)
    frame.attrs["left_out"] = _not_forecast(run, moment.time, len(frame)) if not options.jobs else ""
    return frame


def _not_forecast(run: Run, time: float, num_forecast: int) -> str:
    """Return a sentence on the jobs of a run without a forecast at a time [s]; "" if there are none."""
    from polluxsim.metrics.outcomes import counts_in_words

    records = run.result.job_records
    later = sum(job.submit_time > time for job in records)
    ended = len(records) - num_forecast - later
    counts = counts_in_words({"ended before": ended, "submitted later": later})
    return f"forecast: {num_forecast} of {len(records)} jobs of the run; the others: {counts}" if counts else ""


def _print_forecast(frame: pd.DataFrame, form: str | None) -> None:
    """Print the forecasts; beside CSV and JSON, the assumed arrivals go to standard error."""
    if form == "csv":
        print(frame.to_csv(index=False), end="")
    elif form == "json":
        print(json.dumps(json.loads(frame.to_json(orient="records")), indent=2))
    else:
        _print_table(frame)
        if frame.attrs["left_out"]:
            print(frame.attrs["left_out"])
    print(frame.attrs["arrivals"], file=sys.stderr if form else sys.stdout)


def _print_table(frame: pd.DataFrame) -> None:
    """Print the forecasts as a table for the terminal."""
    from polluxsim.look.console import console
    from polluxsim.look.tables import boxed

    lines = [("job", "", "starts", "80 % interval", "completes", "80 % interval")]
    for row in frame.to_dict("records"):
        starts, ends = ([row[f"{what}_p{share}"] for share in (10, 50, 90)] for what in ("start", "completion"))
        waits = row["waits"]
        lines.append((row["job"], "waits" if waits else "runs", *_cells(starts if waits else ()), *_cells(ends)))
    console().print(boxed(lines, f"at {clock(frame.attrs['time'])}", names=2))


def _cells(times: Sequence[float]) -> tuple[str, str]:
    """Return the median and the interval of a time in words, from its 10 %, 50 % and 90 % quantiles [s].

    A time after the end of the futures has no number. The interval of a time that is equal in all futures is "exact".
    """
    if not times:
        return "", ""
    low, median, high = (clock(time) if time < float("inf") else None for time in times)
    if low == high:
        return median or "unknown", "exact"
    return median or "unknown", f"{low}–{high}" if high else f"{low} or later"


def _calibrate(run: Run, options: Namespace, times: int) -> None:
    """Forecast at a number of times, and print how often the recorded times were inside their intervals."""
    from polluxsim.common.progress_line import progress_line
    from polluxsim.run.forecasts import calibration, forecast_checks
    from polluxsim.run.workers import num_cores

    if options.jobs:
        raise InvalidConfigError(f"--calibrate takes all jobs; leave out {options.jobs[0]!r}")
    arrivals = _arrivals(options.arrivals)
    with progress_line("times", times) as show:
        found = calibration(run, times, options.forks, lambda n: show(n, times, ""), num_cores(), arrivals)
    for check in forecast_checks(found):
        print("\n".join(calibration_lines(check)))
    print("left out: times that had not come when the run ended, and jobs that ended without them")


def calibration_lines(check: Check) -> list[str]:
    """Return a line about the calibration, and one about the widths of intervals if there are naive forecasts."""
    from polluxsim.look.why.phrases import percent

    share = f", {percent(check.held / check.uncertain)}" if check.uncertain else ""
    lines = [
        f"{check.what}: {check.held} of {check.uncertain} in their 80 % interval{share}; "
        f"{check.known} equal in every future"
    ]
    if check.compared:
        naive_held = f"{percent(check.naive_held / check.compared)} of {check.compared}"
        lines.append(
            f"{check.what}: median width of the interval {length(check.width)}; of the naive one from jobs of the same "
            f"class {length(check.naive_width)}, with {naive_held} in it; widened to hold as often "
            f"{length(check.naive_width * check.naive_scale)}"
        )
    return lines


def add_why(parser: ArgumentParser) -> None:
    parser.description = (
        "Explain why a job waited, started, moved or changed its number of GPUs. Without --at, the command explains "
        "every change of the job. The explanation of your own policy is what the policy records, or what its "
        "allocations show."
    )
    parser.epilog = "Example: polluxsim why RUN cifar10-97 --at 3h"
    take_run(parser)
    parser.add_argument("job", metavar="JOB", help="name of a job, as in the jobs.parquet of the run")
    take(parser, "at")
    take(parser, "brief")
    take(parser, "allow-classes", default=[])
    parser.set_defaults(action=_why)


def _why(options: Namespace) -> None:
    from polluxsim.look.console import console
    from polluxsim.look.why.story import at, find_job, story, waits
    from polluxsim.records.storage import read_reasons

    time = options.at
    run = _run_to_repeat(options)
    job = find_job(run, options.job)
    recorded = read_reasons(options.run)
    reasons = recorded or ()
    screen = console()
    if time is None:
        screen.print(story(run, reasons, job))
    else:
        screen.print(at(run, reasons, job, time), markup=False)
        if not options.brief and waits(run, job, time):
            screen.print(_least_changes(run, job, time), markup=False)
    if note := _note_on_missing_reasons(options.job, recorded):
        screen.print(note, markup=False)


def _least_changes(run: Run, job: JobRecord, time: float) -> str:
    """Return a sentence on the smallest changes that would have let a job run that waits at a time [s]."""
    from polluxsim.common.errors import PolluxSimError
    from polluxsim.look.why.story import would_have_run
    from polluxsim.run.moment import Moment, Trial

    try:
        _check_classes(run)
        moment = Moment(run, time)
        trial = Trial(moment, job.job)
        if not trial.is_there:
            return f"It was gone before the next round, at {clock(moment.time)}."
        least = trial.least()
    except PolluxSimError as error:
        return f"What would have let it run is not known: {error}."
    if least is None:
        return f"At {clock(moment.time)}, the next round, it runs."
    gpus = None if least.fewer_gpus is None else job.num_replicas - least.fewer_gpus
    ahead = "" if least.places is None else trial.ahead[-least.places]
    return would_have_run(moment.time, least.nodes, gpus, (least.places, ahead))


def _note_on_missing_reasons(name: str, recorded: Sequence[ReasonRecord] | None) -> str | None:
    if recorded is None:
        return "No reasons were recorded in this run (it has no reasons.parquet); this is what the allocations say."
    if not any(reason.job == name for reason in recorded):
        return "The policy gave no reasons for this job; this is what the allocations say."
    return None


def _run_to_repeat(options: Namespace) -> Run:
    """Return the run of `options.run`, which may load classes from the modules of `--allow-classes`."""
    from polluxsim.records.storage import read_run

    modules = tuple(options.allow_classes)
    for module in modules:
        if module.partition(".")[0] in {*sys.stdlib_module_names, "polluxsim"}:
            what = f"--allow-classes {module}: a module of Python or polluxsim cannot be allowed"
            raise InvalidConfigError(f"{what}; name a module of the current folder or an installed package")
    if modules:
        import_from_here()
    return replace(read_run(options.run), allow_classes=modules)


def _check_classes(run: Run) -> None:
    """Check the classes that the settings of a run and of its ancestors name. Print a line for each foreign class."""
    from hydra.utils import get_object

    from polluxsim.records.storage import RUN_FILE
    from polluxsim.run.building import check_classes
    from polluxsim.run.forks import ancestry

    source, configs = f"{run.name}/{RUN_FILE}", [info.get("config", {}) for info in ancestry(run)]
    found = [name for config in configs for name in check_classes(config, source, run.allow_classes)]
    for name in dict.fromkeys(found):
        file = getattr(sys.modules[get_object(name).__module__], "__file__", None)
        print(f"polluxsim: {source} names {name}, loaded from {file}", file=sys.stderr)
