"""Commands about the present state of a site: `log nodes`, and `when` for a queue."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from polluxsim.cli.options import add_option, add_output, path
from polluxsim.common.dates import short_date
from polluxsim.common.durations import length
from polluxsim.common.errors import InvalidConfigError, InvalidInputError, invalid_setting

if TYPE_CHECKING:
    import pandas as pd

    from polluxsim.logs.site.queue import Queue, QueuedJob
    from polluxsim.run.resampling import FutureArrivals
    from polluxsim.run.spec import RunSpec
    from polluxsim.workloads.present import History, PresentJobs, Site

NODES_OF = (
    "  sinfo -N -o '%N|%P|%G|%T|%c' > nodes.txt     or: sinfo --json\n"
    "  scontrol show nodes > nodes.txt              or: scontrol show nodes --json\n"
    "  kubectl get nodes -o json > nodes.json"
)
"""Commands that print the nodes of a site."""


def add_log_nodes(parser: ArgumentParser) -> None:
    parser.description = (
        "Read the nodes of a site, with their GPUs, types and partitions, and write them as a configuration of the "
        "cluster, for --config-dir. Nodes that are down, drained, reserved or without GPUs are left out and counted."
    )
    parser.epilog = (
        f"One of these commands prints the nodes:\n{NODES_OF}\n\n"
        "Example: polluxsim log nodes nodes.txt -o conf/cluster/site.yaml"
    )
    parser.add_argument("source", type=path, metavar="SRC", help="output of sinfo, scontrol or kubectl")
    add_output(parser, "configuration to write, like conf/cluster/site.yaml", required=True)
    add_option(parser, "unit", default="gpus")
    parser.set_defaults(action=_nodes)


def _nodes(options: Namespace) -> None:
    """Write the configuration of a cluster, and print its nodes and those that are left out."""
    from polluxsim.common.files import atomic_write
    from polluxsim.logs.site.nodes import cluster_yaml, read_nodes

    target: Path = options.output
    if target.suffix not in (".yaml", ".yml"):
        raise InvalidConfigError(f"-o {target}: the file is a configuration, so its name must end in .yaml")
    nodes = read_nodes(options.source, options.unit)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(target) as temporary:
            temporary.write_text(cluster_yaml(nodes), encoding="utf-8")
    except OSError as error:
        raise InvalidInputError(f"{target}: cannot be written ({error.strerror or error})") from None
    print(f"{nodes.num_nodes} nodes with {nodes.num_gpus:,} {nodes.unit} take jobs")
    for group in nodes.groups:
        where = f", partitions {', '.join(group.partitions)}" if group.partitions else ""
        kind = f" {group.gpu_type}" if group.gpu_type else ""
        print(f"  {len(group.nodes)} × {group.gpus}{kind}{where}")
    for name, (number, gpus) in nodes.partitions().items():
        print(f"partition {name}: {number} nodes, {gpus:,} {nodes.unit}")
    for reason, names in nodes.left_out.items():
        print(f"left out: {len(names)} {reason}, like {names[0]}")
    for note in nodes.notes:
        print(note)
    print(f"wrote {target}; {_use(target)}")


def _use(target: Path) -> str:
    """Return how to use a configuration of the cluster."""
    if target.resolve().parent.name == "cluster":
        return f"use it with --config-dir {target.parent.parent} cluster={target.stem}"
    return f"move it to a folder cluster/, as in conf/cluster/{target.stem}.yaml, and use --config-dir conf"


DEFAULTS = ("engine=log", "policy=easy")
"""Settings of a forecast from a queue, which KEY=VALUE replaces."""


def forecast_queue(options: Namespace, arrivals: FutureArrivals) -> None:
    """Print when the jobs of a queue may start, with assumed later arrivals."""
    from polluxsim.common.progress_line import progress_line
    from polluxsim.logs.site.queue_files import read_queue
    from polluxsim.run.forecasts import forecast_frame, forecast_of
    from polluxsim.run.present import KnownSite, Situation
    from polluxsim.run.workers import num_cores
    from polluxsim.workloads.present import present_jobs, read_history

    # Times without a zone, in the queue and of --taken, are local times of the site.
    _check_options_of_queue(options)
    zone = _zone(options)
    spec = _spec([word for word in options.names if "=" in word])
    site = _site(options, spec)
    queue = read_queue(options.run, zone, _taken(options.taken, zone))
    present = present_jobs(queue, site)
    history = None if options.history is None else read_history(options.history, queue, present, site)
    known_site = KnownSite(Situation(spec, queue.source, present, site, history, arrivals))
    named_jobs = [word for word in options.names if "=" not in word]
    jobs = _asked(named_jobs, known_site.names, known_site.waiting, present)
    # Without a log, run times are the limits, so all futures are alike.
    forks = 1 if history is None else options.forks
    with progress_line("futures", forks) as show:
        forecasts = forecast_of(known_site, jobs, forks, lambda count: show(count, forks, ""), num_cores())
    frame = forecast_frame(forecasts)
    notes = [*_notes(queue, present, history), *_assumptions(options, known_site.assumption)]
    _print(frame, queue, zone, options.form, notes)


def _check_options_of_queue(options: Namespace) -> None:
    """Raise InvalidConfigError if an option has no effect on a forecast from a queue."""
    if options.at is not None:
        raise InvalidConfigError(
            f"{options.run} is a file, not a run, so that --at cannot be used; name a run, or the time of a queue with "
            "--taken"
        )
    if options.history is None and options.arrivals != "recent":
        raise InvalidConfigError(f"--arrivals {options.arrivals} needs --history; give the log of the cluster")


def _zone(options: Namespace) -> tzinfo:
    """Return the zone of local times.

    It is that of --time-zone, else the one that a Parquet log names, like Europe/Berlin, else UTC. Raise
    InvalidConfigError if there is no such zone.
    """
    from polluxsim.logs.trace_table import read_info

    name = options.time_zone
    if name is None and options.history is not None and options.history.suffix == ".parquet":
        zone = read_info(options.history).time_zone
        if "/" in zone:  # a log may also have a fixed distance from UTC, or no zone
            name = zone
    if name is None:
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise invalid_setting("--time-zone", name, "a name like Europe/Berlin or UTC") from None


def _taken(text: str | None, zone: tzinfo) -> float | None:
    """Return the time of --taken [s since 1970-01-01 UTC]; None without it. Raise InvalidConfigError if it is none."""
    if text is None:
        return None
    from polluxsim.logs.formats.times import read_time

    time = read_time(text.replace(" ", "T"), zone)
    if time is None:
        raise InvalidConfigError(f"--taken is {text}, must be a time like 2026-03-04T14:00")
    return time


def _spec(overrides: Sequence[str]) -> RunSpec:
    """Return the description of the policy, the engine and perhaps the cluster.

    Raise InvalidConfigError if a setting is invalid or of the workload.
    """
    from polluxsim.run.composing import compose

    names = [word.partition("=")[0] for word in overrides]
    for name, word in zip(names, overrides, strict=True):
        if name.split(".")[0] == "workload":
            raise InvalidConfigError(f"{word} has no effect: the jobs are those of the queue; leave it out")
    # Hydra refuses a group that is chosen twice.
    defaults = [word for word in DEFAULTS if word.partition("=")[0] not in names]
    return compose([*defaults, *overrides])


def _site(options: Namespace, spec: RunSpec) -> Site:
    """Return the cluster of --site or of the settings. Raise InvalidConfigError if neither or both have the nodes."""
    from polluxsim.hardware.clusters import Cluster
    from polluxsim.logs.site.nodes import read_nodes
    from polluxsim.run.building import build
    from polluxsim.run.present import site_of

    of_cluster = [word for word in options.names if word.startswith(("cluster=", "cluster.", "cluster/"))]
    if options.site is None:
        if not of_cluster:
            raise InvalidConfigError(
                "the nodes of the cluster are missing; give the output of sinfo or scontrol show nodes with --site, or "
                "settings like cluster.num_nodes=6 cluster.gpus_per_node=8"
            )
        return site_of(spec, build(spec.config, "cluster"), {})
    if of_cluster:
        raise InvalidConfigError(f"{of_cluster[0]} cannot be used with --site, which has the nodes; leave one out")
    nodes = read_nodes(options.site)
    cluster = Cluster.of_groups([group.as_setting() for group in nodes.groups])
    return site_of(spec, cluster, nodes.numbers)


def _asked(names: Sequence[str], jobs: Sequence[str], waiting: frozenset[str], present: PresentJobs) -> list[str]:
    """Return the names of the jobs to forecast: the given names, or all of `jobs` that wait.

    Raise InvalidInputError if a named job is left out of the forecast. An unknown name is not refused here.
    """
    for name in names:
        if name in present.kept_out:
            raise InvalidInputError(f"job {name} has no forecast, as all waiting jobs that {present.kept_out[name]}")
    if names:
        return list(names)
    return [name for name in jobs if name in waiting]


def _notes(queue: Queue, present: PresentJobs, history: History | None) -> Iterator[str]:
    """Yield sentences on the jobs that the forecast leaves out."""
    for reason, count in Counter(present.kept_out.values()).items():
        yield f"without forecast, and assumed to delay no other job: {count} waiting jobs that {reason}"
    for reason, count in present.left_out.items():
        yield f"left out: {count} running jobs that {reason}"
    for reason, count in queue.left_out.items():
        yield f"left out: {count} {reason}"
    yield from queue.notes
    if history is not None:
        yield from history.notes


def _assumptions(options: Namespace, assumption: str) -> Iterator[str]:
    """Yield sentences on what the forecast assumes."""
    policies = [word for word in options.names if word.startswith("policy=")]
    policy = policies[0] if policies else "policy=easy"
    yield f"{assumption}; {policy}"
    yield "not modelled: limits by user and QOS, nodes set aside for later, licences, nodes that fail or return"


def _print(frame: pd.DataFrame, queue: Queue, zone: tzinfo, form: str | None, notes: Sequence[str]) -> None:
    """Print the forecasts; beside CSV and JSON, the notes go to standard error."""
    now = datetime.fromtimestamp(queue.time, zone)
    notes = [f"state at {now:%Y-%m-%d %H:%M:%S %Z} ({queue.time_from})", *notes]
    if form is not None:
        # The times count from now, and a program that reads them needs to know when that is.
        frame.insert(0, "now", now.isoformat())
        frame.attrs = {}
        if form == "csv":
            print(frame.to_csv(index=False).strip())
        else:
            rows = json.loads(frame.to_json(orient="records"))  # `to_json` writes ∞ as null
            print(json.dumps(rows, indent=2))
    else:
        _print_table(frame, {job.name: job for job in queue.jobs}, now)
    stream = sys.stderr if form else sys.stdout
    # Behind the table, where a reader of the terminal sees them last.
    for note in notes:
        print(note, file=stream)


def _print_table(frame: pd.DataFrame, jobs: Mapping[str, QueuedJob], now: datetime) -> None:
    """Print the forecasts as a table for the terminal."""
    from polluxsim.look.console import console
    from polluxsim.look.tables import boxed

    lines = [("job", "user", "GPUs", "starts", "in", "80 % interval", "completes")]
    for row in frame.to_dict("records"):
        job = jobs[row["job"]]
        start = "runs"
        start_from_now = ""
        interval = ""
        if row["waits"]:
            median = row["start_p50"]
            start = _at(median, now)
            start_from_now = _in(median)
            interval = _interval(row["start_p10"], row["start_p90"], now)
        owner = job.user or job.tenant or ""
        completion = _at(row["completion_p50"], now)
        lines.append((job.name, owner, f"{job.num_gpus:g}", start, start_from_now, interval, completion))
    running = [job for job in jobs.values() if job.is_running]
    title = f"{len(running)} running and {len(jobs) - len(running)} waiting jobs with GPUs"
    console().print(boxed(lines, title, names=2))


def _at(seconds: float, now: datetime) -> str:
    """Return a time from now [s] as clock time, with the date if it is on another day; "unknown" for ∞."""
    if seconds == float("inf"):
        return "unknown"
    time = datetime.fromtimestamp(now.timestamp() + seconds, now.tzinfo)
    return short_date(time, now)


def _in(seconds: float) -> str:
    """Return a time from now [s] as a length; "" for an unknown time."""
    if seconds == float("inf"):
        return ""
    return length(seconds)


def _interval(low: float, high: float, now: datetime) -> str:
    """Return the 80 % interval of a start, with ends from now [s], in words."""
    if low == high:
        return "exact"
    if high == float("inf"):
        return f"{_at(low, now)} or later"
    return f"{_at(low, now)} – {_at(high, now)}"
