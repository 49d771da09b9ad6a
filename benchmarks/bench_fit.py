"""The throughput fit against SciPy's L-BFGS-B, on every set of observations met in the recorded run.

    python benchmarks/bench_fit.py [--data ../shared/data]

Both minimise the same compiled objective from the same start within the same bounds. Prints the time of a fit, on how
many sets each ends more than 1e-4 (relative) above the other, and the same for SciPy against itself with the data moved
by one unit in the last place: two implementations cannot agree better than that.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING
from unittest.mock import patch

import numpy as np
from recorded_run import Replay, allocations, read_run
from scipy.optimize import minimize as scipy_minimize

from polluxsim.applications.folder import ProfileFolder
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import simulate
from polluxsim.hardware.clusters import Cluster
from polluxsim.models import fitting
from polluxsim.models.efficiency import GradientStatistics
from polluxsim.models.fitting import explored_bounds, minimise, objective
from polluxsim.models.goodput import GoodputModel
from polluxsim.models.profile import Application
from polluxsim.models.throughput import ThroughputParams
from polluxsim.workloads.workload import read_workload

if TYPE_CHECKING:
    from numpy.typing import NDArray

WORSE = 1e-4


def observation_sets(osdi21: Path) -> list[NDArray[np.float64]]:
    """Return the distinct sets of observations that agents fit while the recorded allocations are replayed."""
    sets: dict[bytes, NDArray[np.float64]] = {}
    kept = fitting.observation_array

    def noting(*columns: object) -> NDArray[np.float64]:
        data = kept(*columns)
        sets[data.tobytes()] = data
        return data

    workload = read_workload(osdi21 / "workloads" / "workload-6.csv")
    fitting.fitted.cache_clear()  # else what this process has fitted before is not asked for
    with patch.object(fitting, "observation_array", noting):
        simulate(
            workload,
            ProfileFolder(str(osdi21)).load(),
            Cluster.uniform(16, 4),
            Replay(allocations(read_run(osdi21))),
            settings=EngineSettings(whole_seconds=True),
        )
    return list(sets.values())


def ours(data: NDArray[np.float64]) -> float:
    return minimise(data, *explored_bounds(data))[1]


def scipys(data: NDArray[np.float64]) -> float:
    start, lower, upper = explored_bounds(data)
    bounds = list(zip(lower, upper, strict=True))
    return float(scipy_minimize(_objective, start, args=(data,), jac=True, method="L-BFGS-B", bounds=bounds).fun)


def _objective(x: NDArray[np.float64], data: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
    gradient = np.empty(7)
    return objective(x, data, gradient), gradient


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("POLLUXSIM_DATA", "../shared/data"))
    sets = observation_sets(Path(parser.parse_args().data) / "osdi21")
    rng = np.random.default_rng(0)
    moved = [np.vstack([d[:3], d[3:] * (1 + 2.2e-16 * rng.choice([-1, 0, 1], d[3:].shape))]) for d in sets]
    values, seconds = {}, {}
    for name, minimiser, problems in (
        ("ours", ours, sets),
        ("SciPy", scipys, sets),
        ("SciPy, data moved", scipys, moved),
    ):
        started = perf_counter()
        values[name] = np.array([minimiser(data) for data in problems])
        seconds[name] = perf_counter() - started
    print(f"{len(sets)} sets of {np.mean([d.shape[1] for d in sets]):.1f} observations on average")
    for name, objectives in values.items():
        above = (objectives > values["SciPy"] * (1 + WORSE)).mean()
        below = (objectives < values["SciPy"] * (1 - WORSE)).mean()
        print(
            f"{name:18} {1e3 * seconds[name] / len(sets):6.3f} ms a fit, mean objective {objectives.mean():.5f}; "
            f"more than 1e-4 above SciPy on {above:.1%}, below on {below:.1%}"
        )
    _print_choice()


def _print_choice() -> None:
    """Print the time of one choice of the batch size."""
    application = Application("cifar10", 128, 4096, 32, 1024, 100)
    params = ThroughputParams(0.02, 0.0007, 0.1, 0.002, 0.01, 0.001, 1.3)
    model = GoodputModel(application, params, GradientStatistics(1.0, 20.0))
    model.best(1, 4)
    started = perf_counter()
    for _ in range(10_000):
        model.best(1, 4)
    print(f"choice of a batch size: {(perf_counter() - started) * 100:.1f} µs")


if __name__ == "__main__":
    main()
