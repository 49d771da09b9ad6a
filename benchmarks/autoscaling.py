"""What the nodes of a growing cluster cost against how long jobs wait, by rule, and whether a forecast pays.

    python benchmarks/autoscaling.py [--seeds 6] [--out frontier.png]

Two loads of two weeks of rigid jobs on nodes of 4 GPUs that take 300 s to start. `bursts` has bursts as on Philly, at
any hour (`workload=philly-like-replay`); `timetable` has bursts on weekdays within 20 minutes from 9
and 14 h.
The reactive rule (`policy/scale=pending`) is run at several idle times, which is its own way to trade cost for waiting;
the forecast at several headrooms. Each forecast is held against the reactive rule at the same cost, seed by seed, by
interpolation; intervals are over seeds.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from polluxsim.engine.simulation import simulate
from polluxsim.hardware.clusters import Cluster
from polluxsim.metrics.summary import summarise
from polluxsim.policies.elastic.cluster_size import Forecast, PendingGpus, Scaled
from polluxsim.policies.ordered.classic import Fifo
from polluxsim.statistics.estimates import mean
from polluxsim.workloads.philly_replay import ReplayLike
from polluxsim.workloads.workload import Job, Workload

if TYPE_CHECKING:
    from collections.abc import Iterator

    from polluxsim.statistics.estimates import Estimate

HOURS = 336
CLUSTER = Cluster.elastic(512, least_nodes=1, gpus_per_node=4, startup_time=300.0, node_price=3.912)
REACTIVE = tuple(f"idle {seconds:g} s" for seconds in (0, 600, 3600, 14400, 28800))
FORECASTS = tuple(f"headroom {share:g}" for share in (0, 2, 5))


class Point(NamedTuple):
    """Cost of the nodes [$], and mean wait of the jobs [s]."""

    cost: float
    wait: float


def bursts(seed: int) -> Workload:
    jobs = ReplayLike(hours=HOURS, rate=0.1, seed=seed, heartbeat=False).draw()
    rows = zip(jobs.times.tolist(), jobs.gpus.tolist(), jobs.durations.tolist(), strict=True)
    return Workload(
        tuple(Job.rigid(f"{i}", float(t), int(n), float(d)) for i, (t, n, d) in enumerate(rows) if n <= 64 and d)
    )


def timetable(seed: int) -> Workload:
    rng = np.random.default_rng(seed)
    starts = [day * 86400 + hour * 3600 for day in range(HOURS // 24) if day % 7 < 5 for hour in (9, 14)]
    jobs = list[Job]()
    for start in starts:
        for time in np.sort(start + rng.uniform(0, 1200, rng.integers(10, 40))):
            gpus, duration = int(rng.choice([1, 2, 4])), float(rng.lognormal(6.5, 1))
            jobs.append(Job.rigid(f"{len(jobs)}", float(time), gpus, duration))
    return Workload(tuple(jobs))


def point(workload: Workload, setting: str) -> Point:
    """Return what a setting costs, and how long jobs wait under it."""
    kind, number = setting.split()[:2]
    scaled = (
        Scaled(Fifo(backfill=True), PendingGpus(), float(number))
        if kind == "idle"
        else Scaled(Fifo(backfill=True), Forecast(headroom=float(number)))
    )
    result = simulate(workload, {}, CLUSTER, scaled)
    waits = [job.queueing_delay for job in result.job_records if job.queueing_delay is not None]
    summary = summarise(result)
    assert summary is not None
    return Point(summary.cost, float(np.mean(waits)))


def against_reactive(found: list[dict[str, Point]], forecast: str) -> Estimate:
    """Return how much longer jobs wait under a forecast than under the reactive rule at the same cost [s]."""
    differences = []
    for points in found:
        frontier = sorted(points[name] for name in REACTIVE)
        costs, waits = zip(*frontier, strict=True)
        differences.append(points[forecast].wait - float(np.interp(points[forecast].cost, costs, waits)))
    return mean(differences, least=-np.inf)


def lines(name: str, found: list[dict[str, Point]]) -> Iterator[str]:
    yield f"{name}, {len(found)} seeds: mean cost [$] and wait [s]"
    for setting in (*REACTIVE, *FORECASTS):
        cost, wait = np.mean([points[setting] for points in found], axis=0)
        said = ""
        if setting in FORECASTS:
            value, low, high = against_reactive(found, setting)
            interval = "" if low is None or high is None else f" ({low:+.1f} to {high:+.1f})"
            said = f", at the same cost {value:+.1f} s{interval} against reactive"
        yield f"  {setting:14} {cost:9,.0f} {wait:7.1f}{said}"


def drawn(found: dict[str, list[dict[str, Point]]]) -> Figure:
    figure = Figure(figsize=(7, 3), layout="constrained")
    for axes, (name, each) in zip(figure.subplots(1, len(found)), found.items(), strict=True):
        for label, settings, mark in (("reactive", REACTIVE, "o-"), ("forecast", FORECASTS, "s--")):
            means = np.array([np.mean([points[setting] for points in each], axis=0) for setting in settings])
            axes.plot(*means.T, mark, label=label)
        axes.set(title=name, xlabel="cost of nodes [$]", ylabel="mean wait [s]")
        axes.legend()
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    found = {}
    for load in (bursts, timetable):
        workloads = map(load, range(options.seeds))
        found[load.__name__] = [{name: point(each, name) for name in (*REACTIVE, *FORECASTS)} for each in workloads]
        print("\n".join(lines(load.__name__, found[load.__name__])), flush=True)
    if options.out:
        drawn(found).savefig(options.out)


if __name__ == "__main__":
    main()
