"""The group `polluxsim twin`: questions about a running Slurm. It runs only queries of Slurm.

Each question goes the same way: `_situation` reads the state and what is assumed, a function of `studies.twin` answers,
`twin_answers` makes a sheet of the answer, and `_answer` prints it. Imports are in the functions, so that `--help` is
fast.
"""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from polluxsim.cli.options import add_forms, add_option, add_output, path
from polluxsim.common.errors import InvalidConfigError, InvalidInputError

if TYPE_CHECKING:
    from datetime import tzinfo

    from polluxsim.logs.live.state import SlurmState
    from polluxsim.look.sheets import Sheet
    from polluxsim.policies.slurm.parameters import Parameters
    from polluxsim.studies.twin.asking import TwinSituation

NUM_FUTURES = 40  # `studies.twin.estimates.NUM_FUTURES`
NUM_FIRST = 5  # futures of the first estimate
LEAST_REMAINING = 5.0  # without a terminal, a shorter remaining time is not announced [s]
STANDARD_INPUT = "-"
MOST_LISTED = 60  # lines that are not used and that are printed


def add_twin_config(parser: ArgumentParser) -> None:
    parser.description = (
        "Read the configuration of a Slurm installation, and write its nodes, the parameters of its schedulers, and "
        "its accounts as configurations of a simulation. The command lists the lines that it does not use."
    )
    parser.epilog = "Example: polluxsim twin config slurm.conf --accounts dump.txt -o conf"
    parser.add_argument("source", type=path, metavar="SLURM.CONF", help="configuration of Slurm")
    add_option(parser, "gres")
    add_option(parser, "accounts")
    add_output(parser, "folder for cluster/NAME.yaml and policy/NAME.yaml", required=True)
    parser.set_defaults(action=_config)


def _config(options: Namespace) -> None:
    """Write the configurations, and list what of the installation they do not have."""
    from polluxsim.studies.twin.configuring import write_configuration

    written = write_configuration(options.source, options.output, options.gres, options.accounts)
    print(f"wrote {written.cluster}: {written.num_nodes} nodes with {written.num_gpus} GPUs")
    stated = [f"{name}={value}" for name, value in written.parameters.items() if name != "accounts"]
    if written.num_accounts:
        stated.append(f"{written.num_accounts} accounts with {written.num_users} users")
    print(f"wrote {written.policy}: {', '.join(stated) or 'defaults of Slurm'}")
    if written.slurm_ignores_limits:
        print("Slurm ignores limits of accounts without AccountingStorageEnforce=limits, but the policy keeps them")
    if written.unused:
        print(f"not used: {len(written.unused)} lines")
    for line in written.unused[:MOST_LISTED]:
        print(f"  {line.file}, line {line.number}: {line.text}")
    if len(written.unused) > MOST_LISTED:
        print(f"  … and {len(written.unused) - MOST_LISTED} more lines, of {written.unused[-1].file} to the end")
    name = written.policy.stem
    print(f"use them with polluxsim run --config-dir {options.output} cluster={name} policy={name}")


def add_twin_collect(parser: ArgumentParser) -> None:
    parser.description = (
        "Save the present state of a cluster with Slurm: run Slurm's queries, and write the output of each to a file. "
        "The other commands of the group read the folder with --state, also on another machine."
    )
    parser.epilog = "Example: polluxsim twin collect --print"
    add_output(parser, "folder for the files (default: state)")
    add_option(parser, "print")
    parser.set_defaults(action=_collect)


def _collect(options: Namespace) -> None:
    """Save the state, or print the commands that do."""
    from polluxsim.logs.live.queries import QUERIES, collect, shell_lines

    folder = options.output or Path("state")
    if options.print:
        print("\n".join(shell_lines(str(folder))))
        return
    missing = collect(folder)
    print(f"wrote {len(QUERIES) - len(missing)} of {len(QUERIES)} answers of Slurm to {folder}")
    if missing:
        print(f"missing: {', '.join(missing)}")


def _add_question(parser: ArgumentParser) -> None:
    """Declare the options that all questions have."""
    add_option(parser, "state")
    add_option(parser, "history", note="an output of sacct, or a recorded run")
    add_option(parser, "policy")
    add_option(parser, "forks", default=NUM_FUTURES)
    add_option(parser, "arrivals", default="recent")
    add_option(parser, "time-zone", note="for an output of sacct")
    add_output(parser, "HTML page to write; a later call replaces it, and an open page shows the new content")
    add_forms(parser, "csv", "json")


def add_twin_eta(parser: ArgumentParser) -> None:
    parser.description = (
        "Estimate when the jobs of a running Slurm start and end, with intervals, beside squeue --start. Futures "
        "continue the present state under Slurm's rules. Run times, later jobs and failures are drawn from earlier "
        "jobs. With --calibrate, recorded states are judged: how far were the estimates from the true starts?"
    )
    parser.epilog = (
        "Example: polluxsim twin eta --state state --history sacct.txt\n"
        "Example: polluxsim twin eta --calibrate live.jsonl.gz --record live.csv"
    )
    parser.add_argument("names", nargs="*", metavar="JOB", help="ids of jobs (default: all that wait)")
    _add_question(parser)
    add_option(parser, "calibrate")
    add_option(parser, "record")
    parser.set_defaults(action=_eta)


def _eta(options: Namespace) -> None:
    """Answer when jobs start and end, or how far earlier answers were from the truth."""
    from polluxsim.cli.twin_answers import sheet_of_estimates
    from polluxsim.common.progress_line import progress_line
    from polluxsim.studies.twin.estimates import estimates

    if options.calibrate is not None or options.record is not None:
        _calibrate(options)
        return
    asked = _situation(options)
    names = asked.names(options.names)
    with progress_line("futures", options.forks) as show:
        first = FirstEstimate(options.forks)

        def report(done: int, mean_wait: float) -> None:
            note = _note_on_waits(mean_wait)
            show(done, options.forks, note)
            first.report(done, note)

        estimated = estimates(asked.world, asked.source, names, options.forks, report) if names else []
    _answer(sheet_of_estimates(asked, estimated), "When jobs start", options)


class FirstEstimate:
    """Print the estimate of the first futures to standard error, unless a progress line shows it."""

    def __init__(self, total: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._total = total
        self._clock = clock
        self._began = 0.0

    def report(self, done: int, note: str) -> None:
        """Take the number of complete futures, and a note on them; print once, after `NUM_FIRST` futures."""
        from polluxsim.common.durations import length
        from polluxsim.common.progress_line import is_shown

        if done == 1:
            # The first future may have compiled the kernels, so its time tells nothing about the other futures.
            self._began = self._clock()
        if done != NUM_FIRST or is_shown():
            return
        remaining = (self._clock() - self._began) / (done - 1) * (self._total - done)
        if remaining >= LEAST_REMAINING and note:
            print(
                f"first estimate, from {done} of {self._total} futures: {note}; about {length(remaining)} remain",
                file=sys.stderr,
            )


def _note_on_waits(mean_wait: float) -> str:
    """Return a note for the progress line: the mean wait in the futures so far [s]."""
    from math import isfinite

    from polluxsim.common.durations import length

    return f"jobs start in {length(mean_wait)} on average" if isfinite(mean_wait) else ""


def _calibrate(options: Namespace) -> None:
    """Answer how far estimates from recorded states are from the true starts."""
    from polluxsim.cli.twin_answers import sheet_of_calibration
    from polluxsim.common.progress_line import progress_line
    from polluxsim.studies.twin.calibrating import calibrated

    if options.calibrate is None:
        raise InvalidConfigError("--record needs --calibrate; give the snapshots of the run")
    if options.record is None:
        raise InvalidConfigError("--calibrate needs --record; give the recorded run, like RUN.csv")
    for name, value in {"--state": options.state, "--history": options.history, "JOB": options.names}.items():
        if value:
            raise InvalidConfigError(f"{name} and --calibrate contradict each other; leave one out")
    with progress_line("snapshots", 1) as show:
        result = calibrated(
            options.calibrate,
            options.record,
            parameters=_parameters(options),
            num_futures=options.forks,
            report=lambda done, total: show(done, total, ""),
        )
    _answer(sheet_of_calibration(result, options.record.name), "Errors of estimates", options)


def add_twin_try(parser: ArgumentParser) -> None:
    parser.description = (
        "Estimate when a job would start if it were submitted now, and print the three other requests that would start "
        "earliest: fewer GPUs, a shorter time limit, or another partition. The command submits nothing."
    )
    parser.epilog = "Example: polluxsim twin try --gpus 8 --time 12h --partition gpu --state state"
    add_option(parser, "gpus", required=True)
    add_option(parser, "time")
    add_option(parser, "partition")
    add_option(parser, "user")
    _add_question(parser)
    parser.set_defaults(action=_try)


def _try(options: Namespace) -> None:
    """Answer when a job would start, and which other requests would start earliest."""
    from dataclasses import replace
    from math import ceil

    from polluxsim.cli.twin_answers import sheet_of_tries
    from polluxsim.common.progress_line import progress_line
    from polluxsim.logs.live.jobs import UNLIMITED
    from polluxsim.studies.twin.trying import TriedJob, check_partition, default_partition, note_on_priority, tried

    if len(options.gpus) > 1:
        raise InvalidConfigError(
            f"--gpus is {','.join(map(str, options.gpus))}, must be one number; give that of the job"
        )
    asked = _situation(options)
    state = asked.world.state
    partition = options.partition or default_partition(state)
    for name in filter(None, partition.split(",")):
        check_partition(state, name)
    limit = UNLIMITED if options.time is None else ceil(options.time / 60) * 60
    wish = TriedJob(options.gpus[0], limit, partition, options.user or "")
    asked = replace(asked, notes=[*filter(None, [note_on_priority(asked.world, wish)]), *asked.notes])
    with progress_line("requests", 1) as show:
        results = tried(asked.world, asked.source, wish, options.forks, lambda done, total: show(done, total, ""))
    _answer(sheet_of_tries(asked, results), "When a job would start", options)


def add_twin_whatif(parser: ArgumentParser) -> None:
    parser.description = (
        "Estimate what a change would do to each waiting job of a running Slurm: nodes that are drained, additional "
        "nodes, or other parameters of the schedulers. The effects are over pairs of futures with equal draws."
    )
    parser.epilog = "Example: polluxsim twin whatif --nodes +1 --policy 'slurm(bf_interval=60)' --state state"
    add_option(parser, "drain")
    add_option(parser, "nodes", note="(here only additional nodes, like +4)")
    _add_question(parser)
    parser.set_defaults(action=_whatif)


def _whatif(options: Namespace) -> None:
    """Answer what a change would do to each waiting job."""
    from polluxsim.cli.options import MoreNodes
    from polluxsim.cli.twin_answers import sheet_of_effects
    from polluxsim.common.progress_line import progress_line
    from polluxsim.logs.site.hostlist import expanded
    from polluxsim.studies.twin.changes import changed_world, effects

    if options.drain is None and options.nodes is None and options.policy is None:
        raise InvalidConfigError("a change is missing; give --drain NODES, --nodes +N or --policy POLICY")
    more = 0
    if options.nodes is not None:
        if len(options.nodes) > 1 or not isinstance(options.nodes[0], MoreNodes):
            raise InvalidConfigError(
                f"--nodes is {','.join(map(str, options.nodes))}, must be additional nodes, like +4"
            )
        more = int(options.nodes[0])
    drain = [] if options.drain is None else expanded(options.drain)
    if drain is None:
        raise InvalidConfigError(f"--drain is {options.drain}, must be a list of nodes, like n3 or n[3-5]")
    # --policy states the changed parameters here, and not those of the present.
    asked = _situation(options, uses_policy=False)
    parameters = None if options.policy is None else _parameters(options)
    changed = changed_world(asked.world, drain=drain, nodes=more, parameters=parameters)
    names = asked.names(())
    with progress_line("futures", 2 * options.forks) as show:
        results = effects(
            asked.world, changed, asked.source, names, options.forks, lambda done: show(done, 2 * options.forks, "")
        )
    changes = [f"drain {options.drain}"] if options.drain else []
    changes += [f"{more} more node{'s' * (more != 1)}"] if more else []
    changes += [options.policy] if options.policy else []
    _answer(sheet_of_effects(asked, results, ", ".join(changes)), "What a change would do", options)


def _situation(options: Namespace, *, uses_policy: bool = True) -> TwinSituation:
    """Return the situation that the options state. Without `uses_policy`, --policy is left out of it."""
    from polluxsim.look.live_page import check_page
    from polluxsim.studies.twin.asking import situation

    # A page that cannot be written is an error before the futures, which take some time.
    if options.output is not None:
        check_page(options.output)
    policy = _policy_name(options) if uses_policy else _policy_of_folders(options)
    return situation(
        _state(options.state),
        policy=policy,
        history=options.history,
        arrivals=options.arrivals,
        zone=_zone(options.time_zone),
    )


def _state(source: str | None) -> SlurmState:
    """Return the state of a folder, of standard input for -, or of Slurm's queries without a source."""
    from polluxsim.logs.live.state import ask_state, read_line, read_state

    if source is None:
        return ask_state()
    if source == STANDARD_INPUT:
        line = sys.stdin.readline()
        if not line.strip():
            raise InvalidInputError("--state -: standard input is empty; send it one line of JSON")
        return read_line(line)
    return read_state(Path(source))


def _zone(name: str | None) -> tzinfo:
    """Return the time zone with a name; UTC without one. Raise an error for an unknown name."""
    from datetime import UTC
    from zoneinfo import ZoneInfo

    from polluxsim.common.errors import invalid_setting

    if name is None:
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise invalid_setting("--time-zone", name, "a name like Europe/Berlin or UTC") from None


def _policy_name(options: Namespace) -> str | None:
    """Return the policy of --policy, or the only one of --config-dir; None without both."""
    return options.policy or _policy_of_folders(options)


def _policy_of_folders(options: Namespace) -> str | None:
    """Return the only policy of --config-dir; None without it."""
    from polluxsim.studies.twin.asking import check_policy_folder

    return check_policy_folder(options.config_dir or ())


def _parameters(options: Namespace) -> Parameters | None:
    """Return the parameters of --policy, or of the only policy of --config-dir; None without both."""
    from polluxsim.studies.twin.settings import given_policy, parameters_of

    name = _policy_name(options)
    return None if name is None else parameters_of(vars(given_policy(name)))


def _answer(sheet: Sheet, title: str, options: Namespace) -> None:
    """Print an answer in the form that the options state, and write its page if they name one."""
    from polluxsim.cli.twin_answers import as_csv, notes_of
    from polluxsim.look.live_page import check_page, write_page
    from polluxsim.look.sheets import print_sheet

    if options.output is not None:
        check_page(options.output)
    if options.form == "csv":
        print(as_csv(sheet), end="")
        _print_notes(notes_of(sheet))
    else:
        print_sheet(sheet, options.form)
    if options.output is not None:
        write_page(sheet, title, options.output)
        print(f"wrote {options.output}", file=sys.stderr if options.form else sys.stdout)


def _print_notes(notes: Sequence[str]) -> None:
    """Print notes to standard error, so that a program does not meet a sentence in its table."""
    for note in notes:
        print(note, file=sys.stderr)
