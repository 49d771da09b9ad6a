"""Published runs of Gavel's and Shockwave's schedulers, beside ours on the same jobs, with a verdict for each.

    python benchmarks/hetero.py [--data ../shared/data] [--check]

Recorded schedules are replayed (`policy=replay`). Those of real clusters are shown with their difference, and not
judged: a table of speeds is not that cluster.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conformance import Row, table
from rich.console import Console

from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import simulate
from polluxsim.policies.replay import Timeline
from polluxsim.policies.shares.allox import AlloX
from polluxsim.policies.shares.rounds import RoundsOfShares
from polluxsim.policies.shares.rules import FinishTimeFairness, GandivaFair, Isolated, MaxMin, MaxSum, MinMakespan
from polluxsim.policies.shockwave.policy import Shockwave
from polluxsim.types import Cluster
from polluxsim.workloads.gavel import GavelJobs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from polluxsim.policies.shares.rules import Shares
    from polluxsim.policies.view import Policy
    from polluxsim.workloads.workload import Workload

SETTINGS = EngineSettings(round_interval=120.0, restart_delay=20.0, reasons="none", free_moves=True)
CLUSTER = Cluster.uniform(32, 1)
TYPES = Cluster.of_groups([[12, 1, "v100"], [12, 1, "p100"], [12, 1, "k80"]])
REPLAYED = (0.01, 0.05)
"""Shares by which mean JCT and makespan of a replayed schedule may differ."""


DECIDED = (0.03, 0.03)
"""The same of a policy that decides by itself."""

PLANNED = (0.05, 0.05)
"""The same of Shockwave, whose published plans are of another solver."""

PUBLISHED_SHOCKWAVE = {"main": (9_958.0, 24_197.0), "fidelity": (9_944.0, 23_399.0)}
"""Mean JCT and makespan of its recorded runs [s]."""

SHARES: dict[str, Callable[[], Shares]] = {
    "gandiva_fair": GandivaFair,
    "max_min_fairness": lambda: MaxMin(agnostic=True),
    "max_min_fairness_perf": MaxMin,
    "max_sum_throughput_perf": MaxSum,
    "min_total_duration": MinMakespan,
    "min_total_duration_perf": MinMakespan,
    "finish_time_fairness": FinishTimeFairness,
    "isolated": Isolated,
    "allox": AlloX,
}


@cache
def jobs(data: Path, family: str) -> Workload:
    """Return the 120 jobs, which end after 1.5 times their planned training, or once it is over."""
    return GavelJobs(str(data / "hetero" / "jobs_120.csv"), overtime=1.5 if family == "main" else 1.0).load({})


def recorded(data: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield every recorded run."""
    for path in sorted((data / "hetero" / "runs").glob("*.json")):
        yield path, {**json.loads(path.read_text()), "data": data}


def compared(
    case: str, run: dict[str, Any], policy: Policy, bars: tuple[float, float], cluster: Cluster = CLUSTER
) -> list[Row]:
    """Return mean JCT and makespan [s] beside the published ones."""
    result = simulate(jobs(run["data"], run["family"]), {}, cluster, policy, settings=SETTINGS)
    mean = sum(job.jct or 0.0 for job in result.job_records) / len(result.job_records)
    return [
        Row(case, run["family"], run["policy"], "mean JCT", run["avg_jct_s"], mean, bars[0]),
        Row(case, run["family"], run["policy"], "makespan", run["makespan_s"], result.end_time, bars[1]),
    ]


def replayed(data: Path) -> Iterator[Row]:
    """Yield what becomes of every recorded schedule."""
    for path, run in recorded(data):
        is_real = run["kind"] == "physical"
        bars = (float("inf"), float("inf")) if is_real else REPLAYED
        case = "replay, real" if is_real else "replay"
        yield from compared(case, run, Timeline(str(path)), bars)


def decided(data: Path) -> Iterator[Row]:
    """Yield what becomes of the jobs under policies of ours that decide by shares of time."""
    for _, run in recorded(data):
        if run["kind"] == "sim" and run["policy"] in SHARES:
            yield from compared("32 v100", run, policy_of(run["policy"]), DECIDED)
    for name, run in json.loads((data / "hetero" / "expected_types.json").read_text())["policies"].items():
        if name in SHARES:
            said = {**run, "family": "main", "policy": name, "data": data}
            yield from compared("12 of each of 3", said, policy_of(name), DECIDED, TYPES)


def market(data: Path, families: Iterable[str] = PUBLISHED_SHOCKWAVE) -> Iterator[Row]:
    """Yield what becomes of the jobs under Shockwave."""
    for family in families:
        mean, makespan = PUBLISHED_SHOCKWAVE[family]
        run = {"family": family, "policy": "shockwave", "avg_jct_s": mean, "makespan_s": makespan, "data": data}
        yield from compared("32 v100", run, Shockwave(), PLANNED)


def policy_of(name: str) -> Policy:
    """Return a published policy, with newcomers that idle GPUs as published."""
    return RoundsOfShares(SHARES[name](), idle_newcomers=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("POLLUXSIM_DATA", "../shared/data")))
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    rows = [*replayed(options.data), *decided(options.data), *market(options.data)]
    Console(width=130).print(table(rows))
    sys.exit(options.check and not all(row.is_met for row in rows))


if __name__ == "__main__":
    main()
