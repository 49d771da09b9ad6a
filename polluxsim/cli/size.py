"""`polluxsim size`: the least cluster that meets a target, or the highest load that a cluster bears."""

from __future__ import annotations

from functools import cache
from math import isinf
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from polluxsim.errors import InvalidConfigError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator, Mapping

    from polluxsim.look.intervals import Estimate
    from polluxsim.metrics.target import Target
    from polluxsim.sweeps.sizing import Levels

NOT_MET = 1
"""Exit status where nothing that was tried meets the target."""

MOST_LEVELS = 100_000


class Answer(NamedTuple):
    """What was found."""

    target: Target
    curve: Mapping[float, Estimate]  # the target's metric at each level that was run, rising [s; 1 for ρ]
    of_sizes: bool  # whether levels are nodes; else they are loads
    level: float | None  # the hardest that meets the target; None if none was found
    sure: float | None  # the same by the upper end of the interval; None also where there are no intervals

    @property
    def what(self) -> str:
        """Return what levels are."""
        return "nodes" if self.of_sizes else "load"


def add(parser: ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.description = (
        "Find the least number of nodes that meets a target, or the highest load, by bisection: the same workload and "
        "seeds at each size. Print the metric at all sizes that were run. The exit status is 1 if none meets it."
    )
    parser.add_argument("names", nargs="*", default=[], metavar="KEY=VALUE",
                        help="choices and settings of every run; {} in one stands for the number of nodes, or the "
                        "load: cluster=mixed 'cluster.groups=[[{},8],[4,4]]'")  # fmt: skip
    parser.add_argument("--target", required=True, metavar="TARGET",
                        help="a bound on mean, p50, p90, p95 or p99 of wait, jct or rho, or on makespan: "
                        "'p90 wait < 10 min'")  # fmt: skip
    parser.add_argument("--jobs", type=Path, metavar="LOG",
                        help="a log, as 'polluxsim import' writes it (default: the workload of 'run')")  # fmt: skip
    parser.add_argument("--highest-load", action="store_true", help="vary workload.load_factor, not cluster.num_nodes")
    parser.add_argument("--limit", type=float, metavar="N", help="the most nodes (default: 64) or load (default: 4)")
    parser.add_argument("--step", type=float, metavar="N", help="between loads (default: 0.05)")
    parser.add_argument("--seeds", type=int, default=1, metavar="N",
                        help="seeds over whose mean the target is to be met; from 6 on there are 95 %% intervals "
                        "(default: %(default)s)")  # fmt: skip
    parser.add_argument("--out", type=Path, default=Path("sized"), metavar="DIR",
                        help="folder for the runs (default: %(default)s)")  # fmt: skip
    parser.add_argument("--workers", type=int, default=1, metavar="N",
                        help="processes for the seeds of a size, for long runs (default: %(default)s)")  # fmt: skip
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="draw the metric: .png, .pdf or .svg")
    parser.set_defaults(action=_size)


def _size(options: Namespace) -> int:
    if options.output is not None:
        from polluxsim.look.plot.style import check_ending

        check_ending(options.output)
    answer = _answer(options)
    _print(answer)
    if options.output is not None:
        from polluxsim.look.plot.levels import draw_levels
        from polluxsim.look.plot.style import save

        save(draw_levels(answer.target, answer.curve, answer.level, answer.what), options.output)
        print(f"wrote {options.output}")
    return NOT_MET if answer.level is None else 0


def _answer(options: Namespace) -> Answer:
    from polluxsim.look.remarks import print_without_effect
    from polluxsim.metrics.target import read_target
    from polluxsim.sweeps.sizing import Levels, hardest

    target, levels, upwards = read_target(options.target), _levels(options), not options.highest_load
    known = Levels(target, _overrides(options), _seeds(options), options.out, options.workers)
    estimate = cache(lambda level: _estimate(known, level))
    levels = levels[known.first_possible(levels) :]
    found = hardest(levels, lambda level: target.is_met(estimate(level).value), easier_upwards=upwards)
    sure = None
    if found is not None and any(estimate(level).high is not None for level in known.measured):
        sure = hardest(levels, lambda level: target.is_met(_high(estimate(level))), easier_upwards=upwards)
    known.write_table()
    print_without_effect(options.out)
    return Answer(target, {level: estimate(level) for level in sorted(known.measured)}, upwards, found, sure)


def _levels(options: Namespace) -> list[float]:
    """Return the sizes [nodes] or loads that may be tried, rising."""
    if options.step is not None and not options.highest_load:
        raise InvalidConfigError("--step is for --highest-load, sizes are whole nodes")
    limit = (4.0 if options.highest_load else 64.0) if options.limit is None else options.limit
    step = (0.05 if options.highest_load else 1.0) if options.step is None else options.step
    if not options.highest_load and limit % 1:
        raise InvalidConfigError(f"--limit is {limit:g}, allowed is a whole number of nodes")
    if not 0 < step <= limit <= step * MOST_LEVELS:
        raise InvalidConfigError(f"--limit is {limit:g}, allowed is {step:g} to {step * MOST_LEVELS:g}, in steps > 0")
    return [round(step * number, 9) for number in range(1, int(limit / step + 1e-6) + 1)]


def _overrides(options: Namespace) -> list[str]:
    from polluxsim.sweeps.calibration import replay_of
    from polluxsim.sweeps.sizing import PLACE

    varied = f"workload.load_factor={PLACE}" if options.highest_load else f"cluster.num_nodes={PLACE}"
    log = () if options.jobs is None else replay_of(options.jobs)
    return [*log, *([] if any(PLACE in name for name in options.names) else [varied]), *options.names]


def _seeds(options: Namespace) -> list[int | None]:
    if options.seeds < 1:
        raise InvalidConfigError(f"--seeds is {options.seeds}, allowed is a whole number ≥ 1")
    if options.seeds == 1:
        return [None]
    if given := [name for name in options.names if name.startswith("seed=")]:
        raise InvalidConfigError(f"{given[0]!r} and --seeds {options.seeds}, allowed is one of them")
    return list(range(options.seeds))


def _estimate(known: Levels, level: float) -> Estimate:
    """Return the mean over seeds, with its interval where there are enough of them; infinite where jobs are left."""
    from polluxsim.look.samples import Sample, Samples

    values = enumerate(known.values(level))
    measured = Samples(Sample("", "", value, seed=seed) for seed, value in values).measured(("", "", ""))
    assert measured is not None
    return measured.estimate


def _high(estimate: Estimate) -> float:
    return estimate.value if estimate.high is None else estimate.high


def _print(answer: Answer) -> None:
    """Print the metric at every level, and what was found in words."""
    from rich.table import Table

    from polluxsim.look.console import console

    target, unit = answer.target, answer.target.unit[0]
    table = Table()
    intervals = any(found.low is not None for found in answer.curve.values())
    metric = f"{target.metric} \\[{unit}]" if unit else target.metric
    for heading in (answer.what, metric, *["95 % interval"] * intervals):
        table.add_column(heading, justify="right")
    for level, found in answer.curve.items():
        table.add_row(f"{level:g}", _told(target, found.value), *[_interval(target, found)] * intervals)
    console().print(table)
    print("\n".join(_words(answer)))


def _told(target: Target, value: float) -> str:
    return "jobs left" if isinf(value) else target.told(value).partition(" ")[0]


def _interval(target: Target, found: Estimate) -> str:
    if found.low is None or found.high is None:
        return ""
    return f"{_told(target, found.low)} to {_told(target, found.high)}"


def _words(answer: Answer) -> Iterator[str]:
    target, curve, level = answer.target, answer.curve, answer.level
    if level is None:
        best = min(curve, key=lambda level: curve[level].value)
        most = "jobs are left at each" if isinf(curve[best].value) else f"the best found is {_at(answer, best)}"
        what = "size" if answer.of_sizes else "load"
        yield f"no {what} from {min(curve):g} to {max(curve):g} meets {target}: {most}"
        return
    ends = ", the highest tried" if not answer.of_sizes and level == max(curve) else ""
    yield f"{'least size' if answer.of_sizes else 'highest load'} that meets {target}: {_at(answer, level)}{ends}"
    if any(found.low is not None for found in curve.values()):
        yield f"with the whole 95 % interval: {'none found' if answer.sure is None else _at(answer, answer.sure)}"
    for other, found in curve.items():
        if (other > level) == answer.of_sizes and other != level and not target.is_met(found.value):
            yield f"not monotone: {_at(answer, other)} does not meet it"


def _at(answer: Answer, level: float) -> str:
    value = answer.curve[level].value
    where = f"{level:g} node{'s' * (level != 1)}" if answer.of_sizes else f"load {level:g}"
    return f"{where}, {'jobs left' if isinf(value) else answer.target.told(value)}"
