"""`polluxsim log decisions`: compare a policy with each recorded start of a cluster."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from polluxsim.cli.options import add_forms, add_option, path
from polluxsim.cli.past_run import check_classes_of, read_past_run
from polluxsim.common.errors import InvalidConfigError

if TYPE_CHECKING:
    from polluxsim.look.sheets import Block, Sheet
    from polluxsim.studies.decisions.comparing import RecordComparison
    from polluxsim.studies.decisions.judging import DecisionAgreement, Disagreement
    from polluxsim.studies.decisions.record import Started
    from polluxsim.studies.decisions.replaying import RecordReplay

RUN_FILE = "run.json"  # file in the folder of a run
MOST_DISAGREEMENTS = 20  # disagreements that are printed; --json has all

MOST_JOBS = 4  # jobs of a disagreement whose reasons are printed


def add_log_decisions(parser: ArgumentParser) -> None:
    parser.description = (
        "Compare a policy with a record of a cluster. Before each recorded start, the command puts the recorded state, "
        "asks the policy, and compares the jobs and nodes that start in that second. A decision agrees if some order "
        "of the events of the second gives exactly the recorded starts."
    )
    parser.epilog = (
        "Settings of slurm, which are read, inferred or fitted if they are not given:\n"
        "  nodes=n[1-4]         names of the nodes, in the order of slurm.conf\n"
        "  gpus=4, cpus=64      GPUs and CPUs of a node\n"
        "  types=, weights=     of nodes, like types=n[1-2]:a100,n[3-4]:h100\n"
        "  tiers=high:10,low:1  PriorityTier of partitions\n"
        "  scheduler=NAME       sched/builtin or sched/backfill\n"
        "  order=NAME           submission; size: large jobs first; small: small jobs first;\n"
        "                       factors: the priority/multifactor of the policy\n"
        "  tasks=NAME           node: one task on each node; gpu: one for each GPU of a node\n"
        "  t0=SECONDS           epoch time of second 0\n\n"
        "Example: polluxsim log decisions run.csv --policy slurm"
    )
    parser.add_argument(
        "log",
        type=path,
        metavar="LOG",
        help="record of a cluster: CSV with nodes, output of sacct, log of philly-raw, or folder of a run",
    )
    parser.add_argument("names", nargs="*", default=[], metavar="KEY=VALUE", help="settings of the cluster, see below")
    add_option(parser, "policy", required=True)
    add_option(parser, "at-least")
    add_option(parser, "replay")
    add_option(parser, "allow-classes", default=[])
    add_forms(parser, "markdown", "json")
    parser.set_defaults(action=_decisions)


def _decisions(options: Namespace) -> int:
    """Compare a policy with a record, print the answer, and return the exit status."""
    from polluxsim.cli.commands import NO
    from polluxsim.look.sheets import print_sheet
    from polluxsim.studies.decisions.comparing import compared, compared_to_run

    settings = {}
    for word in options.names:
        name, equals, value = word.partition("=")
        if not equals:
            raise InvalidConfigError(f"{word} is no setting; write KEY=VALUE, like nodes=n[1-4]")
        settings[name] = value
    # A run records the decisions of its own policy, and states its cluster.
    if (options.log / RUN_FILE).is_file():
        if options.names:
            raise InvalidConfigError(f"{options.names[0]} has no effect for the folder of a run; leave it out")
        if options.replay:
            raise InvalidConfigError("--replay needs a record of a cluster, not the folder of a run; leave it out")
        run = read_past_run(options.log, options.allow_classes)
        check_classes_of(run)
        comparison = compared_to_run(run, options.policy)
    else:
        comparison = compared(options.log, options.policy, settings, replays=options.replay)
    print_sheet(sheet_of(comparison), options.form)
    if options.at_least is not None and comparison.agreement.share < options.at_least:
        print(f"less than {options.at_least:.4g} of the decisions agree", file=sys.stderr)
        return NO
    return 0


def sheet_of(comparison: RecordComparison) -> Sheet:
    """Return a comparison as an answer. Its last line counts the decisions."""
    from polluxsim.look.sheets import Block, Sheet

    agreement = comparison.agreement
    parts: list[str | Block] = [f"{comparison.source}: {comparison.num_jobs:,} jobs, compared with {comparison.policy}"]
    if comparison.values:
        lines = [("setting", "value", "origin")]
        for value in comparison.values:
            lines.append((value.name, value.value, value.origin))
        parts.append(Block(lines, names=3))
    parts += comparison.notes
    wrong = [*agreement.disagreements, *agreement.wrong_quiet]
    for disagreement in wrong[:MOST_DISAGREEMENTS]:
        parts += _in_words(disagreement, comparison.node_names)
    if len(wrong) > MOST_DISAGREEMENTS:
        parts.append(f"… {len(wrong) - MOST_DISAGREEMENTS} more disagreements; --json prints all")
    if comparison.replay is not None:
        parts += _replay_in_words(comparison.replay)
    parts.append(_quiet_in_words(agreement))
    parts.append(f"{agreement.agreeing_decisions} of {agreement.decisions} decisions agree")
    return Sheet(parts, _data_of(comparison))


def _replay_in_words(replay: RecordReplay) -> Iterator[str]:
    """Yield the sentences on the simulations with true run times."""
    from polluxsim.common.durations import length
    from polluxsim.studies.decisions.replaying import AHEAD, EVERY

    waits = f"the mean wait is {length(replay.simulated_wait)}, and {length(replay.recorded_wait)} in the record"
    if replay.recorded_wait:
        waits += f" ({100 * (replay.simulated_wait / replay.recorded_wait - 1):+.1f} %)"
    yield f"simulated as a whole with true run times, {waits}"
    median, high = replay.percentiles
    if replay.errors:
        errors = f"are off by {median:g} s at the median, and 90 % by at most {high:g} s"
    else:
        errors = "are none"
    ahead = f"{len(replay.errors)} starts at most {AHEAD} s ahead"
    yield f"simulated from the recorded state every {EVERY} s, {ahead} {errors}"


def _quiet_in_words(agreement: DecisionAgreement) -> str:
    """Return the sentence on the seconds with an event and no start."""
    if agreement.unjudged_quiet:
        return f"{agreement.unjudged_quiet} quiet seconds are not judged, because the backfill does not run each second"
    return f"{agreement.agreeing_quiet} of {agreement.quiet} quiet seconds agree"


def _in_words(disagreement: Disagreement, node_names: Sequence[str]) -> Iterator[str]:
    """Yield the lines about a disagreement: the starts of both sides, and their reasons for each job."""
    recorded = _starts_in_words(disagreement.recorded, node_names)
    starts = _starts_in_words(disagreement.starts, node_names)
    yield f"at {disagreement.time:.0f} s the record starts {recorded}; the policy starts {starts}"
    jobs = disagreement.jobs
    for job in jobs[:MOST_JOBS]:
        of_record = disagreement.of_record.get(job, "does not start it")
        of_policy = disagreement.of_policy.get(job, "gives no reason")
        yield f"  job {job}: the record {of_record}; policy: {of_policy}"
    if len(jobs) > MOST_JOBS:
        yield f"  … {len(jobs) - MOST_JOBS} more jobs"


def _starts_in_words(starts: Collection[Started], node_names: Sequence[str]) -> str:
    """Return jobs with their nodes in words, at most `MOST_JOBS` of them by name."""
    if not starts:
        return "no job"
    words = []
    # Sorted, because the starts of one second have no order.
    for start in sorted(starts, key=lambda start: (start.is_preempted, start))[:MOST_JOBS]:
        nodes = [node_names[node] if node_names else f"node {node}" for node in start.nodes]
        if start.is_preempted:
            words.append(f"and preempts {start.job}")
        else:
            words.append(f"{start.job} on {', '.join(nodes)}" if nodes else start.job)
    if len(starts) > MOST_JOBS:
        words.append(f"and {len(starts) - MOST_JOBS} more jobs")
    return "; ".join(words)


def _data_of(comparison: RecordComparison) -> Mapping[str, Any]:
    """Return the numbers of a comparison."""
    agreement = comparison.agreement
    return {
        "source": comparison.source,
        "policy": comparison.policy,
        "jobs": comparison.num_jobs,
        "decisions": agreement.decisions,
        "agreeing_decisions": agreement.agreeing_decisions,
        "quiet_seconds": agreement.quiet,
        "agreeing_quiet_seconds": agreement.agreeing_quiet,
        "unjudged_quiet_seconds": agreement.unjudged_quiet,
        "settings": {value.name: {"value": value.value, "origin": value.origin} for value in comparison.values},
        "notes": list(comparison.notes),
        "replay": _data_of_replay(comparison.replay),
        "disagreements": [_data_of_disagreement(one) for one in agreement.disagreements],
        "quiet_disagreements": [_data_of_disagreement(one) for one in agreement.wrong_quiet],
    }


def _data_of_replay(replay: RecordReplay | None) -> Mapping[str, Any] | None:
    """Return the numbers of the simulations with true run times; None without them."""
    if replay is None:
        return None
    median, high = replay.percentiles
    return {
        "recorded_mean_wait": replay.recorded_wait,
        "simulated_mean_wait": replay.simulated_wait,
        "starts_ahead": len(replay.errors),
        "median_error": median,
        "p90_error": high,
    }


def _data_of_disagreement(disagreement: Disagreement) -> Mapping[str, Any]:
    """Return the numbers of a disagreement. Nodes are numbers."""
    jobs = disagreement.jobs
    return {
        "time": disagreement.time,
        "recorded": {start.job: list(start.nodes) for start in sorted(disagreement.recorded)},
        "policy": {start.job: list(start.nodes) for start in sorted(disagreement.starts)},
        "reasons_of_record": {job: text for job, text in disagreement.of_record.items() if job in jobs},
        "reasons_of_policy": {job: text for job, text in disagreement.of_policy.items() if job in jobs},
    }
