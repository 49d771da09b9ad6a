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
from polluxsim.types import Cluster
from polluxsim.workloads.gavel import GavelJobs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from polluxsim.policies.view import Policy
    from polluxsim.workloads.workload import Workload

SETTINGS = EngineSettings(round_interval=120.0, restart_delay=20.0, reasons="none")
CLUSTER = Cluster.uniform(32, 1)
REPLAYED = (0.01, 0.05)
"""Shares by which mean JCT and makespan of a replayed schedule may differ."""


@cache
def jobs(data: Path, family: str) -> Workload:
    """Return the 120 jobs, which end after 1.5 times their planned training, or once it is over."""
    return GavelJobs(str(data / "hetero" / "jobs_120.csv"), overtime=1.5 if family == "main" else 1.0).load({})


def recorded(data: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield every recorded run."""
    for path in sorted((data / "hetero" / "runs").glob("*.json")):
        yield path, json.loads(path.read_text())


def compared(
    case: str, run: dict[str, Any], policy: Policy, workload: Workload, bars: tuple[float, float]
) -> list[Row]:
    """Return mean JCT and makespan [s] beside the published ones."""
    result = simulate(workload, {}, CLUSTER, policy, settings=SETTINGS)
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
        yield from compared(case, run, Timeline(str(path)), jobs(data, run["family"]), bars)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("POLLUXSIM_DATA", "../shared/data")))
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    rows = [*replayed(options.data)]
    Console(width=130).print(table(rows))
    sys.exit(options.check and not all(row.is_met for row in rows))


if __name__ == "__main__":
    main()
