"""Commands that make many runs and judge policies or clusters: `check`, `arena` and `size`."""

from __future__ import annotations

import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from polluxsim.cli.commands import NO
from polluxsim.cli.options import SETTINGS, add_forms, add_option, add_output, refuse_beside, request_of
from polluxsim.common.errors import InvalidConfigError, listed

if TYPE_CHECKING:
    from polluxsim.studies.log_sections import LogSection
    from polluxsim.studies.size_answers import SizeAnswer
    from polluxsim.studies.sizing import SizeRequest

WORLDS_PER_UPDATE = 20  # number of worlds between two updates of the progress line


def add_check(parser: ArgumentParser) -> None:
    parser.description = (
        "Test a policy in many small random clusters and workloads. Print each fault and a test with the smallest case "
        "that has it. Then measure the time of a decision with thousands of jobs."
    )
    parser.epilog = "Example: polluxsim check mine.py:MyPolicy --worlds 200"
    parser.add_argument("policy", metavar="POLICY", help="your class as mine.py:MyPolicy, or the name of a policy")
    add_option(parser, "worlds", default=1000)
    add_option(parser, "decision-timeout")
    parser.set_defaults(action=_check)


def _check(options: Namespace) -> int:
    """Check a policy, print each fault when it is found, and return the exit status."""
    from polluxsim.checks.checking import found_apart

    # A user of `run` may write policy=NAME.
    if re.match(r"[\w.@/]+=", options.policy):
        kinds = "a class like mine.py:MyPolicy, or the name of a policy, like fifo ('polluxsim check --help' says more)"
        raise InvalidConfigError(f"POLICY is {options.policy!r}, must be {kinds}")
    faults = 0
    for message in found_apart(options.policy, options.worlds, options.decision_timeout):
        if not isinstance(message, int):
            sentence, test = message
            faults += 1
            _show_progress("")
            print(f"{sentence}\n\n{test}", flush=True)
        elif message % WORLDS_PER_UPDATE == 0:
            _show_progress(f"world {message:,} of {options.worlds:,}")
    _show_progress("")
    print(f"{options.policy}: {faults or 'no'} fault{'s' * (faults != 1)} found in {options.worlds:,} worlds")
    return NO if faults else 0


def _show_progress(text: str) -> None:
    """Replace the progress line on standard error, if it is a terminal. An empty text removes the line.

    The line of `progress_line` would send the faults, which are printed in between, to standard error too.
    """
    if sys.stderr.isatty():
        print(f"\r{text}\x1b[K", end="", file=sys.stderr, flush=True)


def add_arena(parser: ArgumentParser) -> None:
    parser.description = (
        "Compare policies on named scenarios, and rank them by average JCT. Each scenario is drawn with several seeds. "
        "The page of results has confidence intervals and names the scenarios that change the ranking. A second call "
        "makes only the runs that are missing."
    )
    parser.epilog = "Example: polluxsim arena --policies pollux,tiresias,mine.py:MyPolicy --seeds 6"
    parser.add_argument("names", nargs="*", metavar="hydra...=VALUE",
                        help="settings of Hydra, like hydra/launcher=ray")  # fmt: skip
    add_option(parser, "policies", note="or classes like mine.py:MyPolicy (default: thirteen policies)")
    add_option(parser, "suite", choices=("quick", "full"), default="quick")
    add_option(parser, "scenarios", note="of the suite (default: all)")
    add_option(parser, "seeds", note="of each scenario (default: 6; 10 for the full suite)")
    add_option(parser, "user-metric")
    add_option(parser, "bounds")
    add_option(parser, "reports")
    add_option(parser, "workers")
    add_output(parser, "folder for the runs and the page", "arena")
    parser.set_defaults(action=_arena)


def _arena(options: Namespace) -> int:
    """Make the missing runs of an arena, print its page, and return the exit status."""
    from rich.markdown import Markdown

    from polluxsim.look.console import console
    from polluxsim.look.descriptions import print_without_effect
    from polluxsim.studies.arena.contest import ArenaRequest, arena
    from polluxsim.studies.arena.playing import RUNS

    metrics = options.user_metric or ()
    request = request_of(ArenaRequest, options, metrics=metrics, folder=options.output, launcher=options.names)
    result = arena(request)
    played = result.played
    screen = console()
    # A file or a pipe gets the Markdown itself, which other programs read.
    screen.print(Markdown(result.text) if screen.is_terminal else result.text, markup=False)
    if played.runs:
        print_without_effect(options.output / RUNS)
    print(f"wrote {options.output / 'arena.html'}, arena.md and arena.parquet")
    for player in played.failed:
        print(f"polluxsim: {player.policy} failed on {player.scenario}: {played.absent[player]}", file=sys.stderr)
    return NO if played.failed else 0


def add_size(parser: ArgumentParser) -> None:
    parser.description = (
        "Find the smallest number of nodes that meets a target, or the highest load that a cluster can take. All "
        "sizes have the same workload and seeds. The command prints the metric of each size that it tried. A wait is "
        "all time without GPUs. In a log, each restart costs engine.restart_delay, 30 s by default."
    )
    parser.epilog = "Example: polluxsim size --log log.parquet --target 'p90 wait < 10 min' policy=fifo"
    parser.add_argument("names", nargs="*", default=[], metavar="KEY=VALUE",
                        help=f"{SETTINGS}; the number of nodes or the load replaces {{}}: cluster=mixed "
                        "'cluster.groups=[[{},8],[4,4]]'")  # fmt: skip
    add_option(parser, "target", required=True)
    add_option(parser, "log", note="the workload is the log (default: the workload of 'polluxsim run')")
    add_option(parser, "gpus-per-node", note="(default: 8 with --log; otherwise those of the cluster)")
    add_option(parser, "nodes-from", note="with --log, in place of --gpus-per-node and --existing")
    add_option(parser, "partition", note="with --log, on nodes of its own")
    add_option(parser, "user", note="with --log, the target is for the jobs of this user")
    add_option(parser, "qos", note="with --log, the target is for the jobs of this QOS")
    for name in ("highest-load", "existing", "limit", "step"):
        add_option(parser, name)
    add_option(parser, "seeds", default=1,
         note="the mean over them has to meet the target. Several seeds give 95 % intervals of the metric and of the "
         "answer. A log has intervals from resampled days with one seed too; workload.resample_hours=168 replays other "
         "weeks of the log with each seed",
         )  # fmt: skip
    add_option(parser, "workers")
    add_output(parser, "folder for the runs", "sized")
    add_option(parser, "figure", note="draw the metric against the size or the load")
    add_option(parser, "price", note="print the cost of each size in a month")
    add_forms(parser, "markdown", "json")
    parser.set_defaults(action=_size)


def _size(options: Namespace) -> int:
    """Search for the smallest cluster or the highest load, print the answer, and return the exit status."""
    from polluxsim.cli.size_answer import sheet_of_size
    from polluxsim.look.descriptions import print_without_effect
    from polluxsim.look.sheets import print_sheet
    from polluxsim.studies.sizing import POLICY_OF_LOGS, size

    # Mistakes in options are reported before the search, which may take minutes.
    if options.figure is not None:
        from polluxsim.look.plot.style import check_ending

        check_ending(options.figure)
    if options.price is not None and options.highest_load:
        raise InvalidConfigError("--price is for numbers of nodes; leave it out with --highest-load")
    request, about_nodes = _size_request(options)
    answer = size(request)
    print_without_effect(options.output)
    before = [*about_nodes, *answer.about_log.splitlines()]
    if request.has_policy_of_logs:
        before.append(f"the policy is {POLICY_OF_LOGS}, because none is given; policy=NAME sets another")
    sheet = sheet_of_size(answer, options.price, before=before, after=_on_seeds(answer, options))
    print_sheet(sheet, options.form)
    if options.figure is not None:
        from polluxsim.look.plot.scaling import draw_levels
        from polluxsim.look.plot.style import save

        save(draw_levels(answer.target, answer.curve, answer.level, answer.what), options.figure)
        print(f"wrote {options.figure}", file=sys.stderr if options.form else sys.stdout)
    return NO if answer.level is None else 0


def _size_request(options: Namespace) -> tuple[SizeRequest, Sequence[str]]:
    """Return the search that the options describe, and sentences on the nodes that `--nodes-from` lists."""
    from polluxsim.run.configurations import NUM_NODES
    from polluxsim.studies.sizing import SizeRequest

    overrides = tuple(options.names)
    # Without a list, the options and the settings state the nodes.
    if options.nodes_from is None:
        return request_of(SizeRequest, options, overrides=overrides, folder=options.output), ()
    section = _listed_section(options)
    values: dict[str, object] = {"partition": section.partition, "gpus_per_node": section.gpus_per_node}
    if options.highest_load:
        # In front, so that a setting of the user wins.
        overrides = (f"{NUM_NODES}={section.nodes}", *overrides)
    else:
        values["existing"] = section.nodes
    request = request_of(SizeRequest, options, overrides=overrides, folder=options.output, **values)
    return request, section.sentences


def _listed_section(options: Namespace) -> LogSection:
    """Return the one partition of the log with its nodes, as `--nodes-from` lists them.

    Raises
    ------
    InvalidConfigError
        If there is no log, if another option states the nodes, or if the list has nodes for several partitions.
    InvalidInputError
        If the list or the log is unreadable, or if the nodes have different numbers of GPUs.
    """
    from polluxsim.cli.log import sections_of

    if options.log is None:
        raise InvalidConfigError("--nodes-from has the nodes of the cluster of a log; add --log, or leave it out")
    refuse_beside(options, "nodes-from", ["gpus-per-node", "existing"])
    sections = sections_of(options, options.log)
    if len(sections) > 1:
        names = listed([str(section.partition) for section in sections])
        raise InvalidConfigError(
            f"{options.nodes_from} has nodes for {len(sections)} partitions of the log, and --target is for one; "
            f"choose it with --partition: {names}"
        )
    return sections[0]


def _on_seeds(answer: SizeAnswer, options: Namespace) -> list[str]:
    """Return a sentence on seeds that change nothing, or on an answer without an interval; empty for other answers."""
    other_weeks = "; workload.resample_hours=168 draws other weeks of the log with each seed"
    if answer.same_seeds:
        sentence = f"all {options.seeds} seeds give the same results"
        if options.log is not None:
            sentence += other_weeks
        return [sentence]
    sentence = answer.why_no_interval()
    if not sentence:
        return []
    # With several seeds, their results differ already.
    if options.log is not None and options.seeds == 1:
        sentence += other_weeks
    return [sentence]
