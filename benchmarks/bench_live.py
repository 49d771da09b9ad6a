"""What the live view costs: the same run with it and without, in turns, in one process on a terminal of its own.

    python benchmarks/bench_live.py [--pairs 5]

Pollux on the shipped workload. Ratios of wall-clock and of processor time, pair by pair, and their medians.
"""

from __future__ import annotations

import argparse
import os
import pty
import threading
from contextlib import redirect_stderr, suppress
from statistics import median
from time import perf_counter, process_time

from polluxsim.applications.folder import ProfileFolder
from polluxsim.cli.live import live_view
from polluxsim.engine.simulation import simulate
from polluxsim.hardware.clusters import Cluster
from polluxsim.policies.pollux.policy import Pollux
from polluxsim.workloads.workload import WorkloadFile


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5)
    pairs = parser.parse_args().pairs
    screen, terminal = pty.openpty()
    drawn = [0]
    threading.Thread(target=_drain, args=(screen, drawn), daemon=True).start()
    with os.fdopen(terminal, "w") as stderr, redirect_stderr(stderr):
        run(live=True)
        ratios = []
        for number in range(pairs):
            times = {live: run(live=live) for live in ((True, False) if number % 2 else (False, True))}
            ratios.append([with_view / quiet for with_view, quiet in zip(times[True], times[False], strict=True)])
    for name, values in zip(("wall clock", "processor"), zip(*ratios, strict=True), strict=True):
        print(f"{name:<11} median {median(values):.3f} of", " ".join(f"{value:.3f}" for value in values))
    print(f"{drawn[0]} bytes were drawn")


def run(*, live: bool) -> tuple[float, float]:
    """Return wall-clock and processor time of one run [s]."""
    profiles = ProfileFolder(None).load()
    workload, cluster = WorkloadFile().load(profiles), Cluster.uniform(16, 4)
    started = perf_counter(), process_time()
    if live:
        with live_view(workload, cluster) as watch:
            simulate(workload, profiles, cluster, Pollux(), watcher=watch)
    else:
        simulate(workload, profiles, cluster, Pollux())
    return perf_counter() - started[0], process_time() - started[1]


def _drain(screen: int, drawn: list[int]) -> None:
    """Read what is drawn, as a terminal does, and count its bytes."""
    with suppress(OSError):  # the other end is closed
        while part := os.read(screen, 1 << 16):
            drawn[0] += len(part)


if __name__ == "__main__":
    main()
