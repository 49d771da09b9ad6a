"""`polluxsim regret`: what the decisions of a finished run cost, compared with those of another policy.

The command prints tables, or one JSON document, or CSV. Beside CSV, sentences go to standard error, so that a program
that reads the table does not meet them. Most imports are in the functions, so that `--help` is fast.
"""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from polluxsim.cli.options import add_forms, add_option, add_run

if TYPE_CHECKING:
    from polluxsim.records.regret import RegretPath, Regrets, RoundRegret
    from polluxsim.records.storage import Run


def add_regret(parser: ArgumentParser) -> None:
    parser.description = (
        "Let POLICY decide single rounds of a finished run, and print how the total completion time changes. In each "
        "fork, POLICY decides one round, and then the policy of the run decides again. Rounds in which both decide "
        "equally have the regret 0. The results are stored in the folder of the run, where 'report' finds them. A "
        "command that was interrupted continues."
    )
    parser.epilog = "Example: polluxsim regret RUN srsf --sample 50"
    add_run(parser)
    parser.add_argument("policy", metavar="POLICY",
                        help="the other policy, like 'srsf' or 'tiresias(queue_threshold=3600)', or a class of your "
                        "own, as FILE.py:CLASS")  # fmt: skip
    add_option(parser, "sample", note="(default: all rounds)")
    add_option(parser, "seeds", default=1, note="each repeats both futures with other random draws")
    add_option(parser, "path")
    add_option(parser, "allow-classes", default=[])
    add_forms(parser, "csv", "json")
    parser.set_defaults(action=_regret)


def _regret(options: Namespace) -> None:
    """Compare the decisions that the options name, and print the regrets or the path."""
    from polluxsim.cli.past_run import check_classes_of, read_past_run
    from polluxsim.common.errors import InvalidConfigError
    from polluxsim.common.progress_line import progress_line
    from polluxsim.run.configurations import import_from_here
    from polluxsim.run.regret import RegretRequest
    from polluxsim.run.regret_of_runs import path_of_run, regrets_of_run
    from polluxsim.run.workers import num_cores

    # A path begins with the run itself, which has one set of random numbers.
    if options.path and options.seeds > 1:
        raise InvalidConfigError("--path and --seeds contradict each other; leave one out")
    run = read_past_run(options.run, options.allow_classes)
    run.must_have_metrics()
    check_classes_of(run)
    import_from_here()  # a class that the user's configuration of the policy names, as for `polluxsim run`
    request = RegretRequest(options.sample, options.seeds)
    # The number of rounds is known only after the run was simulated once.
    with progress_line("rounds", 1, "simulating the run") as show:

        def report(done: int, total: int) -> None:
            show(done, total, "")

        if options.path:
            _print_path(run, path_of_run(run, options.policy, request, report, num_cores()), options.form)
            return
        regrets = regrets_of_run(run, options.policy, request, report, num_cores())
    _print_regrets(run, regrets, options.form)


def _print_regrets(run: Run, regrets: Regrets, form: str | None) -> None:
    """Print the regrets as JSON or CSV, or as tables without a form; beside CSV, the sentences go to standard error."""
    from polluxsim.look.regret import HINDSIGHT, on_chance, summary_of

    if form == "json":
        print(json.dumps(_as_json(run, regrets), indent=2))
        return
    if form == "csv":
        _print_csv(regrets)
        for text in filter(None, (summary_of(regrets), on_chance(regrets))):
            print(text, file=sys.stderr)
        return
    _print_tables(run, regrets)
    print(HINDSIGHT)
    if on_chance(regrets):
        print(on_chance(regrets))


def _print_tables(run: Run, regrets: Regrets) -> None:
    """Print the regrets by time, kind and job, and the costliest rounds with their reasons."""
    from polluxsim.look.console import console
    from polluxsim.look.regret import by_job, by_kind, by_time, costliest_rounds, not_comparable, summary_of

    screen = console()
    screen.print(summary_of(regrets), markup=False)
    for table in (by_time(regrets, run.clock), by_kind(regrets), by_job(regrets)):
        if table is not None:
            screen.print(table)
    rounds = costliest_rounds(regrets, run.clock)
    if rounds:
        screen.print(f"the {len(rounds)} costliest rounds, with reasons for the jobs that gain and lose most:")
    for head, *reasons in rounds:
        screen.print(f"  {head}", markup=False)
        for reason in reasons:
            screen.print(f"    {reason}", markup=False)
    for text in not_comparable(regrets):
        screen.print(text, markup=False)


def _as_json(run: Run, regrets: Regrets) -> dict[str, Any]:
    """Return regrets as plain values. Times are in seconds; regrets in job-seconds, or in seconds of mean JCT."""
    from polluxsim.look.regret import job_totals, reasons_in_words

    costliest = []
    for regret in regrets.costliest(10):
        costliest.append({"number": regret.number, "reasons": list(reasons_in_words(regret, regrets))})
    jobs = []
    for job, (rounds, change) in job_totals(regrets).items():
        jobs.append({"job": job, "rounds": rounds, "jct_change": change})
    return {
        "run": run.name,
        "own_policy": regrets.own_policy,
        "other_policy": regrets.other_policy,
        "num_rounds": regrets.num_rounds,
        "num_jobs": regrets.num_jobs,
        "total_jct": regrets.total_jct,
        "is_drawn": regrets.is_drawn,
        "rounds": [_round_as_json(regret, regrets.num_jobs) for regret in regrets.rounds],
        "jobs": jobs,
        "costliest": costliest,
    }


def _round_as_json(regret: RoundRegret, num_jobs: int) -> dict[str, Any]:
    """Return a round as plain values; its regret is None if it is not comparable."""
    from polluxsim.look.regret import estimate

    value = estimate(regret, num_jobs)
    return {
        "number": regret.number,
        "time": regret.time,
        "regret": regret.regret,
        "of_mean_jct": None if value is None else value.value,
        "low": None if value is None else value.low,
        "high": None if value is None else value.high,
        "values": list(regret.values),
        "differences": [difference._asdict() for difference in regret.differences],
        "not_comparable": regret.not_comparable or None,
    }


def _print_csv(regrets: Regrets) -> None:
    """Print a row for each round, with the number of jobs by kind of difference."""
    import pandas as pd

    from polluxsim.records.regret import KINDS

    rows = []
    for regret in regrets.rounds:
        row = _round_as_json(regret, regrets.num_jobs)
        # A table has no lists in its cells.
        del row["values"]
        kinds = [difference["kind"] for difference in row.pop("differences")]
        rows.append(row | {kind: kinds.count(kind) for kind in KINDS})
    columns = ["number", "time", "regret", "of_mean_jct", "low", "high", *KINDS, "not_comparable"]
    print(pd.DataFrame(rows, columns=columns).to_csv(index=False), end="")


def _print_path(run: Run, path: RegretPath, form: str | None) -> None:
    """Print the steps of a path as JSON or CSV, or as tables without a form; beside CSV, the sum goes to stderr."""
    from polluxsim.look.console import console
    from polluxsim.look.regret import largest_steps, path_table, sum_of_path

    if form == "json":
        print(json.dumps(_path_as_json(run, path), indent=2))
    elif form == "csv":
        import pandas as pd

        rows = [{**step._asdict(), "of_mean_jct": step.gain / path.num_jobs} for step in path.steps]
        columns = ["number", "time", "until", "gain", "of_mean_jct"]
        print(pd.DataFrame(rows, columns=columns).to_csv(index=False), end="")
        print(sum_of_path(path), file=sys.stderr)
    else:
        screen = console()
        table = path_table(path, run.clock)
        if table is not None:
            screen.print(table)
        largest = list(largest_steps(path, run.clock))
        if largest:
            screen.print("the largest steps:")
        for text in largest:
            screen.print(f"  {text}", markup=False)
        # The last takeover is the run of the other policy, which the sum is about.
        for takeover in path.takeovers[:-1]:
            if takeover.not_comparable:
                screen.print(f"{run.clock(takeover.time)}: not comparable: {takeover.not_comparable}", markup=False)
        screen.print(sum_of_path(path), markup=False)


def _path_as_json(run: Run, path: RegretPath) -> dict[str, Any]:
    """Return a path as plain values. Times are in seconds; gains in job-seconds, or in seconds of mean JCT."""
    return {
        "run": run.name,
        "own_policy": path.own_policy,
        "other_policy": path.other_policy,
        "num_rounds": path.num_rounds,
        "num_jobs": path.num_jobs,
        "total_jct": path.total_jct,
        "takeovers": [takeover._asdict() for takeover in path.takeovers],
        "steps": [{**step._asdict(), "of_mean_jct": step.gain / path.num_jobs} for step in path.steps],
    }
