"""One large job on rented nodes: how long it takes, what it costs, and in how many stages the cluster grows."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from polluxsim.analysis.comparison import Sample
from polluxsim.analysis.figures.nodes import nodes_over_time
from polluxsim.metrics.summary import summarise

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from matplotlib.figure import Figure

    from polluxsim.app.reproduce.runs import Runs
    from polluxsim.records import Result

SHORTEST_STAGE = 15 * 60.0
"""A number of nodes that lasts less is a step on the way to another [s]."""


def measure(runs: Runs) -> Iterator[Sample]:
    """Yield completion time, cost and stages of every run."""
    for run in runs.made:
        result = run.read().result
        if (summary := summarise(result)) is not None:
            yield Sample("completion time", run.arm.name, summary.avg_jct, run.workload, run.seed)
            yield Sample("cost", run.arm.name, summary.cost, run.workload, run.seed)
        yield Sample("stages", run.arm.name, float(len(stages(result))), run.workload, run.seed)


def stages(result: Result) -> list[int]:
    """Return the numbers of nodes that were up for long, in order."""
    rounds = result.round_records
    ends = [*(record.time for record in rounds[1:]), result.end_time]
    spans = groupby(zip(rounds, ends, strict=True), key=lambda span: span[0].nodes)
    lengths = ((nodes, [end - record.time for record, end in held]) for nodes, held in spans)
    return [nodes for nodes, held in lengths if sum(held) > SHORTEST_STAGE]


def draw(runs: Runs) -> Mapping[str, Figure]:
    """Draw nodes and efficiency over time."""
    by_arm = {run.arm.name: run for run in reversed(runs.made)}
    return {"fig9": nodes_over_time({name: run.read().result for name, run in reversed(by_arm.items())})}
