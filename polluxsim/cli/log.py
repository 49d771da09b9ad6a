"""Commands about logs of clusters: `log import`, `log calibrate`, `log whatif` and `log judge`."""

from __future__ import annotations

import json
import re
import sys
from argparse import Action, ArgumentParser, Namespace
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

from polluxsim.cli.options import (
    OPTIONS,
    SETTINGS,
    MoreNodes,
    add_forms,
    add_option,
    add_output,
    path,
    refuse_beside,
    request_of,
)
from polluxsim.common.durations import length
from polluxsim.common.errors import InvalidConfigError, InvalidInputError, PolluxSimError, listed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from polluxsim.hardware.costs import Price
    from polluxsim.look.sheets import Sheet
    from polluxsim.studies.judging import Judgement
    from polluxsim.studies.log_calibration import Calibration
    from polluxsim.studies.log_replays import LogWhatIfRequest
    from polluxsim.studies.log_sections import LogSection

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
    "application", "gpu_type", "nodes", "gpus_per_task", "cpus", "memory", "time_limit", "priority", "qos",
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
    add_output(parser, ".parquet file to write", required=True)
    add_option(parser, "skip-bad")
    add_option(parser, "gpus", note="the report states the load relative to it")
    add_option(parser, "time-zone")
    add_option(parser, "columns", default=[])
    add_option(parser, "unit", default="gpus")
    add_option(parser, "json")
    parser.set_defaults(action=_import)


def _import(options: Namespace) -> None:
    """Import a log, and print the report."""
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
            cluster_gpus=options.gpus[0] if options.gpus else None,  # `--gpus` of other commands takes several numbers
            time_zone=options.time_zone,
            columns=",".join(options.columns),
            unit=options.unit,
        )
    except (InvalidConfigError, InvalidInputError) as error:
        raise with_option(error) from None
    print(json.dumps(report.as_json(), indent=2) if options.json else as_text(report))


def with_option(error: PolluxSimError) -> PolluxSimError:
    """Return an error of an import with the name of the option in place of the parameter."""
    # The functions that import have the names of Python, which the user of a command has not seen.
    return type(error)(re.sub(r"^time_zone is", "--time-zone is", str(error)))


def _add_replays(parser: ArgumentParser, log: str, policies: list[str]) -> None:
    """Declare the options of all commands that replay a log under several policies."""
    parser.add_argument("log", type=path, metavar="LOG", help=log)
    parser.add_argument("names", nargs="*", default=[], metavar="KEY=VALUE", help=SETTINGS)
    add_option(parser, "policies", default=policies)
    add_option(parser, "gpus-per-node", default=8)


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
    add_option(
        parser, "gpus", note="the command tries each number (default: the largest number of GPUs in use at once)"
    )
    add_option(parser, "partition", note="on GPUs of its own")
    add_option(parser, "partition-gpus")
    add_option(parser, "nodes-from", note="each partition has its own replays")
    add_option(parser, "user", note="the waits are compared over the jobs of this user")
    add_option(parser, "qos", note="the waits are compared over the jobs of this QOS")
    add_output(parser, "folder for the runs", "calibrated")
    add_option(parser, "workers")
    add_forms(parser, "markdown", "json")
    parser.set_defaults(action=_calibrate)


def _calibrate(options: Namespace) -> None:
    """Calibrate a log, each partition with nodes of its own by itself, and print the answer."""
    from polluxsim.cli.log_answers import sheet_of_calibrations
    from polluxsim.look.descriptions import print_without_effect
    from polluxsim.look.sheets import print_sheet
    from polluxsim.studies.log_calibration import CalibrateRequest, calibrate

    # A mistake in the options ends the command before the first replay.
    requests = []
    for section, gpus, folder in _pools(options):
        request = request_of(
            CalibrateRequest,
            options,
            folder=folder,
            overrides=options.names,
            gpus=gpus,
            partition=section.partition,
            gpus_per_node=section.gpus_per_node or options.gpus_per_node,
        )
        requests.append((section, request))
    answers: dict[str | None, Calibration | PolluxSimError] = {}
    errors: list[PolluxSimError] = []
    for section, request in requests:
        try:
            calibration = calibrate(request)
        except (InvalidConfigError, InvalidInputError) as error:
            # One partition may have no waits, or no jobs of the user. The other partitions still have an answer.
            errors.append(error)
            answers[section.partition] = error
            continue
        answers[section.partition] = calibration._replace(cluster=[*section.sentences, *calibration.cluster])
        print_without_effect(request.folder)
    # An error of every partition is about the command, not about a partition.
    if len(errors) == len(requests):
        raise errors[0]
    print_sheet(sheet_of_calibrations(answers), options.form)


def _pools(options: Namespace) -> list[tuple[LogSection, list[int], Path]]:
    """Return the partitions that have their own replays, each with the GPUs to try and the folder for its runs.

    Raise InvalidConfigError if options contradict each other, or the log does not have a partition.
    """
    from polluxsim.studies.log_sections import LogSection
    from polluxsim.studies.log_selection import chosen_partitions, file_name
    from polluxsim.studies.logged_jobs import logged_jobs

    if options.nodes_from is not None:
        refuse_beside(options, "nodes-from", ["gpus", "partition-gpus"])
        pools = []
        for section in sections_of(options, options.log):
            gpus = [(section.nodes or 0) * (section.gpus_per_node or 0)]
            folder = options.output
            if section.partition:
                folder /= file_name(section.partition)
            pools.append((section, gpus, folder))
        return pools
    if options.partition_gpus is None:
        return [(LogSection(options.partition), options.gpus or [], options.output)]
    refuse_beside(options, "partition-gpus", ["gpus", "partition"])
    jobs = list(logged_jobs(options.log).values())
    for name in options.partition_gpus:
        chosen_partitions(name, jobs, "--partition-gpus")  # raises if the log has no such partition
    pools = []
    for name, gpus in options.partition_gpus.items():
        pools.append((LogSection(name), gpus, options.output / file_name(name)))
    return pools


PAGES = (".html", ".htm")  # ends of the names of pages

ON = "on"  # word of the user for failures
ON_RATE = "rsc-1"
"""The word of `--failures` for node failures at the published rate, and its entry of cluster/failures."""


def add_log_whatif(parser: ArgumentParser) -> None:
    parser.description = (
        "Replay the log of a cluster with other numbers of nodes, loads, policies and failures. The command finds the "
        "policy that best explains the waits in the log, and prints how each change affects the waits. A wait is all "
        "time without GPUs. Each restart costs engine.restart_delay, 30 s by default."
    )
    parser.epilog = "Example: polluxsim log whatif sacct.txt --nodes 8,+4 --load 1,1.2"
    _add_replays(parser, "log, as sacct or 'polluxsim log import' writes it", ["fifo", "easy"])
    add_option(parser, "nodes", note="(default: the nodes for the largest number of GPUs in use at once, and one more)")
    add_option(parser, "extra")
    add_option(parser, "nodes-from", note="each partition has its own section")
    add_option(parser, "partition", note="on nodes of its own (default: each partition, if --nodes is not given)")
    add_option(parser, "user", note="the waits are over the jobs of this user")
    add_option(parser, "qos", note="the waits are over the jobs of this QOS")
    add_option(parser, "load", default=[1.0])
    add_option(parser, "failures", default=["off"])
    add_option(parser, "user-gpus", default=[], note="each number is tried beside the replays without it")
    add_option(parser, "percentile", default=["p95"], note="the sentences use the first one")
    add_option(parser, "price", note="print the cost of the nodes in a month")
    add_forms(parser, "markdown", "json")
    add_output(parser, "folder for the runs (default: LOG-whatif), or an .html file for a page to print beside them")
    parser.set_defaults(action=_whatif)


def _check_nodes(options: Namespace) -> None:
    """Raise InvalidConfigError if --nodes lacks the existing number of nodes, which the log does not have."""
    if options.nodes is not None and isinstance(options.nodes[0], MoreNodes):
        more = int(options.nodes[0])
        raise InvalidConfigError(f"--nodes is +{more}, must begin with the existing number of nodes, like 8,+{more}")


def _whatif(options: Namespace) -> None:
    """Replay a log with changes, each partition by itself, and print the answer; perhaps also write pages."""
    from polluxsim.cli.log_answers import sheet_of_sections
    from polluxsim.look.sheets import print_sheet
    from polluxsim.studies.log_replays import LogWhatIfRequest, imported
    from polluxsim.studies.log_sections import LogSection

    page: Path | None = None
    folder: Path | None = options.output
    if folder is not None and folder.suffix in PAGES:
        page = folder
        folder = None
    failures = [ON_RATE if word == ON else word for word in options.failures]
    # Both names of the rate may be given, and equal cases would be replayed twice.
    options.failures = list(dict.fromkeys(failures))
    request = request_of(
        LogWhatIfRequest,
        options,
        folder=folder,
        loads=options.load,
        percentiles=options.percentile,
        overrides=options.names,
    )
    log = request.log
    sections = [LogSection(options.partition)]
    _check_nodes(options)
    if options.nodes is None:
        # Imported once for all sections, of which each would import a raw log again.
        log = imported(request.log, request.place)
        sections = sections_of(options, log)
    else:
        refuse_beside(options, "nodes", ["nodes-from", "extra"])
    request = replace(request, log=log, folder=request.place)
    sheets, pages = _replay_sections(request, sections, page, options.price)
    if len(sections) == 1:
        (sheet,) = sheets.values()
    else:
        sheet = sheet_of_sections(sheets)
    print_sheet(sheet, options.form)
    # A program that reads JSON or Markdown must not meet a sentence in it.
    stream = sys.stderr if options.form else sys.stdout
    for path_written in (request.place, *pages):
        print(f"wrote {path_written}", file=stream)


def _replay_sections(
    request: LogWhatIfRequest, sections: Sequence[LogSection], page: Path | None, price: Price | None
) -> tuple[dict[str, Sheet], list[Path]]:
    """Replay each section of a log, and write a page for each if `page`, the name of a page, is given.

    Return the answers by partition, "" for the whole log, and the pages. Raise the error of the first section if no
    section can be replayed.
    """
    from polluxsim.cli.log_answers import sheet_of_whatif, sheet_without_replay
    from polluxsim.studies.log_replays import log_whatif
    from polluxsim.studies.log_selection import file_name

    sheets: dict[str, Sheet] = {}
    errors: list[PolluxSimError] = []
    pages: list[Path] = []
    for section in sections:
        name = section.partition or ""
        folder = request.place if len(sections) == 1 else request.place / file_name(name)
        try:
            answer = log_whatif(_request_of_section(request, section, folder))
        except (InvalidConfigError, InvalidInputError) as error:
            # One partition may have no waits, or no jobs of the user. The other partitions still have an answer.
            errors.append(error)
            sheets[name] = sheet_without_replay(str(error))
            continue
        answer = answer._replace(cluster=[*section.sentences, *answer.cluster])
        sheets[name] = sheet_of_whatif(answer, price)
        if page is not None:
            from polluxsim.cli.log_page import write_page

            target = page if len(sections) == 1 else page.with_stem(f"{page.stem}-{file_name(name)}")
            write_page(answer, target, price)
            pages.append(target)
    # An error of every partition is about the command, not about a partition.
    if len(errors) == len(sections):
        raise errors[0]
    return sheets, pages


def _request_of_section(request: LogWhatIfRequest, section: LogSection, folder: Path) -> LogWhatIfRequest:
    """Return the request of one section, with its nodes if a list of nodes states them."""
    of_section = replace(request, partition=section.partition, folder=folder)
    if section.nodes is None or section.gpus_per_node is None:
        return of_section
    numbers = [section.nodes]
    for more in request.extra:
        numbers.append(section.nodes + more)
    return replace(of_section, nodes=numbers, gpus_per_node=section.gpus_per_node)


def sections_of(options: Namespace, log: Path) -> list[LogSection]:
    """Return the partitions that have replays of their own, each with its nodes if a list has them.

    Raise InvalidConfigError if the list has no nodes for the partition that the user names, and InvalidInputError if
    the log or the list cannot be read.
    """
    from polluxsim.studies.log_sections import LogSection, sections_of_log, sections_of_nodes
    from polluxsim.studies.logged_jobs import logged_jobs

    if options.nodes_from is None and options.partition is not None:
        return [LogSection(options.partition)]
    jobs = list(logged_jobs(log).values())
    if options.nodes_from is None:
        return sections_of_log(jobs)
    sections = sections_of_nodes(options.nodes_from, jobs)
    if options.partition is None:
        return sections
    of_partition = [section for section in sections if section.partition == options.partition]
    if not of_partition:
        names = listed(str(section.partition) for section in sections)
        raise InvalidConfigError(
            f"--partition is {options.partition!r}, must be {names}: the partitions of the log that have nodes of "
            f"their own in {options.nodes_from}"
        )
    return of_partition


def add_log_judge(parser: ArgumentParser) -> None:
    parser.description = (
        "Judge forecasts against a log. The command finds the policy that best explains the waits in the first part of "
        "the log, forecasts the waits in the second part with the changes of the nodes that happened, and prints how "
        "far off the forecast is. Without --change, it infers the changes from the GPUs in use at once. A log with "
        "several partitions has a forecast for each of them, unless --nodes-before or --change is given."
    )
    parser.epilog = "Example: polluxsim log judge log.parquet --nodes-before 6 --change 8d=8"
    _add_replays(parser, "log with waits, as 'polluxsim log import' writes it", ["fifo", "easy"])
    add_option(parser, "split")
    add_option(parser, "nodes-before", note="(default: the nodes for the largest number of GPUs in use at once)")
    add_option(parser, "change")
    add_option(parser, "partition", note="on nodes of its own")
    add_output(parser, "folder for the runs", "judged")
    add_option(parser, "workers")
    parser.set_defaults(action=_judge)


def _judge(options: Namespace) -> None:
    """Judge forecasts against a log, and print the errors."""
    from polluxsim.cli.log_answers import WAITS
    from polluxsim.look.descriptions import engine_waits
    from polluxsim.studies.judging import JudgeRequest, NodesFrom, judge
    from polluxsim.studies.log_selection import file_name, partitions_of
    from polluxsim.studies.logged_jobs import logged_jobs

    changes = None
    if options.change is not None:
        changes = [NodesFrom(*change) for change in options.change]
    chosen = options.partition
    partitions: list[str | None] = [chosen]
    # Numbers of nodes are those of one cluster, so they cannot hold for each partition.
    if chosen is None and changes is None and options.nodes_before is None:
        several = partitions_of(logged_jobs(options.log).values())
        if len(several) > 1:
            partitions = list(several)
    for partition in partitions:
        folder = options.output
        if partition is not chosen:
            folder /= file_name(str(partition))
        if partition is not None:
            print(f"partition {partition}:")
        request = request_of(
            JudgeRequest,
            options,
            folder=folder,
            overrides=options.names,
            nodes=options.nodes_before,
            changes=changes,
            partition=partition,
        )
        judgement = judge(request)
        for sentence in judgement.sentences():
            print(sentence)
        _print_groups(judgement)
    print(WAITS)
    print(engine_waits(judgement.calibration.matches[0].engine))


def _print_groups(judgement: Judgement) -> None:
    """Print the errors and the coverage of a forecast, of all jobs, by partition and by size class, as a table."""
    from polluxsim.look.console import console
    from polluxsim.look.tables import boxed
    from polluxsim.studies.verdicts import share_in_words

    lines = [("jobs of the second part", "jobs", "recorded", "forecast", "off by", "explains", "days in interval")]
    for group, coverage in judgement.groups:
        times = (length(group.recorded), length(group.replayed), length(group.error))
        inside = "–" if coverage is None else f"{coverage.inside} of {coverage.days}"
        lines.append((group.name, f"{group.num_jobs:,}", *times, share_in_words(group), inside))
    console().print(boxed(lines, "mean waits, in the log and as forecast"))
