"""Time whole runs of workload 6 under each policy, phase by phase.

    python benchmarks/bench_runs.py [--data ../shared/data] [--repeat 3] [--policies tiresias pollux-annealing]

One core, compiled kernels in the cache (a warm-up run comes first), loading apart; medians over the repeats. `again` is
another run with the same profiles, as in a sweep: what was computed once, step times between measured ones and fits of
the same observations above all, is there. The last rows time whole processes, start-up included.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from time import perf_counter

from rich.console import Console
from rich.table import Table

from polluxsim.applications.folder import ProfileFolder
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import simulate
from polluxsim.hardware.clusters import Cluster
from polluxsim.models import fitting
from polluxsim.policies.elastic.true_times import Optimus
from polluxsim.policies.ordered.attained_service import Tiresias
from polluxsim.policies.ordered.classic import Fifo, Srtf
from polluxsim.policies.pollux.policy import Pollux
from polluxsim.workloads.workload import read_workload

POLICIES = {
    "fifo": Fifo,
    "srtf": Srtf,
    "tiresias": Tiresias,
    "optimus": Optimus,
    "pollux-annealing": lambda: Pollux("annealing"),
    "pollux-genetic": lambda: Pollux("genetic"),
}
# CPU time of the published simulator for the same runs on a 2-core machine of this kind [s].
PUBLISHED = {"tiresias": 23.0, "optimus": 89.0, "pollux-annealing": 37 * 60.0, "pollux-genetic": 37 * 60.0}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("POLLUXSIM_DATA", "../shared/data"))
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--policies", nargs="+", choices=POLICIES, default=list(POLICIES))
    options = parser.parse_args()
    osdi21 = Path(options.data) / "osdi21"
    table = Table(title=f"workload 6, seconds, median of {options.repeat}")
    for column in (
        "policy",
        "load",
        "simulate",
        "again",
        "of it decide",
        "rounds",
        "ms a round",
        "published",
        "times faster",
    ):
        table.add_column(column, justify="left" if column == "policy" else "right")
    for name in options.policies:
        table.add_row(name, *_run(osdi21, name, options.repeat))
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(table)
    for label, arguments in {
        "polluxsim run policy=tiresias": [
            "run", "policy=tiresias", "engine=osdi21", f"workload.path={osdi21}/workloads/workload-6.csv",
            f"profiles.path={osdi21}",
        ],
        "polluxsim --help": ["--help"],
    }.items():  # fmt: skip
        console.print(f"{label}, whole process: {_process(arguments, options.repeat):.2f} s")


def _run(osdi21: Path, name: str, repeat: int) -> list[str]:
    seconds = defaultdict[str, list[float]](list)
    rounds = 0
    for attempt in range(repeat + 1):
        fitting.fitted.cache_clear()
        started = perf_counter()
        profiles = ProfileFolder(str(osdi21)).load()
        workload = read_workload(osdi21 / "workloads" / "workload-6.csv")
        loaded = perf_counter()
        # What the profiles compute once and keep is computed again in every repeat: nothing is warm but the compiler.
        settings = EngineSettings(whole_seconds=True)
        result = simulate(workload, profiles, Cluster.uniform(16, 4), POLICIES[name](), settings=settings)
        simulated = perf_counter()
        simulate(workload, profiles, Cluster.uniform(16, 4), POLICIES[name](), settings=settings)
        if attempt:
            seconds["load"].append(loaded - started)
            seconds["simulate"].append(simulated - loaded)
            seconds["again"].append(perf_counter() - simulated)
            seconds["decide"].append(sum(t.seconds for t in result.timing_records if t.phase == "decide"))
            rounds = len(result.round_records)
    phases = ("load", "simulate", "again", "decide")
    load, simulated, again, decide = (statistics.median(seconds[phase]) for phase in phases)
    published = PUBLISHED.get(name)
    return [
        f"{load:.2f}",
        f"{simulated:.3f}",
        f"{again:.3f}",
        f"{decide:.2f}",
        str(rounds),
        f"{1000 * simulated / rounds:.2f}",
        f"{published:.0f}" if published else "",
        f"{published / (load + simulated):.0f}" if published else "",
    ]


def _process(arguments: list[str], repeat: int) -> float:
    times = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(repeat + 1):
            started = perf_counter()
            subprocess.run(
                [sys.executable, "-m", "polluxsim", *_absolute(arguments)], check=True, cwd=folder, capture_output=True
            )
            times.append(perf_counter() - started)
    return statistics.median(times[1:])


def _absolute(arguments: list[str]) -> list[str]:
    """Return the arguments with paths that hold in any folder."""
    pairs = [argument.partition("=") for argument in arguments]
    return [
        f"{key}={Path(value).resolve()}" if key.endswith("path") else key + sign + value for key, sign, value in pairs
    ]


if __name__ == "__main__":
    main()
