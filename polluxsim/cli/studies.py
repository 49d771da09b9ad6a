"""Commands that make many runs and judge policies or clusters: `check`, `arena` and `size`."""

from __future__ import annotations

import sys
from functools import cache
from math import isinf
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from polluxsim.cli import shared_options
from polluxsim.common.errors import InvalidConfigError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator, Mapping

    from polluxsim.metrics.target import Target
    from polluxsim.statistics.estimates import Estimate
    from polluxsim.studies.sizing import Levels

FAULTS = 1
"""Exit status if a fault was found."""

STEP = 20
"""Number of worlds between two updates of the progress line."""


def add_check(parser: ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.description = (
        "Test a policy in many small random clusters and workloads. Print each fault and a test with the smallest case "
        "that has it. Then measure the time of a decision with thousands of jobs."
    )
    parser.epilog = "Example: polluxsim check mine.py:MyPolicy --worlds 200"
    parser.add_argument("policy", metavar="POLICY", help="your class as mine.py:MyPolicy, or the name of a policy")
    parser.add_argument("--worlds", type=shared_options.whole_number(0), default=1000, metavar="N",
                        help="number of random cases (default: %(default)s)")  # fmt: skip
    parser.add_argument("--decision-timeout", type=shared_options.positive_number, metavar="SECONDS",
                        help="longest time of one decision")  # fmt: skip
    parser.set_defaults(action=_check)


def _check(options: Namespace) -> int:
    from polluxsim.checks.checking import found_apart

    faults = 0
    for message in found_apart(options.policy, options.worlds, options.decision_timeout):
        if not isinstance(message, int):
            sentence, test = message
            faults += 1
            shared_options.show_progress("")
            print(f"{sentence}\n\n{test}", flush=True)
        elif message % STEP == 0:
            shared_options.show_progress(f"world {message:,} of {options.worlds:,}")
    shared_options.show_progress("")
    print(f"{options.policy}: {faults or 'no'} fault{'s' * (faults != 1)} found in {options.worlds:,} worlds")
    return FAULTS if faults else 0


SUITES = ("quick", "full")
NOT_ALL_PLAYED = 2
"""Exit status if a policy failed."""


def add_arena(parser: ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.description = (
        "Compare policies on named scenarios, and rank them by average JCT. Each scenario is drawn with several seeds. "
        "The page of results has confidence intervals and names the scenarios that change the ranking. A second call "
        "makes only the runs that are missing."
    )
    parser.epilog = "Example: polluxsim arena --policies pollux tiresias mine.py:MyPolicy --seeds 6"
    parser.add_argument("names", nargs="*", metavar="hydra...=VALUE",
                        help="settings of Hydra, like hydra/launcher=ray")  # fmt: skip
    parser.add_argument("--policies", nargs="+", default=[], metavar="POLICY",
                        help=f"classes like mine.py:MyPolicy, or {shared_options.POLICIES} (default: thirteen "
                        "policies)")  # fmt: skip
    parser.add_argument("--suite", choices=SUITES, default=SUITES[0],
                        help="list of scenarios (default: %(default)s)")  # fmt: skip
    parser.add_argument("--scenarios", nargs="+", default=[], metavar="NAME",
                        help="scenarios of the suite to run (default: all)")  # fmt: skip
    parser.add_argument("--seeds", type=shared_options.whole_number(1), metavar="N",
                        help="number of seeds of each scenario (default: 6; 10 for the full suite)")  # fmt: skip
    parser.add_argument("--metric", action="append", default=[], metavar="NAME=MODULE.ATTRIBUTE",
                        help=f"a metric of your own; {shared_options.REPEATED}")  # fmt: skip
    parser.add_argument("--workers", type=shared_options.whole_number(1), metavar="N", help=shared_options.WORKERS)
    parser.add_argument("-o", "--output", type=Path, default=Path("arena"), metavar="DIR", help=shared_options.OUT)
    parser.set_defaults(action=_arena)


def _arena(options: Namespace) -> int:
    """Make the runs and the pages of an arena. The exit status is 2 if a policy failed."""
    from rich.markdown import Markdown

    from polluxsim.common.files import appearing_whole
    from polluxsim.look.console import console
    from polluxsim.look.descriptions import print_without_effect
    from polluxsim.run.configurations import split_list
    from polluxsim.studies.arena.leaderboard import frame_of_leaderboard, leaderboard
    from polluxsim.studies.arena.page import as_markdown, page
    from polluxsim.studies.arena.playing import RUNS, Place, default_policies, play, read_suite

    suite = read_suite(options.suite, tuple(dict.fromkeys(options.scenarios)), options.seeds)
    if other := [word for word in options.names if not word.startswith("hydra")]:
        raise InvalidConfigError(f"{other[0]!r} cannot be set for an arena; only hydra/launcher and hydra.* can be set")
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))  # metrics in a module of the current folder
    place = Place(options.output, options.workers, tuple(options.names), tuple(options.metric))
    policies = [name for text in options.policies for name in split_list(text)] or default_policies()
    played = play(policies, suite, place)
    board = leaderboard(played)
    text = as_markdown(board, {scenario.name: scenario.title for scenario in suite.scenarios})
    for name, content in {"arena.html": page(board, suite), "arena.md": text}.items():
        with appearing_whole(options.output / name) as path:
            path.write_text(content, encoding="utf-8")
    with appearing_whole(options.output / "arena.parquet") as path:
        frame_of_leaderboard(board).to_parquet(path, index=False)
    screen = console()
    screen.print(Markdown(text) if screen.is_terminal else text, markup=False)
    if played.runs:
        print_without_effect(options.output / RUNS)
    print(f"wrote {options.output / 'arena.html'}, arena.md and arena.parquet")
    for player in played.failed:
        print(f"polluxsim: {player.policy} failed on {player.scenario}: {played.absent[player]}", file=sys.stderr)
    return NOT_ALL_PLAYED if played.failed else 0


NOT_MET = 1
"""Exit status if no level that was tried meets the target."""

MOST_LEVELS = 100_000

OTHER_WEEKS = "; workload.resample_hours=168 draws other weeks of the log with each seed"


class Answer(NamedTuple):
    """The result of the search."""

    target: Target
    curve: Mapping[float, Estimate]  # the target's metric at each level that was run, rising [s; 1 for ρ]
    of_sizes: bool  # whether levels are nodes; otherwise they are loads
    level: float | None  # the hardest level that meets the target; None if no such level was found
    # The hardest levels at which the lower and the upper end of the metric's 95 % interval meet the target. They are
    # the ends of the 95 % interval of `level`: at the levels between them, the target lies inside the interval.
    ends: tuple[float | None, float | None] | None = None  # None without intervals
    existing: int | None = None  # nodes that exist already

    @property
    def what(self) -> str:
        """Return the quantity that varies."""
        return "nodes" if self.of_sizes else "load"


def add_size(parser: ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.description = (
        "Find the smallest number of nodes that meets a target, or the highest load that a cluster can take. All "
        "sizes have the same workload and seeds. The command prints the metric of each size that it tried. Its exit "
        "status is 1 if no size meets the target."
    )
    parser.epilog = "Example: polluxsim size --jobs log.parquet --target 'p90 wait < 10 min' cluster.gpus_per_node=8"
    parser.add_argument("names", nargs="*", default=[], metavar="KEY=VALUE",
                        help="settings of every run; the number of nodes or the load replaces {}: cluster=mixed "
                        "'cluster.groups=[[{},8],[4,4]]'")  # fmt: skip
    parser.add_argument("--target", required=True, metavar="TARGET",
                        help="bound on the makespan, or on the mean, p50, p90, p95 or p99 of wait, jct or rho: "
                        "'p90 wait < 10 min'")  # fmt: skip
    parser.add_argument("--jobs", type=Path, metavar="LOG",
                        help="log of a cluster, as 'polluxsim import' writes it (default: the workload of 'run')",
                        )  # fmt: skip
    parser.add_argument("--highest-load", action="store_true",
                        help="find the highest workload.load_factor instead of the number of nodes")  # fmt: skip
    parser.add_argument("--existing", type=int, metavar="N",
                        help="number of existing nodes; the answer is given relative to it, like +14 nodes",
                        )  # fmt: skip
    parser.add_argument("--limit", type=float, metavar="N",
                        help="largest number of nodes (default: 64) or load (default: 4)")  # fmt: skip
    parser.add_argument("--step", type=float, metavar="N", help="difference between loads (default: 0.05)")
    parser.add_argument("--seeds", type=int, default=1, metavar="N",
                        help="number of seeds; the mean over them has to meet the target. Several seeds give 95 %% "
                        "intervals of the metric and of the answer. For a log, add workload.resample_hours=168, "
                        "which draws the weeks of the log with each seed (default: %(default)s)")  # fmt: skip
    parser.add_argument("--out", type=Path, default=Path("sized"), metavar="DIR", help=shared_options.OUT)
    parser.add_argument("--workers", type=int, default=1, metavar="N",
                        help="number of processes for the seeds of a size (default: %(default)s)")  # fmt: skip
    parser.add_argument("-o", "--output", type=Path, metavar="FILE",
                        help="file for a plot of the metric: .png, .pdf or .svg")  # fmt: skip
    parser.set_defaults(action=_size)


def _size(options: Namespace) -> int:
    from polluxsim.look.descriptions import engine_waits

    if options.output is not None:
        from polluxsim.look.plot.style import check_ending

        check_ending(options.output)
    answer, engine, same_seeds = _answer(options)
    _print_answer(answer)
    if same_seeds:
        print(f"all {options.seeds} seeds give the same results" + OTHER_WEEKS * (options.jobs is not None))
    print(engine_waits(engine))
    if options.output is not None:
        from polluxsim.look.plot.scaling import draw_levels
        from polluxsim.look.plot.style import save

        save(draw_levels(answer.target, answer.curve, answer.level, answer.what), options.output)
        print(f"wrote {options.output}")
    return NOT_MET if answer.level is None else 0


def _answer(options: Namespace) -> tuple[Answer, Mapping[str, Any], bool]:
    """Return the answer, the engine settings of the runs, and whether several seeds gave the same results."""
    from polluxsim.look.descriptions import print_without_effect
    from polluxsim.metrics.target import read_target
    from polluxsim.studies.sizing import Levels, hardest

    target, levels, upwards = read_target(options.target), _levels(options), not options.highest_load
    known = Levels(target, _overrides(options), _seeds(options), options.out, options.workers)
    estimate = cache(lambda level: _estimate(known, level))
    levels = levels[known.first_possible(levels) :]
    found = hardest(levels, lambda level: target.is_met(estimate(level).value), easier_upwards=upwards)
    ends = None
    if found is not None and any(estimate(level).high is not None for level in known.measured):
        low = hardest(levels, lambda level: target.is_met(_low(estimate(level))), easier_upwards=upwards)
        high = hardest(levels, lambda level: target.is_met(_high(estimate(level))), easier_upwards=upwards)
        ends = low, high
    known.write_table()
    print_without_effect(options.out)
    same_seeds = options.seeds > 1 and all(len(set(values.tolist())) == 1 for values in known.measured.values())
    curve = {level: estimate(level) for level in sorted(known.measured)}
    return Answer(target, curve, upwards, found, ends, options.existing), known.engine, same_seeds


def _levels(options: Namespace) -> list[float]:
    """Return the sizes [nodes] or loads that may be tried, rising."""
    if options.step is not None and not options.highest_load:
        raise InvalidConfigError("--step needs --highest-load: sizes are whole nodes")
    if options.existing is not None and options.highest_load:
        raise InvalidConfigError("--existing compares numbers of nodes; leave it out with --highest-load")
    if options.existing is not None and options.existing < 0:
        raise InvalidConfigError(f"--existing is {options.existing}, must be a whole number of at least 0")
    limit = (4.0 if options.highest_load else 64.0) if options.limit is None else options.limit
    step = (0.05 if options.highest_load else 1.0) if options.step is None else options.step
    if not options.highest_load and limit % 1:
        raise InvalidConfigError(f"--limit is {limit:g}, must be a whole number of nodes")
    if not 0 < step <= limit <= step * MOST_LEVELS:
        raise InvalidConfigError(
            f"--limit is {limit:g}, must be {step:g} to {step * MOST_LEVELS:g}, in steps greater than 0"
        )
    return [round(step * number, 9) for number in range(1, int(limit / step + 1e-6) + 1)]


def _overrides(options: Namespace) -> list[str]:
    from polluxsim.studies.log_replays import replay_of
    from polluxsim.studies.sizing import PLACE

    varied = f"workload.load_factor={PLACE}" if options.highest_load else f"cluster.num_nodes={PLACE}"
    log = () if options.jobs is None else replay_of(options.jobs)
    return [*log, *([] if any(PLACE in name for name in options.names) else [varied]), *options.names]


def _seeds(options: Namespace) -> list[int | None]:
    if options.seeds < 1:
        raise InvalidConfigError(f"--seeds is {options.seeds}, must be a whole number of at least 1")
    if options.seeds == 1:
        return [None]
    if given := [name for name in options.names if name.startswith("seed=")]:
        raise InvalidConfigError(f"{given[0]!r} and --seeds {options.seeds} contradict each other; leave one out")
    return list(range(options.seeds))


def _estimate(known: Levels, level: float) -> Estimate:
    """Return the mean over seeds, with its interval if there are enough seeds; infinite if jobs are left."""
    from polluxsim.statistics.estimates import Sample, Samples

    values = enumerate(known.values(level))
    measured = Samples(Sample("", "", value, seed=seed) for seed, value in values).measured(("", "", ""))
    assert measured is not None
    return measured.estimate


def _low(estimate: Estimate) -> float:
    return estimate.value if estimate.low is None else estimate.low


def _high(estimate: Estimate) -> float:
    return estimate.value if estimate.high is None else estimate.high


def _print_answer(answer: Answer) -> None:
    """Print the metric at every level, and the answer in words."""
    from rich.table import Table

    from polluxsim.look.console import console

    target, unit = answer.target, answer.target.unit[0]
    table = Table()
    intervals = any(found.low is not None for found in answer.curve.values())
    metric = f"{target.metric} \\[{unit}]" if unit else target.metric
    for heading in (answer.what, metric, *["95 % interval"] * intervals):
        table.add_column(heading, justify="right")
    for level, found in answer.curve.items():
        table.add_row(f"{level:g}", _in_unit(target, found.value), *[_interval(target, found)] * intervals)
    console().print(table)
    print("\n".join(_words(answer)))


def _in_unit(target: Target, value: float) -> str:
    return "jobs left" if isinf(value) else target.told(value).partition(" ")[0]


def _interval(target: Target, found: Estimate) -> str:
    if found.low is None or found.high is None:
        return ""
    return f"{_in_unit(target, found.low)} to {_in_unit(target, found.high)}"


def _words(answer: Answer) -> Iterator[str]:
    """Yield the answer, its interval, and a line for each level that contradicts a monotone metric."""
    target, curve, level = answer.target, answer.curve, answer.level
    if level is None:
        best = min(curve, key=lambda level: curve[level].value)
        most = "jobs are left at each" if isinf(curve[best].value) else f"the best found is {_at(answer, best)}"
        what = "size" if answer.of_sizes else "load"
        yield f"no {what} from {min(curve):g} to {max(curve):g} meets {target}: {most}"
    else:
        ends = ", the highest tried" if not answer.of_sizes and level == max(curve) else ""
        yield f"{'least size' if answer.of_sizes else 'highest load'} that meets {target}: {_at(answer, level)}{ends}"
        if answer.existing is not None:
            yield f"relative to the {answer.existing} nodes that exist: {_more(answer, level)}"
        if answer.ends is not None:
            yield _interval_of_level(answer, *answer.ends)
    yield from _not_monotone(answer)


def _interval_of_level(answer: Answer, low: float | None, high: float | None) -> str:
    """Return the 95 % interval of the answer; its ends in rising order, as nodes or load."""
    first, last = (low, high) if answer.of_sizes else (high, low)
    unit = " nodes" if answer.of_sizes else ""
    start = f"below {min(answer.curve):g}" if first is None else f"{first:g}"
    end = f"more than {max(answer.curve):g}" if last is None else f"{last:g}"
    words = f"95 % interval of this {'size' if answer.of_sizes else 'load'}: {start} to {end}{unit}"
    if answer.existing is not None and first is not None:
        more = f"more than {max(answer.curve) - answer.existing:+g}" if last is None else _more(answer, last)
        words += f" ({first - answer.existing:+g} to {more})"
    return words


def _more(answer: Answer, level: float) -> str:
    difference = level - (answer.existing or 0)
    return f"{difference:+g} node{'s' * (abs(difference) != 1)}"


def _not_monotone(answer: Answer) -> Iterator[str]:
    """Yield a line for each easier level that misses the target, or that is worse than the next harder level."""
    from polluxsim.studies.sizing import reversals

    target, curve, level = answer.target, answer.curve, answer.level
    worse = reversals({level: found.value for level, found in curve.items()}, easier_upwards=answer.of_sizes)
    for other, found in curve.items():
        is_easier = level is not None and other != level and (other > level) == answer.of_sizes
        if is_easier and not target.is_met(found.value):
            yield f"not monotone: {_at(answer, other)} does not meet it"
        elif other in worse and _in_unit(target, found.value) != _in_unit(target, curve[worse[other]].value):
            yield f"not monotone: {_at(answer, other)} is worse than {_at(answer, worse[other])}"


def _at(answer: Answer, level: float) -> str:
    value = answer.curve[level].value
    where = f"{level:g} node{'s' * (level != 1)}" if answer.of_sizes else f"load {level:g}"
    return f"{where}, {'jobs left' if isinf(value) else answer.target.told(value)}"
