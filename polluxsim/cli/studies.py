"""Commands that make many runs and judge policies or clusters: `check`, `arena` and `size`."""

from __future__ import annotations

import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING

from polluxsim.cli.commands import NO
from polluxsim.cli.options import SETTINGS, request_of, take, take_output
from polluxsim.common.errors import InvalidConfigError

if TYPE_CHECKING:
    from polluxsim.studies.sizing import Answer

WORLDS_PER_UPDATE = 20  # number of worlds between two updates of the progress line


def add_check(parser: ArgumentParser) -> None:
    parser.description = (
        "Test a policy in many small random clusters and workloads. Print each fault and a test with the smallest case "
        "that has it. Then measure the time of a decision with thousands of jobs."
    )
    parser.epilog = "Example: polluxsim check mine.py:MyPolicy --worlds 200"
    parser.add_argument("policy", metavar="POLICY", help="your class as mine.py:MyPolicy, or the name of a policy")
    take(parser, "worlds", default=1000)
    take(parser, "decision-timeout")
    parser.set_defaults(action=_check)


def _check(options: Namespace) -> int:
    from polluxsim.checks.checking import found_apart

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
    take(parser, "policies", note="or classes like mine.py:MyPolicy (default: thirteen policies)")
    take(parser, "suite", choices=("quick", "full"), default="quick")
    take(parser, "scenarios", note="of the suite (default: all)")
    take(parser, "seeds", note="of each scenario (default: 6; 10 for the full suite)")
    take(parser, "user-metric")
    take(parser, "reports")
    take(parser, "workers")
    take_output(parser, "folder for the runs and the page", "arena")
    parser.set_defaults(action=_arena)


def _arena(options: Namespace) -> int:
    from rich.markdown import Markdown

    from polluxsim.look.console import console
    from polluxsim.look.descriptions import print_without_effect
    from polluxsim.studies.arena.contest import ArenaRequest, arena
    from polluxsim.studies.arena.playing import RUNS

    metrics = options.user_metric or ()
    request = request_of(ArenaRequest, options, metrics=metrics, folder=options.output, launcher=options.names)
    found = arena(request)
    screen = console()
    screen.print(Markdown(found.text) if screen.is_terminal else found.text, markup=False)
    if found.played.runs:
        print_without_effect(options.output / RUNS)
    print(f"wrote {options.output / 'arena.html'}, arena.md and arena.parquet")
    for player in found.played.failed:
        print(f"polluxsim: {player.policy} failed on {player.scenario}: {found.played.absent[player]}", file=sys.stderr)
    return NO if found.played.failed else 0


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
    take(parser, "target", required=True)
    take(parser, "log", note="the workload is the log (default: the workload of 'polluxsim run')")
    take(parser, "gpus-per-node", note="(default: 8 with --log; otherwise those of the cluster)")
    for name in ("highest-load", "existing", "limit", "step"):
        take(parser, name)
    take(parser, "seeds", default=1,
         note="the mean over them has to meet the target. Several seeds give 95 % intervals of the metric and of the "
         "answer. For a log, add workload.resample_hours=168, which draws the weeks of the log with each seed",
         )  # fmt: skip
    take(parser, "workers")
    take_output(parser, "folder for the runs", "sized")
    take(parser, "figure", note="draw the metric against the size or the load")
    parser.set_defaults(action=_size)


def _size(options: Namespace) -> int:
    from polluxsim.look.descriptions import engine_waits, print_without_effect
    from polluxsim.studies.sizing import POLICY_OF_LOGS, SizeRequest, size

    if options.figure is not None:
        from polluxsim.look.plot.style import check_ending

        check_ending(options.figure)
    request = request_of(SizeRequest, options, overrides=tuple(options.names), folder=options.output)
    answer = size(request)
    print_without_effect(options.output)
    if request.has_policy_of_logs:
        print(f"the policy is {POLICY_OF_LOGS}, because none is given; policy=NAME sets another")
    _print_answer(answer)
    other_weeks = "; workload.resample_hours=168 draws other weeks of the log with each seed"
    if answer.same_seeds:
        print(f"all {options.seeds} seeds give the same results{other_weeks if options.log is not None else ''}")
    elif reason := answer.why_no_interval():
        print(f"{reason}{other_weeks if options.log is not None and options.seeds == 1 else ''}")
    print(engine_waits(answer.engine))
    if options.figure is not None:
        from polluxsim.look.plot.scaling import draw_levels
        from polluxsim.look.plot.style import save

        save(draw_levels(answer.target, answer.curve, answer.level, answer.what), options.figure)
        print(f"wrote {options.figure}")
    return NO if answer.level is None else 0


def _print_answer(answer: Answer) -> None:
    """Print the cluster, the metric at every level, the jobs that it leaves out, and the answer in sentences."""
    from polluxsim.look.console import console
    from polluxsim.look.tables import boxed
    from polluxsim.metrics.outcomes import counts_in_words

    intervals = any(found.low is not None for found in answer.curve.values())
    have_preemptions = any(facts.preemptions for facts in answer.facts.values())
    leave_out_jobs = any(facts.incomplete for facts in answer.facts.values())
    head = [answer.what, answer.target.heading, *["95 % interval"] * intervals]
    lines = [[*head, *["preempted"] * have_preemptions, *["jobs left out"] * leave_out_jobs]]
    for level, found in answer.curve.items():
        facts = answer.facts[level]
        cells = [f"{level:g}", answer.in_unit(found.value), *[answer.interval(found)] * intervals]
        if have_preemptions:
            cells.append(f"{facts.preemptions:,.4g}")
        if leave_out_jobs:
            cells.append(counts_in_words(facts.incomplete) or "none")
        lines.append(cells)
    for sentence in _clusters_and_jobs(answer):
        print(sentence)
    console().print(boxed(lines, names=0))
    print("\n".join(answer.sentences()))


def _clusters_and_jobs(answer: Answer) -> Iterator[str]:
    """Yield sentences on the clusters and on the jobs of the runs."""
    from polluxsim.look.descriptions import cluster_words

    facts = answer.facts[min(answer.curve)]
    sizes = {size for level in answer.facts.values() for size in level.gpus_per_node}
    if not answer.of_sizes:
        yield f"cluster: {cluster_words(facts.gpus_per_node)}"
    elif len(sizes) == 1:
        yield f"each node has {min(sizes)} GPU{'s' * (min(sizes) > 1)}"
    else:
        largest = answer.facts[max(answer.curve)]
        yield f"clusters from {cluster_words(facts.gpus_per_node)} to {cluster_words(largest.gpus_per_node)}"
    if answer.first is not None:
        yield f"sizes below {answer.first:g} are left out: they have no room for the largest job"
    for note in facts.notes:
        yield f"the workload: {note}"
