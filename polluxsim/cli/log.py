"""Commands about logs of clusters: `log import`, `log calibrate` and `log whatif`."""

from __future__ import annotations

import json
import re
from argparse import Action, ArgumentParser, Namespace
from math import isnan
from typing import TYPE_CHECKING, Any, NoReturn

from polluxsim.cli.options import OPTIONS, SETTINGS, path, request_of, take, take_output
from polluxsim.common.durations import HOUR, length
from polluxsim.common.errors import InvalidConfigError, InvalidInputError

if TYPE_CHECKING:
    from polluxsim.studies.log_replays import LogWhatIf

LOG_FORMATS = {
    "philly-raw": "Philly of Microsoft, the published JSON log",
    "philly": "Philly, the file philly.csv of Pollux's artifact",
    "itp": "ITP 2021 of Microsoft",
    "helios": "Helios of SenseTime",
    "seren": "Acme of Shanghai AI Laboratory, cluster Seren",
    "kalos": "Acme, cluster Kalos",
    "pai2020": "PAI 2020 of Alibaba, tasks (and pai_job_table.csv beside them)",
    "openb2023": "openb 2023 of Alibaba, pods",
    "sia": "job list of Sia's simulator",
    "gavel": "job list of the simulators of Gavel and Shockwave",
    "tiresias": "job list of Tiresias's simulator",
    "slurm": "output of sacct --parsable2 or --json",
    "pbs": "accounting log of PBS Professional, OpenPBS or Torque",
    "swf": "Standard Workload Format, with processors in place of GPUs",
    "kueue": "Workloads of Kueue: kubectl get workloads -A -o json",
    "volcano": "PodGroups and Jobs of Volcano, from kubectl with -o json",
    "pods": "Pods of Kubernetes: kubectl get pods -A -o json",
    "table": "any CSV or JSON with a row per job, and --columns",
}
"""Formats and their logs. A test compares the names with those of `polluxsim.logs.formats`."""

TABLE_KEYS = (
    "job", "submit", "eligible", "start", "end", "duration", "wait", "gpus", "user", "tenant", "partition", "status",
    "application", "gpu_type", "nodes", "cpus", "memory", "time_limit", "priority", "qos",
)  # fmt: skip
"""Keys of a map of columns. A test compares them with those of `polluxsim.logs.formats.table`."""

SACCT = (
    "  sacct --allusers --parsable2 --starttime 2026-01-01 --endtime 2026-02-01 \\\n"
    "  --format JobID,JobName,User,Account,Partition,QOS,Priority,State,Submit,Eligible,Start,End,ElapsedRaw,"
    "TimelimitRaw,NNodes,ReqTRES,AllocTRES \\\n  > sacct.txt"
)
"""Command of Slurm that prints a log with all columns that are read."""


class _Example(Action):
    """Action of --example: print the example log and end."""

    def __call__(self, parser: ArgumentParser, *_: Any) -> NoReturn:
        from polluxsim.common.shipped import shipped

        print((shipped("traces") / "example-sacct.txt").read_text(encoding="utf-8"), end="")
        parser.exit()


def add_log_import(parser: ArgumentParser) -> None:
    parser.description = "Check every row of a cluster's log, and write the log as a Parquet file."
    parser.epilog = (
        "Formats:\n"
        + "\n".join(f"  {name:<15}{what}" for name, what in LOG_FORMATS.items())
        + f"\n\nThis command prints a log for the format slurm:\n{SACCT}\n\n"
        + f"Keys of --columns: {', '.join(TABLE_KEYS)}.\n"
        "submit and gpus are needed. COLUMN*60 converts minutes, and COLUMN*COLUMN multiplies two columns. COLUMN:1002 "
        "takes the number of entry 1002 of a list like 1=8,1002=2. status=COLUMN:slurm or :swf reads numbers. A column "
        "with the name of a key needs no pair. If all columns are numbers, the table has no header, and its first "
        "column is 1."
        "\n\nExample: polluxsim log import slurm sacct.txt -o log.parquet --gpus 64"
    )
    parser.add_argument("--example", action=_Example, nargs=0, help=OPTIONS["example"].meaning)
    parser.add_argument("format", metavar="FORMAT", help="format of the log, from the list below")
    parser.add_argument("source", type=path, metavar="SRC", help="file or folder to read")
    take_output(parser, ".parquet file to write", required=True)
    take(parser, "skip-bad")
    take(parser, "gpus", note="the report states the load relative to it")
    take(parser, "time-zone")
    take(parser, "columns", default=[])
    take(parser, "unit", default="gpus")
    take(parser, "json")
    parser.set_defaults(action=_import)


def _import(options: Namespace) -> None:
    from polluxsim.logs.import_report import as_text
    from polluxsim.logs.importing import import_trace

    if options.gpus and len(options.gpus) > 1:
        numbers = ",".join(map(str, options.gpus))
        raise InvalidConfigError(
            f"--gpus is {numbers}, must be one number, because the log is of one cluster; leave out the others"
        )
    try:
        report = import_trace(
            options.format,
            options.source,
            options.output,
            skip_bad=options.skip_bad,
            cluster_gpus=options.gpus[0] if options.gpus else None,
            time_zone=options.time_zone,
            columns=",".join(options.columns),
            unit=options.unit,
        )
    except (InvalidConfigError, InvalidInputError) as error:
        raise type(error)(re.sub(r"^time_zone is", "--time-zone is", str(error))) from None
    print(json.dumps(report.as_json(), indent=2) if options.json else as_text(report))


def _add_replays(parser: ArgumentParser, log: str, policies: list[str]) -> None:
    """Declare the options of all commands that replay a log under several policies."""
    parser.add_argument("log", type=path, metavar="LOG", help=log)
    parser.add_argument("names", nargs="*", default=[], metavar="KEY=VALUE", help=SETTINGS)
    take(parser, "policies", default=policies)
    take(parser, "gpus-per-node", default=8)


def add_log_calibrate(parser: ArgumentParser) -> None:
    parser.description = (
        "Find the policy and the cluster size that best explain the waits in a log. The command replays the log under "
        "each policy and size, and prints the replay with the most similar waits first. A wait is all time without "
        "GPUs. Each restart costs engine.restart_delay, 30 s by default."
    )
    parser.epilog = "Example: polluxsim log calibrate log.parquet --gpus 64,96 --policies fifo,easy"
    _add_replays(
        parser, "log with waits, as 'polluxsim log import' writes it", ["fifo", "easy", "conservative", "multifactor"]
    )
    take(parser, "gpus", required=True, note="the command tries each number")
    take_output(parser, "folder for the runs", "calibrated")
    take(parser, "workers")
    parser.set_defaults(action=_calibrate)


def _calibrate(options: Namespace) -> None:
    from polluxsim.look.console import console
    from polluxsim.look.descriptions import engine_waits, print_without_effect
    from polluxsim.look.tables import boxed
    from polluxsim.studies.log_calibration import CalibrateRequest, calibrate

    request = request_of(CalibrateRequest, options, folder=options.output, overrides=options.names)
    found = calibrate(request)
    lines = [("policy", "GPUs", "off by [h]", "mean wait [h]", "preempted", "rank correlation")]
    for match in found.matches:
        correlation = "–" if isnan(match.rank_correlation) else f"{match.rank_correlation:.2f}"
        hours = (f"{match.error / HOUR:.2f}", f"{match.mean_wait / HOUR:.2f}")
        lines.append((match.policy, str(match.gpus), *hours, f"{match.preemptions:,}", correlation))
    mean = found.recorded.mean() / HOUR
    console().print(boxed(lines, f"{len(found.recorded)} jobs waited {mean:.2f} h on average in the log"))
    for sentence in (*found.doubts(), *found.left_out):
        print(sentence)
    print(WAITS)
    print(engine_waits(found.matches[0].engine))
    print_without_effect(options.output)


ON, ON_RATE = "on", "rsc-1"
"""The word of `--failures` for node failures at the published rate, and its entry of cluster/failures."""


def add_log_whatif(parser: ArgumentParser) -> None:
    parser.description = (
        "Replay the log of a cluster with other numbers of nodes, loads, policies and failures. The command finds the "
        "policy that best explains the waits in the log, and prints how each change affects the waits. A wait is all "
        "time without GPUs. Each restart costs engine.restart_delay, 30 s by default."
    )
    parser.epilog = "Example: polluxsim log whatif sacct.txt --nodes 8,+4 --load 1,1.2"
    _add_replays(parser, "log, as sacct or 'polluxsim log import' writes it", ["fifo", "easy"])
    take(parser, "nodes", required=True)
    take(parser, "load", default=[1.0])
    take(parser, "failures", default=["off"])
    take(parser, "percentile", default=["p95"], note="the sentences use the first one")
    take_output(parser, "folder for the runs (default: LOG-whatif)")
    parser.set_defaults(action=_whatif)


def _whatif(options: Namespace) -> None:
    from polluxsim.look.descriptions import before_run_in, engine_waits, from_before, without_effect
    from polluxsim.records.folders import info_of
    from polluxsim.studies.log_replays import LogWhatIfRequest, log_whatif, not_monotone

    options.failures = list(dict.fromkeys(ON_RATE if word == ON else word for word in options.failures))
    others = {"loads": options.load, "percentiles": options.percentile, "overrides": options.names}
    request = request_of(LogWhatIfRequest, options, folder=options.output, **others)
    found = log_whatif(request)
    mean = length(found.recorded.mean())
    nodes = f"{request.nodes[0]} node{'s' * (request.nodes[0] != 1)} of {request.gpus_per_node} GPUs"
    print(f"{len(found.recorded)} jobs waited {mean} on average in the log; replayed on {nodes}: "
          + ", ".join(f"{match.policy} is off by {length(match.error)} a job" for match in found.matches))  # fmt: skip
    for sentence in found.calibration.doubts():
        print(sentence)
    for sentence in from_before(before_run_in(info_of(run)) for run in found.runs.values()):
        print(sentence)
    for sentence in found.calibration.left_out:
        print(sentence)
    _print_waits(found)
    print("\n".join([*found.left_out(), *found.effects(), *not_monotone(found.waits, request.percentiles[0])]))
    print(WAITS)
    print(engine_waits(found.matches[0].engine))
    for sentence in without_effect((case.policy, info_of(run)) for case, run in found.runs.items()):
        print(sentence)
    print(f"wrote {request.place}")


WAITS = "a wait is all time without GPUs from submission to completion"
"""Line that defines the waits of replays."""


def _print_waits(found: LogWhatIf) -> None:
    """Print the mean and the percentiles of the wait, the mean JCT and the preemptions in each case as a table."""
    from polluxsim.look.console import console
    from polluxsim.look.tables import boxed
    from polluxsim.studies.replayed_jobs import MEAN, statistic

    has_failures = list(found.request.failures) != ["off"]
    are_interrupted = any(replay.waits != replay.first_waits for replay in found.replays.values())
    have_others = any(len(replay.waits) > len(found.jobs) for replay in found.replays.values())
    waits = [f"{what} wait" for what in ("mean", *found.request.percentiles)]
    head = ["policy", "nodes", "load", *["failures"] * has_failures, *waits, *["mean to first GPU"] * are_interrupted]
    lines = [[*head, "mean JCT", "preempted", "jobs", *["mean wait of other jobs"] * have_others]]
    for case, times in found.waits.items():
        replay = found.replays[case]
        cells = [case.policy, str(case.nodes), f"{case.load:g}", *[case.failures] * has_failures]
        cells += map(_time_cell, times)
        if are_interrupted:
            cells.append(_time_cell(statistic(MEAN, replay.first_waits, found.jobs)))
        cells += [_time_cell(statistic(MEAN, replay.jcts, found.jobs)), f"{replay.num_preemptions(found.jobs):,}"]
        cells.append(f"{len(found.jobs):,}")
        if have_others:
            others = sorted(replay.waits.keys() - set(found.jobs))
            cells.append(f"{_time_cell(statistic(MEAN, replay.waits, others))} ({len(others):,})" if others else "–")
        lines.append(cells)
    console().print(boxed(lines))


def _time_cell(seconds: float) -> str:
    """Return a time [s] as text; "–" without jobs."""
    return "–" if isnan(seconds) else length(seconds)
